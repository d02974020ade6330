"""Corpora prepared on disk: shards of ids, written in parallel processes that do not load Keras."""
