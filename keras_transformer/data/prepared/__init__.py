"""Corpora prepared on disk: shards of ids, written in parallel processes that do not load Keras."""

DEFAULT_SAMPLE = 200_000  # examples; here, since the command's --help needs nothing else
