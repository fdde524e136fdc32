"""The command line: parse, call, print. Machine output goes to stdout alone, progress and timings to stderr.

Exit codes: 0 as expected, 1 an expectation or an invariant failed, 2 bad usage or input (128 under ``--bisect``).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import click

from stateat.sim.cli.group import CommandGroup, LazyCommand

_HERE = "stateat.sim.cli"
SECTIONS = {
    "Run and check": {
        "replay": LazyCommand(f"{_HERE}.replay:replay", "Run scenarios; print what was found in each variant."),
        "check": LazyCommand(f"{_HERE}.check:check", "Compare scenarios with what they expect, for CI."),
    },
    "Explain": {
        "explain": LazyCommand(f"{_HERE}.explain:explain", "Tell why a slot is poisoned, or why nothing is hit."),
    },
    "Explore": {
        "sweep": LazyCommand(f"{_HERE}.sweep:sweep", "Run a scenario at many points, under many seeds."),
    },
    "Your server": {
        "geometry": LazyCommand(f"{_HERE}.geometry:geometry", "Derive block sizes and bytes of a hybrid model."),
        "audit": LazyCommand(f"{_HERE}.audit:audit", "Check the invariants over a recorded event log."),
    },
    "Engines": {
        "vllm": LazyCommand(f"{_HERE}.vllm:vllm", "Install and list releases of vLLM as engines."),
        "conform": LazyCommand(f"{_HERE}.conform:conform", "Compare an engine with decisions of real releases."),
        "doctor": LazyCommand(f"{_HERE}.doctor:doctor", "Say what is installed, and what is missing."),
    },
    "Files": {
        "list": LazyCommand(f"{_HERE}.files:list_scenarios", "List scenario files, and what each says of itself."),
        "new": LazyCommand(f"{_HERE}.files:new", "Write a scenario file to start from."),
        "schema": LazyCommand(f"{_HERE}.files:schema", "Print the JSON Schema of scenario files."),
    },
}
"""All commands, under what people come for."""


@click.group(
    cls=CommandGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
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
