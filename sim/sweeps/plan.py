"""The plan of a sweep: its points, seeds and variants, numbered, and the scenario of each run.

Run ``i`` is a point, a seed, a variant and a case; cases go fastest, then variants, seeds, points. A plan is known by
its fingerprint: equal fingerprints, equal runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import exp, floor, log
from pathlib import Path
from typing import Any

from stateat.sim.errors import InputError
from stateat.sim.scenario.load import Run, checked
from stateat.sim.scenario.tree import Node, placed, plain
from stateat.sim.schema import Location
from stateat.sim.sweeps.model import Choice, Integers, LogUniform, Sample, Uniform
from stateat.sim.workload.files import resolve
from stateat.sim.workload.streams import stream, uniforms

MAX_RUNS = 10_000_000
"""Runs of any sweep, at most."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key that is swept."""

    key: str
    """The key as written: ``engine.groups.0.block_size``."""
    location: Location
    values: tuple[Node, ...]
    """Values in turn, of a grid; of a sample that of each point."""


@dataclass(frozen=True, slots=True)
class Base:
    """The scenario that is swept, without what it expects."""

    file: Path
    """The file that messages name, and that paths in it are relative to."""
    root: Node
    sweep: Path
    """The file of what is swept, for messages."""

    def paths(self, axes: Sequence[Axis]) -> list[str]:
        """Return what the base, and what is swept, names as ``path``."""
        said = [self.root, *(placed(axis.location, value) for axis in axes for value in axis.values)]
        return list(dict.fromkeys(path for node in said for path in _paths(node)))

    def at(self, values: Sequence[tuple[Location, Node]], seed: int, variant: str, case: str) -> Run:
        """The run of one variant and case with these values; InputError says what is wrong with them."""
        from stateat.sim.sweeps.keys import put

        root = put(self.root, ("seed",), Node(seed, 0, "seed"))
        for location, value in values:
            root = put(root, location, value)
        for part, name in (("variants", variant), ("cases", case)):
            if name:
                root = put(root, (part,), Node({name: root.value[part].value[name]}, 0, part))
        try:
            (run,) = checked(self.file, root).expanded
        except InputError as error:
            raise InputError(re.sub(self._swept(), self._moved, str(error), flags=re.M)) from error
        return run

    def _swept(self) -> str:
        """Return the pattern of a message about what stands in the sweep: it is of that file and line."""
        names, path = r"((?:variants|cases)\..+?: )?", r"((?:grid|sample)\..+?)"
        return rf"^{re.escape(str(self.file))}:(\d+): {names}{path}(?: \(line (\d+)\))?: "

    def _moved(self, found: re.Match[str]) -> str:
        line, names, path, written = found.groups()
        return f"{self.sweep}:{written or line}: {names or ''}{path}: "


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a sweep is to run."""

    name: str
    title: str
    base: Base
    axes: tuple[Axis, ...]
    crossed: bool
    """A grid: all combinations. Otherwise point i has value i of each axis."""
    seeds: Sequence[int]
    picks: tuple[tuple[str, str], ...]
    """Variant and case; '' where the base has none."""
    warnings: tuple[str, ...] = ()
    """Warnings of a likely slip in it, or of what a preset's release decides otherwise, at some value of each axis."""

    @property
    def points(self) -> int:
        if not self.crossed:
            return len(self.axes[0].values)
        count = 1
        for axis in self.axes:
            count *= len(axis.values)
        return count

    @property
    def runs(self) -> int:
        return self.points * len(self.seeds) * len(self.picks)

    @property
    def inputs(self) -> list[Path]:
        """The files that it is read from: its own, its base, traces and tables."""
        read = []
        for path in self.base.paths(self.axes):
            with suppress(InputError):
                read.append(resolve(path, self.base.file.parent, ""))
        return [self.base.sweep, self.base.file, *read]

    def values(self, point: int) -> tuple[Node, ...]:
        """The value of each axis at a point; of a grid the last axis goes fastest."""
        if not self.crossed:
            return tuple(axis.values[point] for axis in self.axes)
        found: list[Node] = []
        for axis in reversed(self.axes):
            point, at = divmod(point, len(axis.values))
            found.append(axis.values[at])
        return tuple(reversed(found))

    def task(self, index: int) -> Task:
        """Run ``index``."""
        rest, pick = divmod(index, len(self.picks))
        point, seed = divmod(rest, len(self.seeds))
        values = self.values(point)
        changes = tuple((axis.location, value) for axis, value in zip(self.axes, values, strict=True))
        told = {axis.key: plain(value) for axis, value in zip(self.axes, values, strict=True)}
        return Task(self.base, index, point, self.seeds[seed], *self.picks[pick], changes, told)

    def fingerprint(self) -> str:
        """Changes with whatever changes a run: the base, the points, the seeds, the variants."""
        said = hashlib.sha256()
        for part in (
            plain(self.base.root),
            [[axis.key, [plain(value) for value in axis.values]] for axis in self.axes],
            self.crossed,
            list(self.seeds),
            self.picks,
        ):
            said.update(json.dumps(part, sort_keys=False, ensure_ascii=False).encode() + b"\n")
        return said.hexdigest()


def _paths(node: Node) -> Iterator[str]:
    """Return what keys named ``path`` say, in a node and below it."""
    for key, child in node.value.items() if isinstance(node.value, dict) else ():
        if key == "path" and isinstance(child.value, str):
            yield child.value
    if isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from _paths(child)


@dataclass(frozen=True, slots=True)
class Task:
    """A run of a plan, with all that another process needs."""

    base: Base
    index: int
    point: int
    seed: int
    variant: str
    case: str
    changes: tuple[tuple[Location, Node], ...]
    values: dict[str, Any]
    """Plain values by key of the sweep."""

    def run(self) -> Run:
        """The run, checked; InputError says what is wrong with it."""
        return self.base.at(self.changes, self.seed, self.variant, self.case)


def drawn(sample: Sample, node: Node) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """The values of each key of a sample at its points; each key has a stream of its own."""
    over = node.get("over")
    assert over is not None
    for key, how in sample.over.items():
        place = over.get(key) or over
        choices = place.get("values")
        yield (
            key,
            tuple(
                choices.value[floor(u * len(choices.value))]
                if isinstance(how, Choice) and choices is not None
                else Node(_value(how, u), place.line, place.path)
                for u in uniforms(stream(sample.seed, f"sweep {key}"), sample.n)
            ),
        )


def _value(how: Uniform | LogUniform | Integers | Choice, u: float) -> Any:
    """The quantile of u in [0, 1)."""
    match how:
        case Uniform():
            return how.low + u * (how.high - how.low)
        case LogUniform():
            return min(max(exp(log(how.low) + u * (log(how.high) - log(how.low))), how.low), how.high)
        case Integers():
            return how.low + how.step * floor(u * ((how.high - how.low) // how.step + 1))
        case Choice():
            return how.values[floor(u * len(how.values))]


def check_size(plan: Plan, limit: int | None) -> None:
    """Raises InputError for a plan of more runs than ``limit``, and for one that nobody can run."""
    if plan.runs > MAX_RUNS:
        raise InputError(f"{plan.name}: {plan.runs:,} runs, allowed at most {MAX_RUNS:,}")
    if limit is not None and plan.runs > limit:
        raise InputError(
            f"{plan.name}: {plan.runs:,} runs ({plan.points:,} points, {len(plan.seeds):,} seeds, "
            f"{len(plan.picks):,} variants and cases), allowed {limit:,} unless you say --yes"
        )
