"""The command line: arguments in, calls, and results for people. No mathematics."""

from __future__ import annotations

from . import documents, image, models, reproduce
from .common import app, main

__all__ = ["app", "documents", "image", "main", "models", "reproduce"]
