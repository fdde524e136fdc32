"""``stateat check``: every scenario's expectations, for whoever keeps a CI."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim.cli_options import (
    EXISTING,
    check_outputs,
    console_on,
    engine_options,
    failed,
    fleet_of,
    not_compared,
    truth_options,
    write_json,
)
from sim.errors import InputError, MissingError, StateatError
from sim.files import write_text

if TYPE_CHECKING:
    from sim.adapters.vllm.fleet import Fleet
    from sim.result import Result
    from sim.scenario import Scenario


@click.command()
@click.argument("paths", nargs=-1, type=EXISTING)
@click.option("--junit", type=EXISTING, metavar="FILE", help="JUnit XML, a test case for each variant.")
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="All results as JSON; - for stdout.")
@truth_options
@engine_options
def check(
    paths: Sequence[Path],
    junit: Path | None,
    json_path: Path | None,
    truth: Mapping[str, str],
    engines: Sequence[str],
    vllm_python: Path | None,
) -> None:
    """Run every scenario's expectations; exit with 1 when one fails.

    PATHS are files and folders (default: scenarios). A file that starts with a line `# expect: TEXT` must be refused
    with a message that holds TEXT. Of several files the last line tells how many came to what.

    \b
    Example:
      stateat check scenarios/ --junit report.xml
    """
    from sim.catalog import refusal, scenario_files
    from sim.report.junit import to_junit
    from sim.report.progress import counting
    from sim.report.verdict import print_expectations, print_sum
    from sim.scenario import load
    from sim.workload.files import NotShared

    files = scenario_files(paths or (Path("scenarios"),))
    check_outputs({"--junit": junit, "--json": json_path}, files)
    console = console_on(stderr=str(json_path) == "-")
    results: list[Result] = []
    heard: list[Result] = []
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    read: list[Path] = []
    skipped, exit_code = 0, 0
    fleet = click.get_current_context().with_resource(fleet_of(engines, vllm_python))
    for file in counting(files, console, "check"):
        started = time.perf_counter()
        try:
            wanted = refusal(file)
            if wanted is not None:
                result = _refused(file, wanted)
            else:
                scenario = load(file)
                read += scenario.inputs
                result = _expected(scenario, truth, fleet)
        except NotShared as error:
            click.echo(f"skip {file}: {error}", err=True)
            skipped += 1
            continue
        except MissingError as error:
            if truth:
                raise
            # What the file itself asks for, and is not here.
            click.echo(f"skip {file}: {error}", err=True)
            skipped += 1
            continue
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            exit_code = error.exit_code
            refused[str(file)] = str(error)
            continue
        seconds[str(file)] = time.perf_counter() - started
        heard.append(result)
        if wanted is None:
            results.append(result)
        if failed(result):
            exit_code = exit_code or 1
        print_expectations(result, seconds[str(file)], console)
    if len(files) > 1:
        print_sum(heard, len(files), skipped, console)
    check_outputs({"--junit": junit, "--json": json_path}, read)
    if junit is not None:
        write_text(junit, to_junit(heard, seconds, refused), "--junit")
    write_json(json_path, results)
    sys.exit(exit_code)


def _expected(scenario: Scenario, truth: Mapping[str, str], fleet: Fleet) -> Result:
    """A scenario's outcome, after what its release would say of its configuration."""
    from sim.scenario import warned
    from sim.simulate import replay as run_all
    from sim.simulate import simulate

    not_compared(scenario, truth)
    for text in warned(scenario.expanded):
        click.echo(f"warning: {text}", err=True)
    return run_all(scenario, truth=truth, run_one=lambda run: simulate(run, make=fleet.maker(run)), spread=fleet.spread)


def _refused(file: Path, wanted: Sequence[str]) -> Result:
    """The outcome of a file that must be refused."""
    from sim.catalog import whole
    from sim.result import Failure, Outcome, Result

    try:
        whole(file)
        message = "nothing: the file is accepted"
    except InputError as error:
        message = str(error)
    failures = [Failure("refused", "", "message", text, message) for text in wanted if text not in message]
    outcome = Outcome("refused", "", (), {})
    return Result(file.stem, "", "", str(file), "us", {"refused": outcome}, tuple(failures), True)
