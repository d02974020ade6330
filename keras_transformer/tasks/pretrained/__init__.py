from .names import FOLDER, NAMES, find

__all__ = ["FOLDER", "NAMES", "find"]
