"""Text in, text out: a model with its vocabulary and defaults, one .keras file."""

from .task import Task
from .text_generation import TextGenerator, TextScore
from .translation import AttentionMaps, Hypothesis, Translator
from .word_tasks import Classifier, MaskFiller, Prediction, Tagger
