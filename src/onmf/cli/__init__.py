"""The command line: arguments in, calls, and results for people. No mathematics."""

from __future__ import annotations

from . import documents, models, reproduce
from .common import app, main

__all__ = ["app", "documents", "main", "models", "reproduce"]
