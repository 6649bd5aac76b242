"""The GPU backend. Importing it imports no CuPy; making a :class:`GpuBackend` does."""

from .backend import GpuBackend

__all__ = ["GpuBackend"]
