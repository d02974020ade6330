"""All that depends on the running backend: kernels, compilation, threads, determinism.

Elsewhere the code says what is computed. Here it says how TensorFlow, JAX and PyTorch do that best.
"""

import lazy_loader

# The names are listed in __init__.pyi; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
