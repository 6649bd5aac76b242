"""What a child tells its parent as it goes, in memory that both share: it can be read when the child is dead."""

from __future__ import annotations

import mmap
import struct
import time
from typing import NamedTuple

NOTE = 16_000
"""Bytes for what a case is doing."""

_board: Board | None = None


def post(board: Board) -> None:
    """Use this board from now on, in a child."""
    global _board
    _board = board


def note(text: str) -> None:
    """Tell the parent what the case at hand is doing, in case that it ends the process."""
    if _board is not None:
        _board.write(text)


def accept() -> None:
    """Tell the parent that the package has taken the case at hand, and not refused it."""
    if _board is not None:
        _board.accept()


class State(NamedTuple):
    """How far a child is: the case at hand, since when it runs, and how many cases were taken so far."""

    number: int
    began: float
    taken: int


class Board:
    """Memory that a child shares with its parent: how far it is, and what it is doing."""

    STATE, LENGTH, START = "qdq", 24, 32  # the state, the length of the note, the note

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, self.START + NOTE)
        self.taken_before = 0
        self.begin(0)

    def begin(self, number: int) -> None:
        """A case begins."""
        self.taken_before = self.state().taken
        struct.pack_into(self.STATE, self.memory, 0, number, time.monotonic(), self.taken_before)
        self.write("")

    def accept(self) -> None:
        """The case was taken."""
        number, began, _ = self.state()
        struct.pack_into(self.STATE, self.memory, 0, number, began, self.taken_before + 1)

    def write(self, text: str) -> None:
        """Keep what the case is doing."""
        data = text.encode("utf-8", "replace")[:NOTE]
        self.memory[self.START : self.START + len(data)] = data
        struct.pack_into("q", self.memory, self.LENGTH, len(data))

    def state(self) -> State:
        """How far the child is."""
        return State(*struct.unpack_from(self.STATE, self.memory, 0))

    def note(self) -> str:
        """What the case is doing."""
        (length,) = struct.unpack_from("q", self.memory, self.LENGTH)
        return self.memory[self.START : self.START + length].decode("utf-8", "replace")
