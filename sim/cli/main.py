"""The command line: parse, call, print. Machine output goes to stdout alone, progress and timings to stderr.

Exit codes: 0 as expected, 1 an expectation or an invariant failed, 2 bad usage or input (128 under ``--bisect``).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from stateat.sim.cli.group import Entry, Group

_HERE = "stateat.sim.cli"
SECTIONS = {
    "Run and check": {
        "replay": Entry(f"{_HERE}.replay:replay", "Run scenarios; print what was found in each variant."),
        "check": Entry(f"{_HERE}.check:check", "Compare scenarios with what they expect, for CI."),
    },
    "Explain": {
        "explain": Entry(f"{_HERE}.explain:explain", "Tell why a slot is poisoned, or why nothing is hit."),
    },
    "Explore": {
        "sweep": Entry(f"{_HERE}.sweep:sweep", "Run a scenario at many points, under many seeds."),
    },
    "Your server": {
        "geometry": Entry(f"{_HERE}.geometry:geometry", "Derive block sizes and bytes of a hybrid model."),
        "audit": Entry(f"{_HERE}.audit:audit", "Check the invariants over a recorded event log."),
    },
    "Engines": {
        "vllm": Entry(f"{_HERE}.vllm:vllm", "Install and list releases of vLLM as engines."),
        "conform": Entry(f"{_HERE}.conform:conform", "Compare an engine with decisions of real releases."),
        "doctor": Entry(f"{_HERE}.doctor:doctor", "Say what is installed, and what is missing."),
    },
    "Files": {
        "list": Entry(f"{_HERE}.files:list_scenarios", "List scenario files, and what each says of itself."),
        "new": Entry(f"{_HERE}.files:new", "Write a scenario file to start from."),
        "schema": Entry(f"{_HERE}.files:schema", "Print the JSON Schema of scenario files."),
    },
}
"""All commands, under what people come for."""


@click.group(
    cls=Group, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
<<<<<<< HEAD
=======
from stateat.sim.cli.options import exit_code as exit_code_of
from stateat.sim.cli.replay import replay
from stateat.sim.cli.streams import NOBODY, fill, lost, standard
from stateat.sim.cli.sweep import sweep
from stateat.sim.cli.watch import watched
from stateat.sim.errors import STOP, InputError, StateatError, exit_code
from stateat.sim.printable import printable, readable_stderr
from stateat.sim.signals import INTERRUPTED, last, raising

if TYPE_CHECKING:
    from stateat.sim.run.engine import Make


class _Group(click.Group):
    """Prints our errors as one message, without a traceback, and knows near misses."""

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
        from difflib import get_close_matches

        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.commands, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
>>>>>>> main
@click.version_option(package_name="stateat", message="%(prog)s %(version)s")
def main() -> None:
    """Does every cached recurrent state sit at the offset that its hash claims?

    Replays scenarios on a deterministic scheduler with a real block-hash prefix cache, and checks each hashed slot
    against the true recurrent state. A scenario is a file, or the name of one that comes with stateat (stateat list).

    \b
    Example:
      stateat replay s02-anatomy
    """
    # A user's rule (module:Class) may lie in the current folder; after our own packages, so that it hides none.
    with suppress(OSError):
        sys.path.append(os.getcwd())
