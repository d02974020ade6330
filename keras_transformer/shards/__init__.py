"""Shards: files of ids, written in parallel processes. Without Keras, so that these stay small."""
