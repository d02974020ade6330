"""Grades a layer, mask or function that a learner has written against the paper's formulas.

keras-transformer grade my_layer.py
"""

import lazy_loader

# The names are listed in __init__.pyi; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
