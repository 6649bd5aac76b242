"""Shared memory through which a child reports its progress; the parent can read it after the child has died."""

from __future__ import annotations

import mmap
import struct
import time
from typing import NamedTuple

NOTE = 16_000
"""Most bytes of the note about the current case."""

_board: Board | None = None


def post(board: Board) -> None:
    """Use this board from now on; called in a child."""
    global _board
    _board = board


def note(text: str) -> None:
    """Tell the parent what the current case is doing, in case it kills the process."""
    if _board is not None:
        _board.write(text)


def accept() -> None:
    """Tell the parent that the package accepted the current case."""
    if _board is not None:
        _board.accept()


class State(NamedTuple):
    """Progress of a child: the current case, its start time, and the number of cases accepted so far."""

    number: int
    began: float
    taken: int


class Board:
    """Memory that a child shares with its parent: its progress, and a note about the current case."""

    STATE, LENGTH, START = "qdq", 24, 32  # format of the state, offset of the length of the note, offset of the note

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, self.START + NOTE)
        self.taken_before = 0
        self.begin(0)

    def begin(self, number: int) -> None:
        """Start a case."""
        self.taken_before = self.state().taken
        struct.pack_into(self.STATE, self.memory, 0, number, time.monotonic(), self.taken_before)
        self.write("")

    def accept(self) -> None:
        """Mark the current case as accepted."""
        number, began, _ = self.state()
        struct.pack_into(self.STATE, self.memory, 0, number, began, self.taken_before + 1)

    def write(self, text: str) -> None:
        """Store the note about the current case."""
        data = text.encode("utf-8", "replace")[:NOTE]
        self.memory[self.START : self.START + len(data)] = data
        struct.pack_into("q", self.memory, self.LENGTH, len(data))

    def state(self) -> State:
        """Return the progress of the child."""
        return State(*struct.unpack_from(self.STATE, self.memory, 0))

    def note(self) -> str:
        """Return the note about the current case."""
        (length,) = struct.unpack_from("q", self.memory, self.LENGTH)
        return self.memory[self.START : self.START + length].decode("utf-8", "replace")
