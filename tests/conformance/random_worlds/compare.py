"""Comparison of a world on the reference engine and on a live release."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from traceback import extract_tb
from typing import Any

from random_worlds.heard import ORDER, Heard, totals
from random_worlds.world import World
from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.releases.departures import How, departures
from stateat.sim.run.engine import Make
from stateat.sim.run.result import Outcome

EQUAL = "equal"
DIFFERENT = "different"
DEPARTED = "departed"
"""Different, or ended with an error of the release, and a documented departure says so."""
REFUSED = "refused"
"""The release cannot be told this, or refuses it itself."""
STOPPED = "stopped"
"""The release ended with an error, and no documented departure says so."""
STATUSES = (EQUAL, DIFFERENT, STOPPED, DEPARTED, REFUSED)
FAULTS = (DIFFERENT, STOPPED)


@dataclass(frozen=True)
class Difference:
    """The first decision in which they differ; ``step`` is None for what is told of the whole run."""

    step: int | None
    kind: str
    reference: Any
    release: Any

    def __str__(self) -> str:
        place = "in all" if self.step is None else f"step {self.step}"
        return f"{place}, {self.kind}:\n  reference {self.reference}\n  release   {self.release}"


@dataclass(frozen=True)
class Comparison:
    """What came of a world on both sides."""

    status: str
    outcome: Outcome | None
    """The reference engine's; None where that failed."""
    difference: Difference | None = None
    text: str = ""
    """Why it was refused or stopped, or the departures."""

    @property
    def fault(self) -> bool:
        """True if the two sides differ and nothing says why."""
        return self.status in FAULTS

    @property
    def kind(self) -> str:
        """What it is, in a word or two: two worlds of one fault often have the same."""
        if self.difference is not None:
            return self.difference.kind
        return re.sub(r"\d+", "#", self.text.partition(": b'")[0])


def compare(world: World, make: Make) -> Comparison:
    """Run a world on the reference engine and on the live one that ``make`` makes."""
    here, there = Heard(), Heard()
    try:
        own = world.run(here)
    except Exception as error:
        return Comparison(STOPPED, None, text=f"the reference engine: {_raised(error)}")
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            live = world.run(there, make)
    except RefusedError as error:
        return Comparison(REFUSED, own, text=str(error))
    except EngineError as error:
        known = departures(world.options, world.arrivals, (How.STOPS, How.DECIDES))
        return Comparison(DEPARTED if known else STOPPED, own, text=_stopped(str(error), printed.getvalue()))
    except Exception as error:
        return Comparison(STOPPED, own, text=f"beside the release: {_raised(error)}")
    found = difference(here, there, own, live)
    if found is None:
        return Comparison(EQUAL, own)
    known = departures(world.options, world.arrivals, (How.DECIDES,))
    return Comparison(DEPARTED if known else DIFFERENT, own, found, "; ".join(known))


def _raised(error: Exception) -> str:
    """A fault of this side, and the line that raised it."""
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename.rpartition('stateat/')[2]}:{last.lineno}, {last.name})"


def _stopped(error: str, printed: str) -> str:
    """How a release stopped, and the last line of its own that a traceback names."""
    places = re.findall(r'/(vllm/\S+)", line (\d+), in (\w+)', f"{printed}\n{error}")
    name = error.splitlines()[0].strip()
    return "{} ({}:{}, {})".format(name, *places[-1]) if places else name


def difference(here: Heard, there: Heard, own: Outcome, live: Outcome) -> Difference | None:
    """The first difference between two runs."""
    for step in sorted(here.steps.keys() | there.steps.keys()):
        mine, theirs = here.steps.get(step, {}), there.steps.get(step, {})
        if mine == theirs:
            continue
        for kind in ORDER:
            a, b = mine.get(kind, []), theirs.get(kind, [])
            if a != b and (a or b):
                return Difference(step, kind, *_apart(a, b))
    ours, others = totals(own), totals(live)
    return next((Difference(None, name, ours[name], others[name]) for name in ours if ours[name] != others[name]), None)


def _apart(a: Any, b: Any) -> tuple[Any, Any]:
    """What only one side has, of kinds that are counted; all of the others."""
    if isinstance(a, Counter) or isinstance(b, Counter):
        a, b = Counter(a), Counter(b)
        return sorted((a - b).elements()), sorted((b - a).elements())
    return a, b
