"""Rows in parts: an engine over parts that are read one after the other, each by an inner engine.

All that is kept of a part between two passes is what has a number for each of its rows: row terms, labels, scales. It
can be made again from the part and the templates of the last step, so nothing is lost where it is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import count, islice
from operator import iadd
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
from scipy.sparse import issparse, vstack

from onmf import interrupt
from onmf.divergence import Array, Divergence, FloatArray

from .base import Data, Engine, Held, StepSums
from .device import to_host

Load = Callable[[], Any]

LASTING = ("step", "start")
"""What stays in the memory of a part; the rest is as large as the templates, for each part."""


NO_BATCHES = "X has no rows: the callable returned no batches."

END = object()
"""What comes after the last batch."""


class PartError(RuntimeError):
    """Something went wrong in one part of the data; the message says in which."""


@dataclass(frozen=True)
class Rows:
    """Data in parts, before an engine holds them.

    Attributes
    ----------
    blocks : sequence or callable
        The parts, or a callable that returns them one after the other, the same ones each time.
    read : callable
        A part, as it comes, as rows that engines read: ``read(block, features=...) -> rows``. It refuses what is not
        allowed, for a part may change between two passes.
    check : callable
        The same for a part that is seen for the first time: ``check(block, features=...) -> rows, zero rows``.
    weights : array or sequence, optional
        Sample weights: one array, or one for each part; a number is the weight of every row.
    what : str
        What a part is called in messages.
    one : callable, optional
        One part by its number, where it can be had without those before it.
    sizes : list of int, optional
        Rows of each part, where that is known before they are read.
    features : int, optional
        Number of features, where that is known.
    names : array of str, optional
        Names of the features, where there are any.
    origin : object, optional
        What the user passed.
    """

    blocks: Any
    read: Callable[..., Data]
    check: Callable[..., tuple[Data, int]]
    weights: Any = None
    what: str = "part"
    one: Callable[[int], Any] | None = None
    sizes: list[int] | None = None
    features: int | None = None
    names: Array | None = None
    origin: Any = None

    @property
    def shape(self) -> tuple[Any, Any]:
        """(rows, features), None where not known yet."""
        return (None if self.sizes is None else sum(self.sizes), self.features)

    def weights_of(self, first: int, n: int) -> Any:
        """Of one array, the weights of n rows."""
        return self.weights if np.ndim(self.weights) == 0 else self.weights[first : first + n]


class Kept(dict[int, Held]):
    """What a process keeps of the parts of a fit, by their number, and a lock for each."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: dict[int, Lock] = {}

    def lock(self, number: int) -> Lock:
        """The lock of a part: a pass that is tried again may come upon a task of the first try."""
        return self.locks.setdefault(number, Lock())


@dataclass(frozen=True)
class Survey:
    """What the first pass finds out about a part."""

    rows: int
    features: int
    constant: float
    weight: float
    zeros: int


@dataclass
class HeldParts(Held):
    """Rows in parts; ``constants`` has one entry for each part, and there are no terms."""

    parts: list[int] = field(default_factory=list)
    """Rows of each part."""
    last: Any = None
    """Templates of the last step."""
    step: int = 0
    """A number for the last step of this run, 0 where there was none; no two steps of any runs share one."""
    iteration: int = 0
    """Steps of this run."""
    zeros: int = 0
    """Rows that are zero everywhere."""
    checked: bool = False
    """Whether all parts have been read and checked once."""
    steps: Iterator[int] = field(default_factory=lambda: count(1))
    key: str = ""
    """Under which what is kept of the parts is found."""

    @property
    def starts(self) -> list[int]:
        """Index of the first row of each part."""
        return [0, *np.cumsum(self.parts)[:-1].tolist()] if self.parts else []


class Job:
    """What is done to each part: read it, find or make what is kept of it, and call the function.

    Parameters
    ----------
    inner : Engine
        Works on the part.
    rows : Rows
        How to read it.
    divergence : Divergence
        Of the fit.
    step : int
        Number of the last step; the labels that are kept must be those of it.
    function : callable
        ``function(inner, part, *args)``.
    known : list of int
        Rows that each part had in the first pass; empty in the first pass.
    checked : bool
        Whether each part has been checked in a pass before.
    """

    def __init__(
        self,
        inner: Engine,
        rows: Rows,
        divergence: Divergence,
        step: int,
        function: Callable[..., Any],
        known: list[int],
        checked: bool,
    ) -> None:
        self.inner = inner
        self.read = partial(rows.read, features=rows.features)
        self.check = partial(rows.check, features=rows.features)
        self.what = rows.what
        self.divergence = divergence
        self.step = step
        self.function = function
        self.known = known
        self.checked = checked

    def __call__(
        self, kept: Kept, number: int, first: int, load: Load, weights: Any, last: Any, args: tuple[Any, ...]
    ) -> tuple[Any, int]:
        """Do it to part ``number``, which begins at row ``first`` and is had by ``load()``.

        ``weights`` are those of its rows, or one number, or a function that gives them for the number of rows.

        Returns
        -------
        found : object
            What the function returned.
        n : int
            Rows of the part.
        """
        with naming(self.what, number):
            block = load()
            with kept.lock(number):
                return self._run(kept, number, first, block, weights, last, args)

    def _run(
        self, kept: Kept, number: int, first: int, block: Any, weights: Any, last: Any, args: tuple[Any, ...]
    ) -> tuple[Any, int]:
        part = kept.get(number)
        with noticing_change(self.checked or part is not None):
            rows, zeros = self.check(block) if part is None else (self.read(block), 0)
        n = rows.shape[0]
        if self.known and n != self.known[number]:
            raise ValueError(
                f"it has {n} rows, and had {self.known[number]} in the first pass. Every pass must find the same rows."
            )
        if part is None:
            weights = weights(n) if callable(weights) else weights
            if np.ndim(weights) == 0 and weights is not None:
                weights = np.full(n, float(weights))
            if weights is not None and len(weights) != n:
                raise ValueError(f"sample_weight has {len(weights)} entries for its {n} rows: give one for each row.")
            part = self.inner.hold(rows, self.divergence, weights)
            part.number, part.first = number, first
            part.memory["zeros"] = zeros
        else:
            part = replace(part, data=self.inner.place(rows), memory=dict(part.memory))
        if self.step == 0:
            part.labels = part.scales = None
        elif part.memory.get("step") != self.step:
            part.labels, part.scales, _ = self.inner.assign(part, last)
            part.memory["step"] = self.step
        try:
            return self.function(self.inner, part, *args), n
        finally:
            if n:  # without rows there is nothing to keep, and in the first pass the features are not known
                lasting = {name: part.memory[name] for name in LASTING if name in part.memory}
                kept[number] = replace(part, data=None, memory=lasting)


@contextmanager
def naming(what: str, number: int) -> Iterator[None]:
    """Let errors say in which part they arose."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In {what} {number}, whose rows count from 0: {error}") from error
    except Exception as error:
        raise PartError(f"In {what} {number}: {type(error).__name__}: {error}") from error


@contextmanager
def noticing_change(before: bool) -> Iterator[None]:
    """Let the refusal of a part that was fine before say so."""
    try:
        yield
    except ValueError as error:
        if not before:
            raise
        raise ValueError(
            f"{error} The first pass found nothing wrong: the data changed during the fit. Let nothing write to them "
            "until it is done."
        ) from error


class PartsEngine(Engine):
    """What engines over parts share: a step maps the inner step over the parts and adds what comes back.

    Parameters
    ----------
    inner : Engine
        Works on each part.
    """

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @abstractmethod
    def over_parts(self, held: HeldParts, function: Callable[..., Any], args: tuple[Any, ...], together: bool) -> Any:
        """Run a function over all parts: the list of what it returns, or ``together`` their sum."""

    def open(self, rows: Rows, divergence: Divergence) -> HeldParts:
        """The rows, of which nothing has been read yet."""
        sizes = list(rows.sizes or [])
        shape = (sum(sizes), rows.features or 0)
        return HeldParts(rows, shape, divergence, None, {}, np.empty(0), parts=sizes)

    def hold(self, X: Any, divergence: Divergence, sample_weight: FloatArray | None = None) -> HeldParts:
        """Read all parts once, check them, and find out their sizes."""
        held = self.open(X, divergence)
        held.parts, told = [], held.parts
        found: list[Survey] = self.over_parts(held, survey, (), False)
        filled = [(number, part) for number, part in enumerate(found) if part.rows]
        if not filled:
            raise ValueError(f"X has no rows: no {X.what} holds any.")
        one, features = filled[0][0], filled[0][1].features
        for number, part in filled:
            if part.features != features:
                raise ValueError(
                    f"In {X.what} {number}: {part.features} features, where {X.what} {one} has {features}. All must "
                    "have the same columns."
                )
        held.parts = [part.rows for part in found]
        for number, (n, said) in enumerate(zip(held.parts, told, strict=False)):
            if n != said:
                raise ValueError(f"In {X.what} {number}: {n} rows, where X says that it has {said}.")
        held.shape = (sum(held.parts), features)
        held.data = replace(X, features=features)
        held.constants = np.array([part.constant for part in found])
        held.zeros = sum(part.zeros for part in found)
        if X.weights is not None and not any(part.weight > 0 for part in found):
            raise ValueError("sample_weight is zero for every row: at least one row must count.")
        finalize(held, unprepare).atexit = False
        held.checked = True
        return held

    def sizes(self, held: Held) -> list[int]:
        assert isinstance(held, HeldParts)
        return held.parts

    def map(self, held: Held, function: Callable[..., Any], *args: Any) -> list[Any]:
        assert isinstance(held, HeldParts)
        return list(self.over_parts(held, function, args, False))

    def total(self, held: Held, function: Callable[..., Any], *args: Any) -> Any:
        assert isinstance(held, HeldParts)
        return self.over_parts(held, function, args, True)

    def step(self, held: Held, templates: Any) -> StepSums:
        assert isinstance(held, HeldParts)
        number = next(held.steps)
        held.iteration += 1
        found: StepSums = self.over_parts(held, step_of, (templates, number), True)
        held.last, held.step = templates, number
        return found

    def forget(self, held: Held) -> None:
        assert isinstance(held, HeldParts)
        held.last, held.step, held.iteration = None, 0, 0

    # What follows is for the few rows that a start has at hand.

    def place(self, X: Data) -> Any:
        return self.inner.place(X)

    def best_template(self, data: Any, templates: Any) -> tuple[Array, FloatArray]:
        return self.inner.best_template(data, templates)

    def own_and_next(self, data: Any, templates: Any, labels: Array) -> tuple[FloatArray, FloatArray]:
        return self.inner.own_and_next(data, templates, labels)

    def sum_by_label(self, data: Any, labels: Array, weights: FloatArray, k: int) -> FloatArray:
        return self.inner.sum_by_label(data, labels, weights, k)

    def row_term(self, data: Any, function: Any) -> FloatArray:
        return self.inner.row_term(data, function)

    def scores(self, data: Any, templates: FloatArray) -> FloatArray:
        return self.inner.scores(data, templates)

    def take(self, data: Any, index: Array) -> Data:
        return self.inner.take(data, index)

    def over_clusters(self, kernel: Callable[[int, int], None], k: int, p: int) -> None:
        self.inner.over_clusters(kernel, k, p)


def survey(engine: Engine, part: Held) -> Survey:
    """What must be known of a part before anything else."""
    weight = float(part.shape[0] if part.weights is None else part.weights.sum())
    return Survey(*part.shape, part.constant, weight, part.memory["zeros"])


def step_of(engine: Engine, part: Held, templates: FloatArray, number: int) -> StepSums:
    """One pass over a part."""
    part.memory.pop("start", None)
    found = engine.step(part, _prepared(engine, part, templates)).each(to_host)
    part.memory["step"] = number
    return found


def rows_of(engine: Engine, part: Held, function: Callable[..., Any], with_labels: bool, *args: Any) -> tuple[Any, ...]:
    """What a function gives for each row of a part; the labels of its rows, if they are needed, come last."""
    labels = args[-1] if with_labels else None
    return engine.by_row(part, function, *args[: len(args) - with_labels], labels=labels)


_last_prepared: list[tuple[FloatArray, type, Any]] = []
"""Templates of the last step in this process, and how they were prepared for sparse or dense rows."""


def _prepared(engine: Engine, part: Held, templates: FloatArray) -> Any:
    """Templates as the engine reads them; prepared once for all parts that one process works on."""
    kind = type(part.data)
    for known, other, prepared in tuple(_last_prepared):
        if known is templates and kind is other:
            return prepared
    prepared = engine.prepare(part, templates)
    _last_prepared[:] = [(templates, kind, prepared)]
    return prepared


def unprepare() -> None:
    """Let go of the templates of the last step."""
    _last_prepared.clear()


class BlocksEngine(PartsEngine):
    """Rows that are read block by block, one after the other, in every pass; one block is in memory at a time.

    Parameters
    ----------
    inner : Engine
        Works on each block.
    progress : callable, optional
        Called with the name of a pass and the share of the rows that are done: 0 before the first block and, where the
        number of rows is known, more after each.
    """

    name = "blocks"

    def __init__(self, inner: Engine, progress: Callable[[str, float], None] | None = None) -> None:
        super().__init__(inner)
        self.progress = progress

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress": None}

    def supports(self, X: Any) -> str | None:
        if isinstance(X, Rows) and callable(X.blocks):
            return None
        return "it reads batches from a callable. Pass a function without arguments that returns them, one by one."

    def open(self, rows: Rows, divergence: Divergence) -> HeldParts:
        held = super().open(rows, divergence)
        held.memory["kept"] = Kept()
        return held

    def over_parts(self, held: HeldParts, function: Callable[..., Any], args: tuple[Any, ...], together: bool) -> Any:
        found = self._each(held, function, args)
        if not together:
            return list(found)
        try:
            return reduce(iadd, found, next(found))  # each is made for this sum
        except StopIteration:
            raise ValueError(NO_BATCHES) from None

    def ask(self, held: Held, number: int, function: Callable[..., Any], *args: Any) -> Any:
        assert isinstance(held, HeldParts)
        rows: Rows = held.data
        load = partial(rows.one or partial(self._nth, rows), number)
        first = held.starts[number]
        weights = partial(rows.weights_of, first)
        return self._job(held, function)(held.memory["kept"], number, first, load, weights, held.last, args)[0]

    def by_row(self, held: Held, function: Callable[..., Any], *args: Any, labels: Any = None) -> tuple[Any, ...]:
        assert isinstance(held, HeldParts)
        found = list(self._each(held, rows_of, (function, labels is not None, *args), labels))
        if not found:
            raise ValueError(NO_BATCHES)
        return tuple(
            vstack(arrays, format="csr") if issparse(arrays[0]) else np.concatenate(arrays)
            for arrays in zip(*found, strict=True)
        )

    def _job(self, held: HeldParts, function: Callable[..., Any]) -> Job:
        return Job(self.inner, held.data, held.divergence, held.step, function, held.parts, held.checked)

    def _each(
        self, held: HeldParts, function: Callable[..., Any], args: tuple[Any, ...], labels: Array | None = None
    ) -> Iterator[Any]:
        """What the function returns for each block, as they come."""
        rows: Rows = held.data
        job, kept, first = self._job(held, function), held.memory["kept"], 0
        report = self._reporter(held, function)
        blocks = self._blocks(rows)
        for number in count():  # as many as there are batches: it ends where the caller's iterator does
            interrupt.check()
            with naming(rows.what, number):
                block = next(blocks, END)
            if block is END:
                break
            if held.parts and number >= len(held.parts):
                raise self._other(held, "more")
            extra = args if labels is None else (*args, labels[first : first + held.parts[number]])
            weights = partial(rows.weights_of, first)
            found, n = job(kept, number, first, lambda block=block: block, weights, held.last, extra)  # type: ignore[misc]
            yield found
            first += n
            report(first)
        if number < len(held.parts):
            raise self._other(held, "fewer")
        if np.ndim(rows.weights) and first != len(rows.weights):
            raise ValueError(f"sample_weight has {len(rows.weights)} entries, but X has {first} rows.")

    def _reporter(self, held: HeldParts, function: Callable[..., Any]) -> Callable[[int], None]:
        """What tells how many rows of a pass are done."""
        progress = self.progress
        if progress is None:
            return lambda done: None
        doing = {survey: "reading", step_of: f"iteration {held.iteration}", rows_of: "looking at the clusters"}
        passes = 0 if function in doing else held.memory.get("passes", 0) + 1
        held.memory["passes"] = passes
        what = doing.get(function, f"choosing a start, pass {passes}")
        n = held.shape[0]
        progress(what, 0.0)
        return lambda done: progress(what, done / n) if n else None

    def _other(self, held: HeldParts, how: str) -> PartError:
        return PartError(
            f"The callable returned {how} batches than in the first pass, when there were {len(held.parts)}: it must "
            "return the same ones each time."
        )

    def _nth(self, rows: Rows, number: int) -> Any:
        """A block by its number, where those before it must be gone through."""
        return next(islice(self._blocks(rows), number, None))

    def _blocks(self, rows: Rows) -> Iterator[Any]:
        """The blocks, one after the other; each can be read more than once."""
        blocks = rows.blocks()
        if not isinstance(blocks, Iterable) or getattr(blocks, "ndim", 0) == 2:
            raise TypeError(
                f"X() returned {type(blocks).__name__}, not batches: pass a function without arguments that returns "
                "an iterator over arrays or CSR matrices, anew each time."
            )
        return (list(block) if isinstance(block, Iterator) else block for block in blocks)
