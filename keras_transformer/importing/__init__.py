"""Models of other toolkits as tasks of this package."""

from .gpt2 import from_gpt2
from .marian import from_marian
