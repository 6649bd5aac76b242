"""Where rows lie, and what may come in."""

from .base import Data, Engine, Part
from .blocks import Blocks
from .dask import Dask
from .intake import NAMES, get_engine, in_blocks
from .memory import InMemory, Memory
from .parts import PartError, Source

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
