"""``stateat audit``: the invariants, checked over a recorded event log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from stateat.sim.cli.options import EXISTING, OUTPUT, check_outputs, console_on, exit_code, truth_options, write_json
from stateat.sim.errors import InputError


@click.command()
@click.argument("log", type=EXISTING)
@truth_options
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="The findings as JSON; - for stdout.")
@click.option("-v", "--verbose", is_flag=True, help="All findings.")
def audit(log: Path, truth: Mapping[str, str], json_path: Path | None, verbose: bool) -> None:
    """Check the invariants over a recorded event log; exit with 1 if a poison finding exists, or if it never ends, with
    2 when nothing was judged: the log has no claim and no hit whose state can be known.

    The truth is that of the log (digest, if it says none), unless --state and the others say otherwise.

    \b
    Example:
      stateat replay s02-anatomy --log run.jsonl; stateat audit run.jsonl
    """
    from stateat.sim.report.terminal.table import print_result
    from stateat.sim.run.simulate import audit as audit_log
    from stateat.sim.scenario.load import check_truth
    from stateat.sim.scenario.truth import DIGEST, changed

    if "state" in truth:
        check_truth(changed(DIGEST, truth))
    check_outputs({"--json": json_path}, [log])
    result = audit_log(log, truth)
    print_result(result, console_on(stderr=str(json_path) == "-"), verbose)
    write_json(json_path, [result])
    code = exit_code(result)
    if not (result.judged or code):
        raise InputError(f"{log}: nothing was judged: no claim and no hit of a state that its log tells of")
    sys.exit(code)
