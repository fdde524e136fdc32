"""What a program or a notebook calls; also at the top of the package: ``sim.replay``.

>>> import sim
>>> result = sim.replay("scenarios/seeds/s02-anatomy.yaml")
>>> result.variants["old gate"].poisoned
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.result import Result
from sim.scenario import Run, Scenario, load

__all__ = ["Result", "Scenario", "load", "replay"]

Source = str | Path | Mapping[str, Any] | Scenario
"""A scenario file, what is in one as plain data, or one that was loaded."""


def replay(
    source: Source,
    *,
    variants: str | Sequence[str] | None = None,
    rules: Mapping[str, object] | None = None,
    seed: int | None = None,
    state: str | None = None,
    engine: str | Sequence[str] = "reference",
    record: bool = True,
) -> Result:
    """Runs a scenario, all variants or those named, and compares it with what the file expects.

    ``rules`` take precedence over the file's; a value is a name, ``module:Name``, or a class or function itself.
    ``state`` is the oracle's state family. With another ``seed`` than the file's nothing is expected. ``engine``:
    ``reference``, ``vllm``, ``vllm:RELEASE`` or ``vllm:FOLDER``, one or several. ``record=False`` saves the memory of
    the frames ``requests``, ``steps``, ``claims`` and ``chunks``.

    Raises :class:`sim.errors.StateatError`: its message names the file, line and key.
    """
    from sim.adapters.vllm.fleet import Fleet
    from sim.columns import Columns
    from sim.engine.rules import named
    from sim.result import Outcome
    from sim.simulate import replay as run_all
    from sim.simulate import simulate

    scenario = source if isinstance(source, Scenario) else load(source)
    if seed is not None:
        scenario = scenario.reseeded(seed)
    columns: dict[tuple[str, str], Columns] = {}
    with Fleet(_several(engine)) as fleet:

        def one(run: Run) -> Outcome:
            observers = [Columns()] if record else []
            for heard in observers:
                columns[run.variant, run.case] = heard
            return simulate(run, observers, make=fleet.maker(run))

        result = run_all(
            scenario,
            only=_several(variants),
            overrides={name: named(name, value) for name, value in (rules or {}).items()},
            truth={} if state is None else {"state": state},
            run_one=one,
            spread=fleet.spread,
        )
    return replace(result, columns=columns)


def _several(names: str | Sequence[str] | None) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names or ()
