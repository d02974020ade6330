"""Trained tasks for other engines."""

from .formats import FORMATS, Format, export
