"""The group of all commands: loads a command when it is called, prints errors as one message, and ends as told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

from stateat.sim.cli.streams import NOBODY, fill, lost, standard
from stateat.sim.cli.watch import watched
from stateat.sim.errors import STOP, StateatError, exit_code
from stateat.sim.printable import readable_stderr
from stateat.sim.signals import INTERRUPTED, last, raising


class LazyCommand(NamedTuple):
    """A command that is not loaded yet."""

    place: str
    """``module:attribute``."""
    help: str
    """One line of the list of commands."""


class CommandGroup(click.Group):
    """Commands under headings, each loaded when it is called; our errors as one message, and near misses of names."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, LazyCommand]], **more: Any) -> None:
        super().__init__(**more)
        self.sections = sections
        self.entries = {name: entry for entries in sections.values() for name, entry in entries.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in entries.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        # To git bisect 1 and 2 would be a bad commit, whose fault it is not.
        bisecting = any(each.partition("=")[0] == "--bisect" for each in given)
        unusable = STOP if bisecting else 2
        fill()
        try:
            with watched(given, unusable), standard(), raising(), readable_stderr():
                try:
                    return super().main(args, *rest, **extra)
                except SystemExit as end:
                    gone = lost(sys.stdout)
                    if gone is not None and gone.errno not in NOBODY and end.code in (0, 1, None):
                        click.echo(f"stateat: standard output: {gone.strerror or gone}", err=True)
                    elif end.code != 2:
                        raise
                sys.exit(unusable)
        except Exception:
            if not bisecting:
                raise
            from traceback import print_exc

            print_exc()
            sys.exit(unusable)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            where = "cannot write" if error.filename is None else os.fspath(error.filename)
            click.echo(f"stateat: {where}: {error.strerror or error}", err=True)
            ctx.exit(2)
        except MemoryError:
            click.echo("stateat: there is not enough memory for this", err=True)
            ctx.exit(2)
        except KeyboardInterrupt as interrupt:
            _interrupted(ctx, interrupt)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception:
            # A library may have made something else of a signal.
            if (signal := last()) is None:
                raise
            _interrupted(ctx, signal)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.entries, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def _interrupted(ctx: click.Context, interrupt: KeyboardInterrupt) -> NoReturn:
    click.echo(INTERRUPTED, err=True)
    ctx.exit(exit_code(interrupt))
