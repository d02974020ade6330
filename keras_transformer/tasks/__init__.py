"""Text in, text out: a model with its vocabulary and defaults, one .keras file."""

from .language import TextGenerator, TextScore
from .task import Task
from .translation import Attention, Hypothesis, Translator
from .words import Classifier, Label, MaskFiller, Tagger

__all__ = [
    "Attention",
    "Classifier",
    "Hypothesis",
    "Label",
    "MaskFiller",
    "Tagger",
    "Task",
    "TextGenerator",
    "TextScore",
    "Translator",
]
