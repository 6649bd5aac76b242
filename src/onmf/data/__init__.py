"""Where rows lie, and what may come in."""

from .base import Data, Engine, InMemory, Memory, Part
from .dask import Dask
from .intake import NAMES, get_engine, in_blocks
from .parts import Blocks, PartError, Source

__all__ = [
    "NAMES",
    "Blocks",
    "Dask",
    "Data",
    "Engine",
    "InMemory",
    "Memory",
    "Part",
    "PartError",
    "Source",
    "get_engine",
    "in_blocks",
]
