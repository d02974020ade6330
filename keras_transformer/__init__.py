"""The Transformer of "Attention Is All You Need" in Keras 3, on TensorFlow, JAX and PyTorch."""

import sys
import types

import lazy_loader

__version__ = "0.1.0"

# The names are listed in __init__.pyi; each is imported when it is first used.
_lazy_getattr, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    value = _lazy_getattr(name)
    if not isinstance(value, types.ModuleType):  # (modules of this package ask for each other)
        _register()
    return value


def _register():
    """Imports all registered classes, so that `keras.saving.load_model` finds them.

    It needs Keras: a program that imports this package, or a part of it, first and then Keras must
    use a name of the package, such as `keras_transformer.load`, before `keras.saving.load_model`.
    """
    if "keras" in sys.modules:
        from . import layers, losses, metrics, optimizers
        from .backend import kernels
        from .models import language_model, transformer, word_models
        from .tasks import text_generation, translation, word_tasks
        from .tokenizers import byte_level, sentencepiece
        from .training import chunked_logits, r_drop, simcut


_register()
