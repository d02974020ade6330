from .formats import FORMATS, Format, checked_format, export
from .gpt2.importing import from_gpt2
from .marian.importing import from_marian

__all__ = ["FORMATS", "Format", "checked_format", "export", "from_gpt2", "from_marian"]
