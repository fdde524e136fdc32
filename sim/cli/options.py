"""Parts that several commands share: their options, what they may write, and how they print."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateat.sim.cli.streams import lost
from stateat.sim.errors import InputError
from stateat.sim.files import check_apart, check_writable, write_text

if TYPE_CHECKING:
    from rich.console import Console

    from stateat.sim.adapters.vllm.fleet import Fleet
    from stateat.sim.run.result import Result
    from stateat.sim.scenario.load import Scenario

EXISTING = click.Path(path_type=Path)


class _Output(click.Path):
    """A file to write: in the folder in which the command was given, wherever a user's rule goes meanwhile."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        return path if str(path) == "-" else path.absolute()


class _Scenario(click.Path):
    """A scenario file or a folder of them: a path, or the name of what comes with stateat."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from stateat.sim.scenario.shipped import named

        return named(Path(os.fsdecode(super().convert(value, param, ctx))))


OUTPUT = _Output(path_type=Path)
SCENARIO = _Scenario(path_type=Path)
code_option = click.option(
    "--allow-code",
    is_flag=True,
    envvar="STATEAT_ALLOW_CODE",
    help="Files may name rules as module:Class, which are imported and run (or STATEAT_ALLOW_CODE=1).",
)
ENGINES: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--engine",
        "engines",
        multiple=True,
        metavar="ENGINE",
        help="reference, vllm (each variant's release; each recording's in conform), vllm:RELEASE or vllm:FOLDER (a "
        "checkout, called by its folder and commit). replay and check take several.",
    ),
    click.option(
        "--vllm-python",
        metavar="PROGRAM",
        help="A Python that has vLLM, as the engine: a path, or without a / a program on PATH.",
    ),
)


TRUTH: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--state",
        metavar="FAMILY",
        help="The oracle's state family, with a model's widths behind a colon: gated-delta:qwen3-next (default: the "
        "file's; digest).",
    ),
    click.option("--state-dtype", metavar="DTYPE", help="float32, bfloat16 or float16: how states are stored."),
    click.option("--backend", metavar="NAME", help="auto, triton, torch or numpy: what computes states."),
    click.option("--device", metavar="NAME", help="auto, cpu or cuda: where."),
)


def truth_options(command: Any) -> Any:
    """The options that say what the oracle computes with; the command takes them as one mapping."""

    @functools.wraps(command)
    def run(
        *args: Any, state: str | None, state_dtype: str | None, backend: str | None, device: str | None, **more: Any
    ) -> Any:
        from stateat.kernels.families import BACKENDS, DEVICES, DTYPES

        given = {"state": state, "dtype": state_dtype, "backend": backend, "device": device}
        truth = {key: value for key, value in given.items() if value is not None}
        for key, flag, names in (
            ("dtype", "--state-dtype", DTYPES),
            ("backend", "--backend", BACKENDS),
            ("device", "--device", DEVICES),
        ):
            if key in truth and truth[key] not in names:
                from stateat.sim.schema import choice

                raise InputError(f"{flag}: {choice(truth[key], names)}")
        return command(*args, truth=truth, **more)

    for option in reversed(TRUTH):
        run = option(run)
    return run


def engine_options(command: Any) -> Any:
    """The options that choose engines."""
    for option in reversed(ENGINES):
        command = option(command)
    return command


def not_compared(scenario: Scenario, truth: Mapping[str, str]) -> None:
    """Say which expectations are about other states than those that the command line asks for."""
    from stateat.sim.scenario.expectations import MEASURED

    expects = [run.expect or {} for run in scenario.expanded]
    parts = [part for expect in expects for part in (expect, *(expect.get("cases") or {}).values())]
    keys = [key for key in MEASURED if any(part.get(key) is not None for part in parts)]
    if truth and keys:
        text = f"{scenario.path}: not compared, since they are expected of the file's own states: {', '.join(keys)}"
        click.echo(f"note: {text}", err=True)


def fleet_of(engines: Sequence[str], python: str | None, baseline: str = "") -> Fleet:
    from stateat.sim.adapters.vllm.fleet import Fleet

    return Fleet(engines, python, baseline=baseline, warn=lambda text: click.echo(f"warning: {text}", err=True))


def rules_table(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``--rule name=value`` as a table."""
    table: dict[str, str] = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise click.BadParameter(f"found {text!r}, allowed is NAME=VALUE (for example split=prefill-end)")
        if name in table:
            raise click.BadParameter(f"found {name} twice, allowed once")
        table[name] = value
    return table


def check_outputs(paths: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are an input."""
    outputs = {what: path for what, path in paths.items() if path is not None and (what, str(path)) != ("--json", "-")}
    for what, path in outputs.items():
        check_writable(path, what)
    check_apart(outputs, inputs)


def console_on(stderr: bool = False) -> Console:
    from rich.console import Console

    from stateat.sim.report.terminal.lines import Printable

    console = Console(stderr=stderr, highlight=False)
    console.push_render_hook(Printable())
    return console


def terminal_width() -> int | None:
    """Columns of the terminal that standard error goes to; None: a pipe."""
    console = console_on(stderr=True)
    return console.width if console.is_terminal else None


def timings(result: Result) -> None:
    from stateat.sim.printable import plural

    seconds = sum(outcome.wall_s for outcome in result.variants.values())
    click.echo(f"{result.scenario}: {plural(len(result.variants), 'variant')} in {seconds:.1f} s", err=True)


def write_json(path: Path | None, results: Sequence[Result]) -> None:
    if path is None:
        return
    from stateat.sim.report.machine.json import dumps

    write_text_or_stdout(path, dumps(results[0] if len(results) == 1 else results))


def write_text_or_stdout(path: Path, text: str) -> None:
    if str(path) != "-":
        write_text(path, text, "--json")
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(text)
    sys.stdout.flush()
    # A machine waits for the whole of it.
    if (gone := lost(sys.stdout)) is not None:
        raise InputError(f"standard output: {gone.strerror or gone}")


def exit_code(result: Result, skipping: bool = False) -> int:
    """Return the worst of what a result came to: 2 something has no outcome, 1 not as expected, 0.

    ``skipping``: what an engine cannot express, and what needs something that is not here, is passed over.
    """
    if any(not (skipping and each.skipped) for each in result.not_run):
        return 2
    return int(bool(result.failed_expectations or result.wrong_where_silent))
