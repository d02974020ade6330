"""Models of other toolkits as tasks of this package."""

from .marian import from_marian
