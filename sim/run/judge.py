"""Results of a scenario, from its runs: outcomes by variant, what failed, and what could not be run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stateat.sim.errors import EngineError, InputError, PolicyError, StateatError
from stateat.sim.run.baseline import against
from stateat.sim.run.expect import compare, compares
from stateat.sim.run.result import Failure, NotRun, Outcome, Result
from stateat.sim.scenario.load import Run, Scenario

Sum = Callable[[Mapping[str, Outcome]], Outcome]
"""A variant's outcome from those of its cases."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of the file, that run on an engine, and what came of it."""

    asked: Run
    on: Run
    came: Outcome | StateatError

    @property
    def not_run(self) -> NotRun | None:
        if not isinstance(self.came, StateatError):
            return None
        return NotRun(self.on.variant, self.on.case, self.came, self.on.engine)


def attempt(simulate: Callable[[Run], Outcome], run: Run) -> Outcome | StateatError:
    """A run's outcome, or why it cannot be run: that is its own affair and not the others'."""
    try:
        return simulate(run)
    except (InputError, PolicyError, EngineError) as error:
        return error


def check_apart(where: Path, runs: Sequence[Run]) -> None:
    """Raises InputError where two runs would be called the same, as a variant ``x@vllm:0.27.0`` beside x on that."""
    seen = set()
    for run in runs:
        if (run.variant, run.case) in seen:
            raise InputError(
                f"{where}: two runs would be called {run.name}; rename the variant, or name another engine"
            )
        seen.add((run.variant, run.case))


def together(ran: Sequence[tuple[str, str, Outcome]], sum_of: Sum) -> dict[str, Outcome]:
    """The outcome of each variant from (variant, case, outcome); that of several cases is their sum."""
    cases: dict[str, dict[str, Outcome]] = {}
    for variant, case, outcome in ran:
        cases.setdefault(variant, {})[case] = outcome
    return {name: found[""] if list(found) == [""] else sum_of(found) for name, found in cases.items()}


def judged(
    scenario: Scenario, ran: Sequence[Ran], bases: Sequence[Ran], baseline: str, sum_of: Sum, *, measured: bool
) -> Result:
    """A scenario's result. ``bases``: its runs on the engine called ``baseline``, which nothing fails that is there."""
    outcomes = _outcomes(ran, sum_of)
    not_run = [each for one in ran if (each := one.not_run) is not None]
    failed: list[Failure] = []
    known: list[Failure] = []
    unheld: list[str] = []
    if baseline:
        below = {each.asked.variant: each.on.variant for each in bases}
        held = _outcomes(bases, sum_of)
        expected = {each.asked.variant: each.on.expect for each in bases}
        for variant, asked in {each.on.variant: each.asked.variant for each in ran}.items():
            if variant in outcomes:
                absent = _absent(not_run, variant)
                new, old = against(expected[asked], outcomes[variant], held.get(below[asked]), measured, absent)
                failed, known = failed + new, known + old
        not_run = [*_unheld(ran, bases), *_known(ran, bases)]
    else:
        for variant, expect in {each.on.variant: each.on.expect for each in ran}.items():
            if variant in outcomes:
                how = (outcomes[variant], measured, _absent(not_run, variant))
                failed += compare(expect, *how)
                unheld += [variant] * (expect is not None and not compares(expect, *how))
    wanted = [each.on for each in ran]
    return Result(
        scenario.name,
        scenario.title,
        scenario.source,
        str(scenario.path),
        wanted[0].options.clock,
        outcomes,
        tuple(failed),
        any(run.expect is not None and not run.elsewhere for run in wanted),
        silent=tuple(dict.fromkeys(run.variant for run in wanted if run.expect is None and run.compared)),
        elsewhere=tuple(dict.fromkeys(run.variant for run in wanted if run.elsewhere)),
        uncompared=() if baseline else tuple(dict.fromkeys(run.variant for run in wanted if not run.compared)),
        unheld=tuple(unheld),
        not_run=tuple(not_run),
        baseline=baseline,
        in_baseline=tuple(known),
    )


def _outcomes(ran: Sequence[Ran], sum_of: Sum) -> dict[str, Outcome]:
    return together([(r.on.variant, r.on.case, r.came) for r in ran if isinstance(r.came, Outcome)], sum_of)


def _absent(not_run: Sequence[NotRun], variant: str) -> list[str]:
    return [each.case for each in not_run if each.variant == variant]


def _unheld(ran: Sequence[Ran], bases: Sequence[Ran]) -> list[NotRun]:
    """Runs of the baseline without an outcome, which some engine ran: nothing holds that to them."""
    there = {(each.asked.variant, each.asked.case) for each in ran if each.not_run is None}
    unheld = [each for each in bases if (each.asked.variant, each.asked.case) in there]
    return [replace(n, below=True) for each in unheld if (n := each.not_run)]


def _known(ran: Sequence[Ran], bases: Sequence[Ran]) -> list[NotRun]:
    """Runs without an outcome; those that end in the baseline's own error are no news."""
    errors = {(each.asked.variant, each.asked.case): _content(each) for each in bases if each.not_run is not None}
    return [
        replace(n, known=not n.skipped and errors.get((each.asked.variant, each.asked.case)) == _content(each))
        for each in ran
        if (n := each.not_run) is not None
    ]


def _content(ran: Ran) -> tuple[Any, str]:
    """An error less the name of its engine, and what the engine wrote."""
    first = str(ran.came).partition("\n")[0]
    return type(ran.came), first.replace(ran.on.engine, "") if ran.on.engine else first
