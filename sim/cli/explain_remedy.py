"""Remedies in ``stateat explain``, other rule values: one search for each run, when it is first asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stateat.sim.printable import plural

if TYPE_CHECKING:
    from rich.console import Console

    from stateat.sim.events import Finding
    from stateat.sim.explain.misses import Miss
    from stateat.sim.explain.remedy import RuleValue, Search
    from stateat.sim.run.result import Outcome
    from stateat.sim.scenario.load import Run


class Searches:
    """The searches of all runs."""

    def __init__(self, off: bool) -> None:
        self._off = off
        self._done: dict[tuple[str, str], Search] = {}

    def avoiding(self, run: Run, outcome: Outcome, finding: Finding) -> Sequence[RuleValue] | None:
        """The rule values that avoid a finding of this run; None where nobody wants to know."""
        return None if self._off else self._search(run).avoiding(finding, outcome)

    def raising(self, run: Run, outcome: Outcome, miss: Miss) -> Mapping[RuleValue, int] | None:
        """The rule values that give a request a hit, and its tokens; None where nobody wants to know."""
        return None if self._off else self._search(run).raising(miss.request, outcome)

    def note(self, run: Run, found: Collection[RuleValue] | None) -> str:
        """Return a note that the search of this run was cut short; '' where it was not."""
        if found is None or not (left := self._search(run).untried(found)):
            return ""
        return f"; the search stopped with {plural(left, 'value')} left to try"

    def _search(self, run: Run) -> Search:
        key = run.variant, run.case
        if key not in self._done:
            from stateat.sim.explain.remedy import Search
            from stateat.sim.report.words.failures import case_name

            self._done[key] = Search(run, lambda values: _counted(values, case_name(*key)))
        return self._done[key]


def _counted(values: Sequence[RuleValue], name: str) -> Iterator[RuleValue]:
    """Yield one by one, with how far it is on stderr."""
    from stateat.sim.report.terminal.progress import Progress

    with Progress(f"{name}: trying other rule values") as progress:
        for i, value in enumerate(values):
            progress.count(i, len(values), "value")
            yield value


def print_remedy(remedy: Sequence[RuleValue] | None, note: str, console: Console) -> None:
    """The values that avoid a finding."""
    if remedy is not None:
        _print("avoided by  ", list(map(str, remedy)), note, console)


def print_raised(raised: Mapping[RuleValue, int] | None, note: str, console: Console) -> None:
    """The values that give a request a hit, with its tokens."""
    if raised is not None:
        _print("hit under  ", [f"{value}: {tokens:,}" for value, tokens in raised.items()], note, console)


def _print(label: str, values: Sequence[str], note: str, console: Console) -> None:
    from rich.text import Text

    from stateat.sim.report.terminal.lines import say

    text = ", ".join(values) or "no value of a single rule that is known"
    say(console, Text(f"  {label}{text}{note}"))


def values(remedy: Sequence[RuleValue] | None) -> list[dict[str, Any]] | None:
    """The values that avoid a finding, as plain data."""
    return None if remedy is None else [_value(value) for value in remedy]


def hits(raised: Mapping[RuleValue, int] | None) -> list[dict[str, Any]] | None:
    """The values that give a request a hit, as plain data."""
    return None if raised is None else [_value(value) | {"hit": tokens} for value, tokens in raised.items()]


def _value(value: RuleValue) -> dict[str, Any]:
    return {"rule": value.rule, "value": value.name, "releases": value.releases}
