"""PyTorch's recorder of decoding steps."""

import collections
import threading
from collections.abc import Callable

import keras

from .platform import name
from .private import notice, torch_recorder

UNRECORDED = 64  # calls of a shape that take as long as its record, for few texts
MOST_RECORDED = 256  # shapes per traced function; beyond them the oldest record is dropped

_lock = threading.Lock()  # PyTorch records one function at a time


def trace(function: Callable, few: bool = False) -> Callable:
    """On PyTorch, the tensor operations of `function`, recorded once per shape of its input.

    A decoding step is some hundred small operations, and the Python of Keras around them takes
    several times as long as they do. torch.compile, a third faster still, takes half a minute per
    shape. XLA needs none of this: elsewhere this is `function` itself. Weights are read in place.

    A record holds neither gradients nor random numbers: it is for inference alone. Where PyTorch
    lacks the private modules that record, `function` itself is called, which is slower.

    Args:
        function: its arguments are structures of tensors.
        few: bool, whether it is made for few texts: a shape is then recorded after 64 calls.

    Returns:
        A function with the same arguments.
    """
    if name() != "torch":
        return function
    programs: dict = {}
    calls: collections.Counter = collections.Counter()
    unrecorded = UNRECORDED if few else 0

    def run(*args):
        shapes = (x if x is None else (x.shape, x.dtype) for x in keras.tree.flatten(args))
        key = (*map(type, args), *shapes)
        program = programs.get(key)
        if program is None and calls[key] < unrecorded:
            calls[key] += 1
            return function(*args)
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

    recorder = torch_recorder()
    if recorder is None:
        return function
    tracing, context, fake_mode, make_fx, disable_modes = recorder

    # Copies, because a tensor that is given twice would be recorded as one argument.
    copies = keras.tree.map_structure(lambda x: x if x is None else x.clone(), args)
    try:
        # With no context, PyTorch makes a mode for the shape of every result: half of the time.
        with torch.no_grad(), tracing(context(fake_mode())):
            program = make_fx(_without_conversions(function, disable_modes))(*copies)
    except Exception as error:
        function(*copies)  # raises an error of its own, which is not remembered
        notice("torch", "Decoding is slower", f"cannot record a step ({type(error).__name__})")
        return function
    for node in program.graph.nodes:
        node.meta.clear()  # the stack trace of each: far larger than the program
    return program


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
