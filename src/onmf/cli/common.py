"""What all commands share: the application, what it says, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from onmf import interrupt
from onmf._version import __version__
from onmf.io.unfinished import discard_unfinished

app = typer.Typer(
    help="Cluster counts: orthogonal nonnegative matrix factorization.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FIT = "Clustering"
Divergence = Annotated[
    str,
    typer.Option("--divergence", help="kullback-leibler, frobenius, cosine, or a number β.", rich_help_panel=FIT),
]
Init = Annotated[
    str, typer.Option("--init", help="snpa, ++, random, random-partition or consensus.", rich_help_panel=FIT)
]
NInit = Annotated[
    int, typer.Option("--n-init", min=1, help="Runs from random starts; the best is kept.", rich_help_panel=FIT)
]
MaxIter = Annotated[int, typer.Option("--max-iter", min=1, help="Most iterations of a run.", rich_help_panel=FIT)]
Tol = Annotated[float, typer.Option("--tol", min=0.0, help="Stop when the scales change by less.", rich_help_panel=FIT)]
Smoothing = Annotated[float, typer.Option("--smoothing", min=0.0, help="ε of Kullback–Leibler.", rich_help_panel=FIT)]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the random starts.", rich_help_panel=FIT)]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads; all cores by default.", rich_help_panel=FIT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print what is to be said as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run wrote.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onmf {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of the command itself."""


def checked_folder(out: Path | None) -> Path | None:
    """The folder of ``--out``, made before any work is done."""
    if out is None:
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        fail(f"--out {out}: nothing can be written there ({error.strerror}). Name another folder.")
    return out


@contextmanager
def steps(quiet: bool) -> Iterator[Callable[..., None]]:
    """What is being done, how far it is where that is known, and for how long, on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("Starting", total=None)

        def step(text: str, fraction: float | None = None) -> None:
            bar.update(task, description=text, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield step


@contextmanager
def warnings_as_sentences(quiet: bool) -> Iterator[None]:
    """Warnings without the line of code that they came from, once the work is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if not quiet:
            say(f"warning: {text}")


def fail(message: str) -> NoReturn:
    """End with a sentence and status 2."""
    say(message)
    raise typer.Exit(2)


UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal does not show but obeys: controls, escapes, signs that turn the direction of writing, halves of
characters."""


def visible(text: str) -> str:
    r"""A text as one line in which nothing commands the terminal: what would is written out, like ``\x1b``."""
    return UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def tell(line: object = "") -> None:
    """A line on standard output, whatever names, words and paths are in it."""
    print(visible(str(line)))


def tell_json(value: Any) -> None:
    """A value on standard output, as JSON on one line of ASCII."""
    print(json.dumps(value).replace("\x7f", "\\u007f"))


def say(message: str) -> None:
    """A sentence on standard error, whatever names, words and paths are in it."""
    print(f"onmf: {visible(message)}", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """What went wrong, for somebody who does not read Python."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, MemoryError):
        return str(error) or "This needs more memory than there is. Use fewer documents, or fewer words (--min-df)."
    return str(error)


class _Stopped(SystemExit):
    """Ctrl-C, or SIGTERM."""


def _on_signals(action: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, action)


def main() -> None:
    """Run the command line; errors that a user can mend are sentences, not tracebacks."""

    def stop(number: int, _: Any) -> None:
        raise _Stopped(128 + number)

    _on_signals(stop)
    try:
        with interrupt.heeded():
            app()
    except _Stopped:
        _on_signals(signal.SIG_IGN)  # whoever presses Ctrl-C twice does not want half of a folder to stay
        discard_unfinished()
        say("interrupted.")
        _on_signals(signal.SIG_DFL)
        raise
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (ValueError, OSError, ImportError, MemoryError) as error:
        say(sentence(error))
        raise SystemExit(2) from None
