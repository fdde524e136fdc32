"""Functions for a program or a notebook; also at the top of the package: ``stateat.replay``.

>>> import stateat
>>> result = stateat.replay("scenarios/seeds/s02-anatomy.yaml")
>>> result.variants["old gate"].poisoned
1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from stateat.sim.arguments import names, path, table, text, whole
from stateat.sim.errors import DepartureWarning
from stateat.sim.report.recorded import RecordedResult
from stateat.sim.run.result import Result
from stateat.sim.scenario.load import Run, Scenario, load, warned
from stateat.sim.sweeps.stats import paired, rates, wilson

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RecordedResult", "Result", "Scenario", "load", "paired", "rates", "replay", "sweep", "wilson"]

Source = str | Path | Mapping[str, Any] | Scenario
"""A scenario file, what is in one as plain data, or one that was loaded."""


def replay(
    source: Source,
    *,
    variants: str | Iterable[str] | None = None,
    rules: Mapping[str, object] | None = None,
    seed: int | None = None,
    state: str | None = None,
    engine: str | Iterable[str] = "reference",
    baseline: str | None = None,
    record: bool = True,
    allow_code: bool = False,
) -> RecordedResult:
    """Runs a scenario, all variants or those named (an empty list is refused), and compares it with what the file
    expects.

    ``rules`` take precedence over the file's; a value is a name, ``module:Name``, or a class or function itself.
    ``state`` is the oracle's state family. With another ``seed`` than the file's nothing is expected. ``engine``:
    ``reference``, ``vllm``, ``vllm:RELEASE`` or ``vllm:FOLDER``, one or several. With a ``baseline``, another engine,
    only what is new against it fails. ``record=False`` saves the memory of the frames ``requests``, ``steps``,
    ``claims`` and ``chunks``. ``allow_code``: the source may name rules as ``module:Class``, which are imported; what
    ``rules`` names is your own word and needs nothing.

    Whether all came out well is ``result.ok``. A variant that could not be run (an engine that crashes, a rule that
    raises) is in ``result.not_run``, and the others have their outcomes; where none has, the error is raised.

    Warns (:class:`stateat.sim.errors.DepartureWarning`) of options with which a preset is known not to decide as
    its release. Raises :class:`stateat.sim.errors.StateatError`: its message names the file, line and key.
    """
    from stateat.sim.adapters.vllm.fleet import Fleet
    from stateat.sim.releases.rules import named
    from stateat.sim.run.recorder import Columns
    from stateat.sim.run.result import Outcome
    from stateat.sim.run.simulate import replay as run_all
    from stateat.sim.run.simulate import simulate

    only, engines = _chosen(variants), names("engine", engine)
    overrides = {name: named(name, value) for name, value in table("rules", {} if rules is None else rules).items()}
    truth = {} if state is None else {"state": text("state", state)}
    against = "" if baseline is None else text("baseline", baseline)
    scenario = source if isinstance(source, Scenario) else load(source, allow_code)
    if seed is not None:
        scenario = scenario.reseeded(seed)
    columns: dict[tuple[str, str], Columns] = {}
    by_preset: list[Run] = []
    with Fleet(engines, baseline=against) as fleet:

        def one(run: Run) -> Outcome:
            make = fleet.maker(run)
            if make is None:
                by_preset.append(run)
            heard = Columns() if record else None
            outcome = simulate(run, [heard] if heard else [], make=make)
            if heard is not None:
                columns[run.variant, run.case] = heard
            return outcome

        result = run_all(
            scenario,
            only=only,
            overrides=overrides,
            truth=truth,
            run_one=one,
            spread=fleet.spread,
            below=fleet.below if against else None,
            baseline=fleet.baseline,
        )
    for said in warned(by_preset):
        warn(said, DepartureWarning, stacklevel=2)
    result.raise_if_nothing_ran()
    return RecordedResult.of(result, columns)


def sweep(
    source: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    jobs: int = 1,
    backend: str = "loky",
    address: str | None = None,
    variants: str | Iterable[str] | None = None,
    yes: bool = False,
    restart: bool = False,
    allow_code: bool = False,
) -> pd.DataFrame:
    """Runs a sweep file, or what would be in one as plain data; a row for each run, in the order of the plan.

    With ``out`` (.parquet or .csv) the table is written there, and a sweep that was interrupted goes on where it
    stopped. ``jobs``: processes; ``backend``: ``loky``, ``dask`` or ``ray``, of a cluster at ``address``. ``yes``: more
    than 10,000 runs are meant. ``restart``: discard the runs of another plan. ``allow_code``: it may name rules as
    ``module:Class``, which are imported.

    Raises :class:`stateat.sim.errors.StateatError`; a run that fails is a row with its error.
    """
    from stateat.sim.sweeps.execute import LIMIT, execute
    from stateat.sim.sweeps.pool import MAX_JOBS, Pool
    from stateat.sim.sweeps.read import read
    from stateat.sim.sweeps.table import check_out

    table_file = None if out is None else path("out", out)
    pool = Pool(
        whole("jobs", jobs, 1, MAX_JOBS),
        text("backend", backend),
        None if address is None else text("address", address),
    )
    plan = read(source, _chosen(variants), None if yes else LIMIT, allow_code)
    if table_file is not None:
        check_out(table_file, plan.inputs)
    for said in plan.warnings:
        warn(said, DepartureWarning, stacklevel=2)
    return execute(plan, pool, table_file, restart)


def _chosen(variants: str | Iterable[str] | None) -> Sequence[str]:
    """Return the names of the variants wanted; none: all."""
    return () if variants is None else names("variants", variants)
