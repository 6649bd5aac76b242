"""The command line. It parses arguments, calls the library and prints the results; it does no mathematics."""

from .common import app, main

__all__ = ["app", "main"]
