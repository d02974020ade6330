from .engines import set_engine
from .formats import ENGINES, FORMATS, Format, checked_format, export
from .gpt2.importing import from_gpt2
from .marian.importing import from_marian

__all__ = [
    "ENGINES",
    "FORMATS",
    "Format",
    "checked_format",
    "export",
    "from_gpt2",
    "from_marian",
    "set_engine",
]
