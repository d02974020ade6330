"""Trained tasks for other engines."""

from .formats import FORMATS, Format, checked_format, export
