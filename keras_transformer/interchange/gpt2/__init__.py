"""GPT-2 models."""
