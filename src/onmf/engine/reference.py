"""Old name of :class:`onmf.backend.ReferenceBackend`."""

from __future__ import annotations

from typing import Any

from . import moved


def __getattr__(name: str) -> Any:
    return moved(name, __name__)
