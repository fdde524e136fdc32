"""The runs of a sweep's table that count: those that came to an end, each once.

Two runs are the same where they have the same digest and the same counts. What is swept or seeded and changes nothing
adds no evidence: equal runs of one seed at several points are one run, and so are the seeds of a point at which every
seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stateat.sim.arguments import refuse
from stateat.sim.errors import InputError
from stateat.sim.scenario.messages import choice
from stateat.sim.sweeps.work import CAME

if TYPE_CHECKING:
    import pandas as pd

DISTINCT = ("point", "seed", "variant", "case")
"""Columns that a run is known by."""
NO_METRIC = ("run", *DISTINCT, "digest", "error")
_TEXTS = ("variant", "case", "digest", "error")


def normal(frame: pd.DataFrame, by: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """The table with names as text, '' where there is none: as it was before it went through a file.

    Raises InputError for what is no table, for columns that are not there, for a run that is there twice, and for one
    that did not fail and lacks one of these numbers.
    """
    if not hasattr(frame, "columns"):
        refuse("frame", frame, "the table of a sweep")
    for name in dict.fromkeys([*by, *DISTINCT, "error", "digest", *numbers]):
        if name not in frame.columns:
            raise InputError(f"column: {choice(name, map(str, frame.columns))}")
    texts = {name: frame[name].astype(object).where(frame[name].notna(), "").astype(str) for name in _TEXTS}
    made = frame.assign(**texts).reset_index(drop=True)
    again = made.duplicated(list(dict.fromkeys([*by, *DISTINCT])))
    if again.any():
        raise InputError(f"found the same run twice ({_named(made[again].iloc[0])}), allowed once")
    for name in numbers:
        lacking = made[(made["error"] == "") & made[name].isna()]
        if len(lacking):
            found = f"found none of a run that did not fail ({_named(lacking.iloc[0])})"
            raise InputError(f"column {name}: {found}, allowed a number of each")
    return made


def sound(group: pd.DataFrame) -> pd.DataFrame:
    """The runs that did not fail, whatever the order of the table: what is drawn goes by row."""
    return group[group["error"] == ""].sort_values(list(DISTINCT), kind="stable")


def once(runs: pd.DataFrame) -> pd.DataFrame:
    """Each run once."""
    return _once(runs.assign(_same=_same(runs)), ["variant", "case"], "_same").drop(columns="_same")


def pairs(group: pd.DataFrame, baseline: str, other: str) -> pd.DataFrame:
    """The pairs of runs of two variants at the same point, seed and case, each once; columns end in ``_a`` and
    ``_b``."""
    runs = sound(group)
    runs = runs.assign(_same=_same(runs))
    sides = [runs[runs["variant"] == name] for name in (baseline, other)]
    both = sides[0].merge(sides[1], on=["point", "seed", "case"], suffixes=("_a", "_b"), validate="one_to_one")
    both["_same"] = both.groupby(["_same_a", "_same_b"]).ngroup()
    return _once(both, ["case"], "_same")


def groups(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Groups in the order in which they first appear."""
    if not by:
        yield {}, frame
        return
    for key, group in frame.groupby(list(by), sort=False, dropna=False, observed=True):
        yield dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)), group


def _same(runs: pd.DataFrame) -> pd.Series[int]:
    """A number for each run, equal where the runs are the same. The digest is of what a scheduler decides: what a
    worker spoils, and what a step costs, only the counts tell."""
    counts = [name for name in CAME if name in runs.columns]
    return runs.groupby([*dict.fromkeys(["digest", *counts])], dropna=False, observed=True).ngroup()


def _once(runs: pd.DataFrame, who: list[str], same: str) -> pd.DataFrame:
    """Equal runs of a seed once; then, at each point where every seed gives the same, the first seed."""
    kept = runs[~runs.duplicated([*who, "seed", same])]
    place = ["point", *who]
    alike = kept.groupby(place)[same].transform("nunique") == 1
    return kept[~alike | ~kept.duplicated(place)]


def _named(row: pd.Series[Any]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in DISTINCT if row[name] != "")
