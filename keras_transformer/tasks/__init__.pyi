from .attention_maps import AttentionMaps
from .task import Task
from .text_generation import TextGenerator, TextScore
from .translation import Hypothesis, Translator
from .word_tasks import Classifier, MaskFiller, Prediction, Tagger

__all__ = [
    "AttentionMaps",
    "Classifier",
    "Hypothesis",
    "MaskFiller",
    "Prediction",
    "Tagger",
    "Task",
    "TextGenerator",
    "TextScore",
    "Translator",
]
