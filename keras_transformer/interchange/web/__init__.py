"""A page that runs a model in the reader's browser."""
