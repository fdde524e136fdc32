"""``stateat conform``: the reference engine, or a live one, against recorded decisions of real releases."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stateat.sim.cli.options import (
    EXISTING,
    OUTPUT,
    check_outputs,
    console_on,
    engine_options,
    fleet_of,
    write_text_or_stdout,
)
from stateat.sim.errors import InputError
from stateat.sim.printable import printable

if TYPE_CHECKING:
    from stateat.sim.run.engine import Make


@click.command()
@click.argument("files", nargs=-1, required=True, type=EXISTING)
@click.option("--release", "releases", multiple=True, metavar="X.Y.Z", help="Only this release (repeatable).")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Show both sides of this step.")
@engine_options
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="All results as JSON; - for stdout.")
def conform(
    files: Sequence[Path],
    releases: Sequence[str],
    step: int | None,
    engines: Sequence[str],
    vllm_python: str | None,
    json_path: Path | None,
) -> None:
    """Compare the reference engine with recorded decisions of real vLLM releases.

    FILES are recordings (engine-golden/1, .json or .json.gz). Each is run under the preset of each recorded release;
    chunks, hits, preemptions, claims, evictions, copies, what is poisoned and free blocks must be equal. Exits with 1
    when something diverges.

    With --engine vllm each is run on its own release instead, live; a live engine that is named meets the recordings
    of its own release, or those of --release. A checkout meets those of the release that it says it comes from, and the
    table says which engine it is; it exits with 2 where an engine fails.

    \b
    Examples:
      stateat conform ../shared/golden/*.json.gz
      stateat conform ../shared/golden/leftover-da.json.gz --release 0.27.0 --step 5
      stateat conform ../shared/golden/*.json.gz --engine vllm:0.27.0
    """
    from stateat.sim.conformance.compare import compare, run, to_json
    from stateat.sim.conformance.recording import read
    from stateat.sim.report.terminal.conformance import print_conformance, print_step
    from stateat.sim.report.terminal.progress import Progress

    check_outputs({"--json": json_path}, files)
    if step is not None and json_path is not None:
        raise InputError("--step shows one step and --json writes all results: name one of them")
    console = console_on(stderr=str(json_path) == "-")
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_of(engines, vllm_python))
        if len(fleet.specs) > 1:
            raise InputError("--engine: conform compares one engine with the recordings; name one")
        named = fleet.live and (fleet.specs[0] != "vllm" or vllm_python is not None)
        engine = "vllm" if fleet.live else ""
        if named:
            asked, _ = fleet.of("")
            engine = asked.label
            if not releases:
                releases = [fleet.says(asked)]
                if not releases[0]:
                    raise InputError(f"--engine {asked.spec}: does not say which release it comes from; name --release")
        recordings = [recording for file in files for recording in read(file, releases)]
        there = {recording.release for recording in recordings}
        if missing := [release for release in releases if release not in there]:
            raise InputError(f"{', '.join(map(str, files[:3]))}: no recording of {', '.join(missing)}")

        def make(release: str) -> Make | None:
            return fleet.of(f"vllm-{release}")[1] if fleet.live else None

        if step is not None:
            for recording in recordings:
                if recording.result["status"] != "ok":
                    click.echo(printable(f"{recording.scenario} {recording.release}: {recording.result['status']}"))
                else:
                    ours, _ = run(recording, True, f"vllm-{recording.release}", make(recording.release))
                    print_step(recording, ours, step, console)
            return
        results = []
        with Progress("conform") as progress:
            for i, recording in enumerate(recordings):
                progress.count(i, len(recordings), "recording")
                results.append(compare(recording, make=make(recording.release)))
    print_conformance(results, console, engine)
    if json_path is not None:
        write_text_or_stdout(json_path, json.dumps(to_json(results, engine), indent=2) + "\n")
    statuses = {result.status for result in results}
    sys.exit(2 if "error" in statuses else 1 if "divergent" in statuses else 0)
