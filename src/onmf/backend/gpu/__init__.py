"""The GPU backend. It can be imported without CuPy; making a :class:`GpuBackend` takes it."""

from .backend import GpuBackend

__all__ = ["GpuBackend"]
