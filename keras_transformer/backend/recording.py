"""PyTorch's recorder of decoding steps."""

import functools
import sys
import threading
from collections.abc import Callable

import keras

from .platform import name

MOST_RECORDED = 256  # shapes per traced function; beyond them the oldest record is dropped

_lock = threading.Lock()  # PyTorch records one function at a time


def trace(function: Callable) -> Callable:
    """On PyTorch, the tensor operations of `function`, recorded once per shape of its input.

    A decoding step is some hundred small operations, and the Python of Keras around them takes
    several times as long as they do. torch.compile, a third faster still, takes half a minute per
    shape. XLA needs none of this: elsewhere this is `function` itself. Weights are read in place.

    A record holds neither gradients nor random numbers: it is for inference alone. Where PyTorch
    lacks the private modules that record, `function` itself is called, which is slower.

    Args:
        function: its arguments are structures of tensors.

    Returns:
        A function with the same arguments.
    """
    if name() != "torch":
        return function
    programs: dict = {}

    def run(*args):
        shapes = (x if x is None else (x.shape, x.dtype) for x in keras.tree.flatten(args))
        key = (*map(type, args), *shapes)
        program = programs.get(key)
        if program is None:
            with _lock:
                program = programs.get(key) or _recorded(function, args)
                programs[key] = program
                if len(programs) > MOST_RECORDED:
                    del programs[next(iter(programs))]
        return program(*args)

    return run


def _recorded(function, args):
    """The operations of `function` on such arguments, as a torch.fx.GraphModule."""
    import torch

    try:
        from torch._guards import TracingContext, tracing
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError as error:
        _say_once(
            f"Decoding is slower: PyTorch {torch.__version__} has no recorder of steps ({error})."
        )
        return function

    # Copies, because a tensor that is given twice would be recorded as one argument.
    copies = keras.tree.map_structure(lambda x: x if x is None else x.clone(), args)
    # With no context, PyTorch makes a mode for the shape of every result: half of the time.
    with torch.no_grad(), tracing(TracingContext(FakeTensorMode())):
        program = make_fx(_without_conversions(function, _disable_current_modes))(*copies)
    for node in program.graph.nodes:
        node.meta.clear()  # the stack trace of each: far larger than the program
    return program


@functools.cache
def _say_once(sentence):
    print(sentence, file=sys.stderr)


def _without_conversions(function, disable_modes):
    """`function` without conversions that change nothing: half of the operations of Keras."""
    import torch

    class SkipConversions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func in (torch.Tensor.to, torch.Tensor.contiguous):
                with disable_modes():
                    result = func(*args, **kwargs)
                if result is args[0]:
                    return result
            return func(*args, **kwargs)

    def run(*args):
        with SkipConversions():
            return function(*args)

    return run
