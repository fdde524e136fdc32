"""What ``stateat explain`` says of other rule values: one search for each run, when it is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from sim.cli_options import console_on

if TYPE_CHECKING:
    from rich.console import Console

    from sim.events import Finding
    from sim.misses import Miss
    from sim.remedy import Search, Value
    from sim.result import Outcome
    from sim.scenario import Run


class Searches:
    """The searches of all runs."""

    def __init__(self, off: bool) -> None:
        self._off = off
        self._done: dict[tuple[str, str], Search] = {}

    def avoiding(self, run: Run, outcome: Outcome, finding: Finding) -> Sequence[Value] | None:
        """The rule values that avoid a finding of this run; None where nobody wants to know."""
        return None if self._off else self._search(run).avoiding(finding, outcome)

    def raising(self, run: Run, outcome: Outcome, miss: Miss) -> Mapping[Value, int] | None:
        """The rule values that give a request a hit, and its tokens; None where nobody wants to know."""
        return None if self._off else self._search(run).raising(miss.request, outcome)

    def _search(self, run: Run) -> Search:
        key = run.variant, run.case
        if key not in self._done:
            from sim.remedy import search
            from sim.report.progress import counting
            from sim.report.text import case_name

            name = case_name(*key)
            click.echo(f"{name}: trying the other rule values", err=True)
            with redirect_stdout(sys.stderr):
                self._done[key] = search(run, lambda values: counting(values, console_on(stderr=True), name))
        return self._done[key]

    def complete(self, run: Run) -> bool:
        """Whether all values were tried on it."""
        return self._off or self._done[run.variant, run.case].complete


def print_remedy(remedy: Sequence[Value] | None, complete: bool, console: Console) -> None:
    """The values that avoid a finding: those of releases, or else the others."""
    if remedy is not None:
        released = [value for value in remedy if value.releases != "no release"]
        _print("avoided by  ", [str(value) for value in released or remedy], complete, console)


def print_raised(raised: Mapping[Value, int] | None, complete: bool, console: Console) -> None:
    """The values that give a request a hit, with its tokens: those of releases, or else the others."""
    if raised is not None:
        released = [value for value in raised if value.releases != "no release"]
        _print("hit under  ", [f"{value}: {raised[value]:,}" for value in released or raised], complete, console)


def _print(label: str, values: Sequence[str], complete: bool, console: Console) -> None:
    from rich.text import Text

    from sim.report.lines import say

    text = ", ".join(values) or "no value of a single rule that is known"
    if not complete:
        text += "; the search stopped before all were tried: this run is long"
    say(console, Text(f"  {label}{text}"))


def values(remedy: Sequence[Value] | None) -> list[dict[str, Any]] | None:
    """The values that avoid a finding, as plain data."""
    return None if remedy is None else [_value(value) for value in remedy]


def hits(raised: Mapping[Value, int] | None) -> list[dict[str, Any]] | None:
    """The values that give a request a hit, as plain data."""
    return None if raised is None else [_value(value) | {"hit": tokens} for value, tokens in raised.items()]


def _value(value: Value) -> dict[str, Any]:
    return {"rule": value.rule, "value": value.name, "releases": value.releases}
