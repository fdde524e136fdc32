"""``stateat check``: every scenario's expectations, for whoever keeps a CI."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stateat.sim.cli.options import (
    OUTPUT,
    SCENARIO,
    check_outputs,
    code_option,
    console_on,
    engine_options,
    exit_code,
    fleet_of,
    not_compared,
    truth_options,
    write_json,
)
from stateat.sim.errors import STOP, EngineError, InputError, MissingError, StateatError
from stateat.sim.files import write_text

if TYPE_CHECKING:
    from stateat.sim.adapters.vllm.fleet import Fleet
    from stateat.sim.run.result import Result
    from stateat.sim.scenario.load import Scenario


SKIP = 125
"""Exit code by which git bisect is told that a commit cannot be judged."""


@dataclass(slots=True)
class _Sum:
    """Results of the files of a check."""

    heard: list[Result] = field(default_factory=list)
    written: list[Result] = field(default_factory=list)
    """Results for the JSON: those of scenarios that are to run."""
    seconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Reasons, by file, why it has no result."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Needs, by file, that are not here."""

    @property
    def judged(self) -> bool:
        """True if anything was: a check of which all is skipped, or compared with nothing, proves nothing."""
        return any(result.judged for result in self.heard)

    @property
    def worst(self) -> int:
        """The worst exit code of its files: 2 could not be run, 1 not as expected, 0."""
        return max([2 if self.refused else 0, *(exit_code(result, skipping=True) for result in self.heard)])

    def bisect_code(self) -> int:
        """Return the code for git bisect: 1 for a bad commit, 0 for a good one, 125 for one that cannot be judged."""
        without = [each for result in self.heard for each in result.not_run if not each.skipped]
        if any(each.below for each in without):
            # All that is wrong would look new.
            return STOP
        if any(exit_code(replace(result, not_run=())) for result in self.heard):
            return 1
        if self.refused or not all(isinstance(each.error, EngineError) for each in without):
            return STOP
        return SKIP if without or not self.judged else 0


@click.command()
@click.argument("paths", nargs=-1, type=SCENARIO)
@click.option("--junit", type=OUTPUT, metavar="FILE", help="JUnit XML, a test case for each variant.")
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="All results as JSON; - for stdout.")
@code_option
@truth_options
@engine_options
@click.option(
    "--baseline",
    default="",
    metavar="ENGINE",
    help="Fail only on what is new against this engine, by variant, case and finding: what it shows too is told as "
    "'also in the baseline'. What the file expects of it is expected of --engine. vllm is each variant's release.",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="Exit for git bisect run: 125 (skip) where the engine cannot start or cannot be judged, 128 (give up) for bad "
    "usage or input.",
)
def check(
    paths: Sequence[Path],
    junit: Path | None,
    json_path: Path | None,
    allow_code: bool,
    truth: Mapping[str, str],
    engines: Sequence[str],
    vllm_python: str | None,
    baseline: str,
    bisect: bool,
) -> None:
    """Run every scenario's expectations; exit with 1 when one fails, with 2 when something could not be run, or when
    nothing was judged.

    PATHS are files and folders, or names of stateat's own (default: the folder scenarios here). A file that starts with
    a line `# expect: TEXT` must be refused with a message that holds TEXT. Of several files the last line tells how
    many came to what. What a release cannot express is skipped, with the reason.

    \b
    Examples:
      stateat check seeds --junit report.xml
      stateat check mine.yaml --engine vllm:../vllm --baseline vllm:0.27.0
      git bisect run stateat check mine.yaml --engine vllm:. --bisect
    """
    try:
        total = _check(paths, junit, json_path, allow_code, truth, engines, vllm_python, baseline)
    except EngineError as error:
        if not bisect:
            raise
        click.echo(f"stateat: {error}", err=True)
        sys.exit(SKIP)
    if bisect:
        sys.exit(total.bisect_code())
    if not (total.judged or total.worst):
        raise InputError("nothing was judged: all was skipped, or is compared with nothing")
    sys.exit(total.worst)


def _check(
    paths: Sequence[Path],
    junit: Path | None,
    json_path: Path | None,
    allow_code: bool,
    truth: Mapping[str, str],
    engines: Sequence[str],
    vllm_python: str | None,
    baseline: str,
) -> _Sum:
    from stateat.sim.report.machine.junit import to_junit
    from stateat.sim.report.terminal.progress import counting
    from stateat.sim.report.terminal.verdict import print_expectations, print_sum
    from stateat.sim.scenario.catalog import refusal, scenario_files
    from stateat.sim.scenario.load import load

    if not paths and not Path("scenarios").exists():
        raise InputError("scenarios: no such folder here, allowed files and folders, or names such as seeds")
    files = scenario_files(paths or (Path("scenarios"),))
    check_outputs({"--junit": junit, "--json": json_path}, files)
    console = console_on(stderr=str(json_path) == "-")
    total = _Sum()
    read: list[Path] = []
    if baseline and not engines and vllm_python is None:
        raise InputError("--baseline: found no --engine, allowed with the engine that is compared with it")
    fleet = click.get_current_context().with_resource(fleet_of(engines, vllm_python, baseline))
    for file in counting(files, console, "check"):
        started = time.perf_counter()
        try:
            wanted = refusal(file)
            if wanted is not None:
                result = _refused(file, wanted, allow_code)
            else:
                scenario = load(file, allow_code)
                read += scenario.inputs
                result = _expected(scenario, truth, fleet)
        except MissingError as error:
            # What the file itself asks for, and is not here.
            click.echo(f"skip {file}: {error}", err=True)
            total.skipped[str(file)] = str(error)
            continue
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            total.refused[str(file)] = str(error)
            continue
        if truth:
            # What the command line asks for has to be here.
            _raise_missing(result)
        total.seconds[str(file)] = time.perf_counter() - started
        total.heard.append(result)
        if wanted is None:
            total.written.append(result)
        print_expectations(result, total.seconds[str(file)], console)
    if len(files) > 1:
        print_sum(total.heard, len(files), len(total.skipped), console)
    check_outputs({"--junit": junit, "--json": json_path}, read)
    if junit is not None:
        write_text(junit, to_junit(total.heard, total.seconds, total.refused, total.skipped), "--junit")
    write_json(json_path, total.written)
    return total


def _raise_missing(result: Result) -> None:
    from stateat.sim.workload.files import NotShared

    for each in result.not_run:
        if isinstance(each.error, MissingError) and not isinstance(each.error, NotShared):
            raise each.error


def _expected(scenario: Scenario, truth: Mapping[str, str], fleet: Fleet) -> Result:
    """A scenario's outcome, after what its release would say of its configuration."""
    from stateat.sim.run.simulate import replay as run_all
    from stateat.sim.run.simulate import simulate
    from stateat.sim.scenario.load import warned

    not_compared(scenario, truth)
    for text in warned(scenario.expanded):
        click.echo(f"warning: {text}", err=True)
    return run_all(
        scenario,
        truth=truth,
        run_one=lambda run: simulate(run, make=fleet.maker(run)),
        spread=fleet.spread,
        below=fleet.below if fleet.baseline else None,
        baseline=fleet.baseline,
    )


def _refused(file: Path, wanted: Sequence[str], allow_code: bool) -> Result:
    """The outcome of a file that must be refused."""
    from stateat.sim.run.result import Failure, Outcome, Result
    from stateat.sim.scenario.catalog import whole

    try:
        whole(file, allow_code)
        message = "nothing: the file is accepted"
    except InputError as error:
        message = str(error)
    failures = [Failure("refused", "", "message", text, message) for text in wanted if text not in message]
    outcome = Outcome("refused", "", (), {})
    return Result(file.stem, "", "", str(file), "us", {"refused": outcome}, tuple(failures), True)
