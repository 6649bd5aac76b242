"""What all commands share: the application, its messages, and its exit."""

import inspect
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand, TyperGroup

from onmf import interrupt
from onmf._version import __version__
from onmf.io.files import discard_unfinished
from onmf.kinds import KINDS, get_kind

COMMANDS = {
    "documents": ("command", "Cluster documents by their words."),
    "image": ("command", "Cluster the pixels of a hyperspectral image by their spectra."),
    "cells": ("command", "Cluster cells by their counts of molecules."),
    "table": ("command", "Cluster the rows of any table of counts."),
    "predict": ("models", "Assign new data to the clusters of a model."),
    "update": (
        "update",
        "Assign new data to the clusters in a folder, find new clusters in them, and learn from them.",
    ),
    "find": (
        "find",
        "Find clusters and rows by their words: the words of documents, the genes of cells, the features of a table.",
    ),
    "edit": (
        "edit",
        "Merge, split, rename and set aside clusters, and write the whole folder again, report and model included.",
    ),
    "show": (
        "models",
        "Print the clusters of a model: their numbers, names and sizes, and what sets each apart.",
    ),
    "rename": ("models", "Give the clusters of a model other names."),
    "fetch": (
        "reproduce",
        "Download the paper's data sets into $ONMF_DATA or the user's cache, and verify them.",
    ),
    "reproduce": ("reproduce", "Reproduce the paper's tables and figures, and compare every number."),
}
"""The module and the summary of each command. A module is imported when one of its commands is called."""


class Plain:
    """Lets the help say ``--force`` and ``PATH`` instead of ``--force <bool>`` and ``PATH <str>``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, as the help shows them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None  # typer ignores the metavar of arguments here
            elif parameter.metavar is None and getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(Plain, TyperCommand):
    """A command."""


class PlainGroup(Plain, TyperGroup):
    """All commands. One that is not imported yet has its summary, for the help of the group."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        late: dict[str, Any] = {name: TyperCommand(name, help=text) for name, (_, text) in COMMANDS.items()}
        self.commands = late | dict(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is called, and import it."""
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and found is not None and found.callback is None:
            found = self.commands[name] = imported(name)
        return name, found, rest


F = TypeVar("F", bound=Callable[..., Any])

app = typer.Typer(
    cls=PlainGroup,
    help="Find clusters in counts: documents, images, cells, or any table of counts. For a start: "
    "onmf documents FOLDER -k 10 --out clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(name: str) -> Callable[[F], F]:
    """Register a command of ``onmf``. Its docstring is its help."""

    def register(function: F) -> F:
        text = re.sub(
            r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(function.__doc__ or "")
        )  # the terminal breaks the lines
        return app.command(name, cls=PlainCommand, help=text)(function)

    return register


def imported(name: str) -> Any:
    """Import the module of a command, which registers it. → the command"""
    module = import_module(f"onmf.cli.{COMMANDS[name][0]}")
    if name in KINDS:
        module.add_command(get_kind(name))
    group: Any = typer.main.get_command(app)
    return group.commands[name]


@app.callback(invoke_without_command=True)
def main_options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Options of ``onmf`` itself."""
    if version:
        print(f"onmf {__version__}")
        raise typer.Exit


def check_folder(out: Path) -> None:
    """Create the folder of ``--out`` before any work starts."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(0, "Permission denied")
    except OSError as error:
        fail(f"--out {out}: nothing can be written there ({error.strerror}). Name another folder.")


def check_installed(purpose: str, packages: Mapping[str, str], otherwise: str = "") -> None:
    """Refuse before any work starts, if a package that ``purpose`` needs is missing; each has the extra with it."""
    if missing := [name for name in packages if find_spec(name) is None]:
        extras = ",".join(sorted({packages[name] for name in missing}))
        fail(f"{purpose} needs {' and '.join(missing)}: pip install 'onmf[{extras}]'{otherwise}.")


def time_left(elapsed: float, fraction: float | None) -> str:
    """About how long a step still takes, from its time so far and the share that is done; empty if little is known."""
    if fraction is None or elapsed < 1 or not 0.05 <= fraction < 1:
        return ""
    seconds = elapsed * (1 - fraction) / fraction
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


@contextmanager
def working(quiet: bool) -> Iterator[Callable[..., None]]:
    """Show the current step, its progress if known, the elapsed time and that left; only on a terminal.

    Warnings are printed after the work, each once and without its line of code.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TextColumn("{task.fields[left]}"), console=Console(stderr=True), transient=True)
    task = bar.add_task("Starting", total=None, left="")
    current, began = "", perf_counter()

    def step(text: str, fraction: float | None = None) -> None:
        nonlocal current, began
        if text.partition(":")[0] != current:
            current, began = text.partition(":")[0], perf_counter()
        left, total = time_left(perf_counter() - began, fraction), None if fraction is None else 1.0
        bar.update(task, description=text, total=total, completed=fraction or 0.0, left=left)

    shown = not quiet and bar.console.is_terminal  # with Rich's own option, older versions print an empty line
    with warnings.catch_warnings(record=True) as caught, bar if shown else nullcontext():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        yield step
    for text in () if quiet else dict.fromkeys(str(warning.message) for warning in caught):
        say(f"warning: {text}")


def fail(message: str) -> NoReturn:
    """Print an error message and exit with status 2."""
    say(message)
    raise typer.Exit(2)


UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal does not show but obeys (control characters, escapes, marks that change the writing
direction), and lone surrogates."""


def visible(text: str) -> str:
    r"""Return a text as one line that is safe to print: unsafe characters are written out, like ``\x1b``."""
    return UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def tell(*lines: str) -> None:
    """Print lines to standard output. Names, words and paths in them cannot control the terminal."""
    print(*map(visible, lines), sep="\n")


def aligned(columns: Iterable[Sequence[str]], right: range) -> list[str]:
    """The lines of a table. Its columns are as wide as their longest text; those in ``right`` are set to the right."""
    padded = []
    for number, texts in enumerate(columns):
        width = max(map(len, texts))
        padded.append([f"{text:{'>' if number in right else '<'}{width}}" for text in texts])
    return ["  ".join(line) for line in zip(*padded, strict=True)]


def tell_json(value: Any, lead: str = "", end: str = "\n") -> None:
    """Print a value to standard output as one line of JSON in ASCII."""
    print(lead + json.dumps(value).replace("\x7f", "\\u007f"), end=end)


def tell_json_list(values: Iterable[Any]) -> None:
    """Print values to standard output as one JSON list in ASCII, one to a line and each as soon as it is known."""
    lead = "["
    for value in values:
        tell_json(value, lead, end="")
        lead = ",\n"
    print("[]" if lead == "[" else "]")


def say(message: str) -> None:
    """Print a message to standard error. Names, words and paths in it cannot control the terminal."""
    print(f"onmf: {visible(message)}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """Describe an error to users who do not read Python."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return str(error) or "There is not enough memory. Use fewer documents, or fewer words (--min-df)."
    return str(getattr(error, "from_one", error))  # the command counts bands and pixels from 1


class _Stopped(SystemExit):
    """Ctrl-C or SIGTERM stopped the command."""


def _on_signals(action: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, action)


def main() -> None:
    """Run the command line. Errors that a user can fix are printed as sentences, not as tracebacks."""

    def stop(number: int, _: Any) -> None:
        raise _Stopped(128 + number)

    _on_signals(stop)
    try:
        with interrupt.heeded():
            app()
    except _Stopped:
        _on_signals(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the cleanup
        discard_unfinished()
        say("interrupted.")
        _on_signals(signal.SIG_DFL)
        raise
    except BrokenPipeError:  # the reader of our output closed it, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (ValueError, OSError, ImportError, MemoryError) as error:
        say(sentence(error))
        raise SystemExit(2) from None
