"""Ids to arrays: examples sorted into length buckets and padded."""

from .kinds import TextBatches, TranslationBatches, WordBatches, windows

__all__ = ["TextBatches", "TranslationBatches", "WordBatches", "windows"]
