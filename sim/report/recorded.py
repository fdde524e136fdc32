"""The result that a program or a notebook holds: printed in words, shown as a table, and opened as pandas frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Self

from stateat.sim.errors import NotAsExpected
from stateat.sim.printable import few, short
from stateat.sim.report.terminal.verdict import screen, verdict
from stateat.sim.report.words.failures import failure_lines, failure_name
from stateat.sim.run.result import Result

if TYPE_CHECKING:
    import pandas as pd

    from stateat.sim.run.recorder import Columns

SHOWN_VARIANTS = 10
"""Variants of a result that is printed, at most."""
RAISED = 20
"""Lines of an exception that tells what is wrong with a result, at most."""


@dataclass(frozen=True, slots=True, repr=False)
class RecordedResult(Result):
    """A result with what was recorded of its runs. As pandas frames (docs/python.md) with variant and case in front;
    each access makes a new one, and all but ``findings`` raise InputError where nothing was recorded."""

    columns: Mapping[tuple[str, str], Columns] = field(default_factory=dict, compare=False, repr=False)
    """Recordings by variant and case. Empty unless they were asked for."""

    @classmethod
    def of(cls, result: Result, columns: Mapping[tuple[str, str], Columns]) -> Self:
        """Return a result with its recording."""
        return cls(**{each.name: getattr(result, each.name) for each in fields(Result)}, columns=columns)

    def raise_for_findings(self) -> None:
        """Raise :class:`stateat.sim.errors.NotAsExpected`, which lists what is wrong, unless the result is ``ok``."""
        wrong = self.failures
        told = [(failure_name(failure), failure_lines(failure)) for failure in wrong[:RAISED]]
        lines = [f"{name}: {'; '.join(' '.join(line.split()) for line in rest)}" for name, rest in told]
        more = [f"and {len(wrong) - RAISED:,} more"] if len(wrong) > RAISED else []
        if wrong:
            raise NotAsExpected("\n  ".join([f"{self.scenario}: not as expected", *lines, *more]))

    def __repr__(self) -> str:
        shown = few([f"{short(v, 40)} {o.poisoned:,} poisoned" for v, o in self.variants.items()], SHOWN_VARIANTS)
        return f"<Result {short(self.scenario)}: {short(verdict(self))} ({shown})>"

    def __str__(self) -> str:
        return screen(self, SHOWN_VARIANTS)

    def _repr_html_(self) -> str:
        """Return a line for each variant and the verdict, for a notebook."""
        from stateat.sim.run.frames import summary

        return f"{summary(self).to_html(index=False)}<p>{escape(verdict(self))}</p>"

    @property
    def findings(self) -> pd.DataFrame:
        """Findings, in order."""
        from stateat.sim.run.frames import findings

        return findings(self)

    @property
    def requests(self) -> pd.DataFrame:
        """Requests: each one's hit, its first token, its end, and whether it read a wrong state."""
        from stateat.sim.run.frames import requests

        return requests(self, self.columns)

    @property
    def steps(self) -> pd.DataFrame:
        """Steps that were told. Those between two rows were fast-forwarded: nothing but decoding happened in them, and
        ``chunks`` says how many steps a row of it covers."""
        from stateat.sim.run.frames import steps

        return steps(self, self.columns)

    @property
    def claims(self) -> pd.DataFrame:
        """Claims: what each said of a slot, how long, who restored from it, and the finding about it."""
        from stateat.sim.run.frames import claims

        return claims(self, self.columns)

    @property
    def chunks(self) -> pd.DataFrame:
        """Chunks; a run of decode steps that was fast-forwarded is one row."""
        from stateat.sim.run.frames import chunks

        return chunks(self, self.columns)
