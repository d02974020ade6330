from .attention_maps import AttentionMaps
from .beam_tree import Branch
from .task import Task
from .text_generation import Continuation, TextGenerator, TextScore
from .translation import Hypothesis, Translator
from .word_tasks import Classifier, MaskFiller, Prediction, Tagger

__all__ = [
    "AttentionMaps",
    "Branch",
    "Classifier",
    "Continuation",
    "Hypothesis",
    "MaskFiller",
    "Prediction",
    "Tagger",
    "Task",
    "TextGenerator",
    "TextScore",
    "Translator",
]
