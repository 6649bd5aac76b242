"""The command line. It parses arguments, calls the library and prints the results; it does no mathematics."""

from onmf.kinds import KINDS, get_kind

from . import command, edit, find, models, reproduce, update
from .common import app, main

for name in KINDS:
    if get_kind(name).command is not None:
        command.add_command(get_kind(name))
models.add_predict()
update.add_update()

__all__ = ["app", "command", "edit", "find", "main", "models", "reproduce", "update"]
