"""The command line. It parses arguments, calls the library and prints the results; it does no mathematics."""

from __future__ import annotations

from . import cells, documents, image, models, reproduce
from .common import app, main

__all__ = ["app", "cells", "documents", "image", "main", "models", "reproduce"]
