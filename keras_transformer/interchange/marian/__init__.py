"""Models of Marian and of the Opus project."""
