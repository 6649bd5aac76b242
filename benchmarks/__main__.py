"""Runs a benchmark: ``python -m benchmarks [NAME] [OPTIONS]``; without a name, that of speed. NAME --help has options.

The options of a benchmark are the parameters of its function.
"""

import argparse
import importlib
import inspect
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from . import measure

BENCHMARKS = {
    "speed": "speed.run",
    "gpu": "gpu.run",
    "scale": "scale.run",
    "image": "image.run",
    "peers": "documents.peers",
    "optima": "documents.optima",
    "starts": "starts.run",
    "search": "search.run",
    "steps": "steps.run",
    "number": "number.run",
    "surprise": "surprise.run",
    "update": "update.run",
    "known": "known.run",
    "divergences": "divergences.run",
    "reliability": "reliability.run",
    "cells": "cells.compare.run",
    "markers": "markers.run",
    "groups": "groups.run",
}
"""The module and the function of each benchmark."""

HELP = {
    "folder": "for files that need much space",
    "parts": "what to measure; by default all",
    "sets": "data sets; by default all that are on this machine",
    "methods": "by default all",
    "name": "the data set",
    "draws": "number of random draws",
    "quick": "use tiny data: checks that it runs; the numbers mean nothing",
    "repeats": "number of repeats; the median is reported",
    "cpu": "count the time of the processor, for a machine on which other programs run",
    "out": "folder for the results",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark that is named."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "speed"
    if name not in BENCHMARKS:
        sys.exit(f"There is no benchmark {name}. There are {', '.join(BENCHMARKS)}.")
    place, _, function = BENCHMARKS[name].rpartition(".")
    module = importlib.import_module(f"benchmarks.{place}")
    run = getattr(module, function)
    parser = argparse.ArgumentParser(f"python -m benchmarks {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for option in inspect.signature(run).parameters.values():
        add_option(parser, option)
    options = vars(parser.parse_args(arguments))
    measure.QUICK = options.get("quick", False)
    # Fits do not converge where the number of iterations is fixed.
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning, module="sib")
    run(**options)


def add_option(parser: argparse.ArgumentParser, option: inspect.Parameter) -> None:
    """Add a parameter of a benchmark to a parser, by the type of its default."""
    name, default, about = option.name, option.default, HELP.get(option.name)
    if default is option.empty:
        parser.add_argument(name, type=Path, help=about)
    elif default is False:
        parser.add_argument(f"--{name}", action="store_true", help=about)
    elif isinstance(default, tuple):
        choices = (default or None) if name in ("parts", "methods") else None
        kind = int if default and isinstance(default[0], int) else str
        parser.add_argument(f"--{name}", nargs="*", type=kind, default=default, choices=choices, help=about)
    else:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=about or f"by default {default}")


if __name__ == "__main__":
    main()
