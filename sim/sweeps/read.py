"""Reads a sweep file into a plan, and checks every key and value of it before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stateat.sim.arguments import path as path_given
from stateat.sim.errors import InputError
from stateat.sim.scenario import messages as scenario_errors
from stateat.sim.scenario import trust
from stateat.sim.scenario.load import override_of, warnings
from stateat.sim.scenario.shipped import named
from stateat.sim.scenario.tree import INLINE, MAX_LISTED, Node, Problem, failure, found, of_plain, place, placed, plain
from stateat.sim.scenario.tree import read as read_tree
from stateat.sim.schema import choice
from stateat.sim.sweeps.keys import NoSuchKey, covers, locate_key
from stateat.sim.sweeps.model import SCHEMA, SweepFile
from stateat.sim.sweeps.plan import Axis, Base, Plan, check_size, drawn
from stateat.sim.workload.files import is_file, resolve

TRIES = 200
"""Points at which a value is tried before it counts as one that is never allowed."""
CAREFUL = 2000
"""Scenarios that are tried at most."""


def read(
    source: str | Path | Mapping[str, Any],
    variants: Sequence[str] = (),
    limit: int | None = None,
    allow_code: bool = False,
) -> Plan:
    """The plan of a sweep file, or of what would be in one as plain data.

    ``variants`` are those wanted, of those that the file wants; more than ``limit`` runs are refused. With
    ``allow_code`` it and its base may name rules as ``module:Class``. Raises InputError with a line for each problem:
    ``FILE:LINE: key: found X, allowed Y``.
    """
    if isinstance(source, Mapping):
        file, root, unreadable = INLINE, of_plain(INLINE, source), list[Problem]()
    else:
        file = named(path_given("source", source, "a path or a mapping"))
        root, unreadable = read_tree(file, SCHEMA)
    schema = root.get("schema")
    if schema is not None and str(schema.value).startswith("stateat/"):
        raise InputError(f"{place(file, schema.line)}: is a scenario, allowed a sweep (schema: {SCHEMA})")
    try:
        shape = SweepFile.model_validate(plain(root))
    except ValidationError as error:
        known = {p.path for p in unreadable}
        wrong = [p for p in scenario_errors.problems(error, SweepFile, root) if p.path not in known]
        raise failure(file, [*unreadable, *wrong]) from None
    if unreadable:
        raise failure(file, unreadable)
    base = _base(file, root)
    picks, wrong = _picks(base, root.get("variants"), shape.variants, variants)
    axes, more = _axes(base, root, shape, [pick[0] for pick in picks], [pick[1] for pick in picks])
    if wrong or more:
        raise failure(file, [*wrong, *more])
    if not allow_code:
        _check_code(base, axes)
    trust.show(base.file, base.paths(axes), base.file.parent)
    own = base.root.get("seed")
    default = own.value if own is not None and isinstance(own.value, int) else 0
    plan = Plan(shape.name, shape.title, base, axes, shape.sample is None, shape.seed_list(default), picks)
    check_size(plan, limit)
    return replace(plan, warnings=_try(plan))


def _base(file: Path, root: Node) -> Base:
    """The base's tree without its expectations."""
    given = root.get("base")
    assert given is not None
    if isinstance(given.value, str):
        path = file.parent / given.value
        if not is_file(path):
            raise failure(file, [Problem(given.line, "base", f"found {given.value!r}, allowed an existing file")])
        trust.show(file, [given.value], file.parent)
        try:
            tree, unreadable = read_tree(path)
        except InputError:
            # It may be any file of this machine: nothing of it is told.
            text = f"found {given.value!r}, allowed a scenario; what is wrong with it says: stateat check {path}"
            raise failure(file, [Problem(given.line, "base", text)]) from None
        if unreadable:
            raise failure(path, unreadable)
        return Base(path, _without_expectations(tree), file)
    return Base(file, _without_expectations(given), file)


def _check_code(base: Base, axes: Sequence[Axis]) -> None:
    """Raises InputError where the base or a swept value names code."""
    swept = [problem for axis in axes for value in axis.values for problem in trust.code(placed(axis.location, value))]
    for file, problems in ((base.file, [*trust.code(base.root)]), (base.sweep, swept)):
        if problems:
            raise failure(file, problems)


def _without_expectations(root: Node) -> Node:
    values = {key: node for key, node in root.value.items() if key != "expect"}
    for part in ("variants", "cases"):
        if part in values and isinstance(values[part].value, dict):
            each = {
                name: Node({k: v for k, v in node.value.items() if k != "expect"}, node.line, node.path)
                if isinstance(node.value, dict)
                else node
                for name, node in values[part].value.items()
            }
            values[part] = Node(each, values[part].line, values[part].path)
    return Node(values, root.line, root.path)


def _names(base: Base, part: str) -> list[str]:
    node = base.root.get(part)
    return list(node.value) if node is not None and isinstance(node.value, dict) else []


def _picks(
    base: Base, node: Node | None, wanted: Sequence[str] | None, only: Sequence[str]
) -> tuple[tuple[tuple[str, str], ...], list[Problem]]:
    """The variants and cases to run, in the order of the base."""
    variants = _names(base, "variants")
    wrong = [
        Problem(item.line, item.path, choice(str(item.value), variants))
        for item in (node.value if node is not None and wanted else ())
        if item.value not in variants
    ]
    for name in only:
        if name not in (wanted or variants):
            raise InputError(f"variant: {choice(name, wanted or variants)}")
    chosen = [v for v in variants if v in (wanted or variants) and (not only or v in only)] or [""]
    return tuple((variant, case) for variant in chosen for case in _names(base, "cases") or [""]), wrong


def _axes(
    base: Base, root: Node, shape: SweepFile, variants: Sequence[str], cases: Sequence[str]
) -> tuple[tuple[Axis, ...], list[Problem]]:
    """Return what is swept, each key checked against the scenario."""
    axes: list[Axis] = []
    wrong: list[Problem] = []
    for key, node, values in _swept(root, shape):
        try:
            location = locate_key(base.root, key)
        except NoSuchKey as error:
            wrong.append(Problem(node.line, node.path, str(error)))
            continue
        if location[0] in ("variants", "cases") and location[1] not in [*variants, *cases]:
            wrong.append(Problem(node.line, node.path, f"{location[0]}.{location[1]} is not among those that run"))
        for axis in axes:
            short = min(len(axis.location), len(location))
            if axis.location[:short] == location[:short]:
                wrong.append(Problem(node.line, node.path, f"found it beside {axis.key}, allowed one of them"))
        for part, names in (("variants", variants), ("cases", cases)):
            for name in dict.fromkeys(filter(None, names)):
                override = base.root.value[part].value[name]
                if location[0] not in ("variants", "cases") and covers(override_of(override), location):
                    text = f"{part}.{name} of the base sets it too, allowed {part}.{name}.{key}"
                    wrong.append(Problem(node.line, node.path, text))
        wrong += _twice(values) if shape.sample is None else ()
        axes.append(Axis(key, location, values))
    return tuple(axes), wrong


def _swept(root: Node, shape: SweepFile) -> Iterator[tuple[str, Node, tuple[Node, ...]]]:
    grid, sample = root.get("grid"), root.get("sample")
    if shape.grid is not None and grid is not None:
        for key, node in grid.value.items():
            yield key, node, tuple(node.value)
    if shape.sample is not None and sample is not None:
        over = sample.get("over")
        assert over is not None
        for key, values in drawn(shape.sample, sample):
            yield key, over.value[key], values


def _twice(values: Sequence[Node]) -> list[Problem]:
    seen: dict[str, None] = {}
    wrong = []
    for node in values:
        said = repr(plain(node))
        if said in seen:
            wrong.append(Problem(node.line, node.path, f"found {found(node)} twice, allowed once"))
        seen[said] = None
    return wrong


def _try(plan: Plan) -> tuple[str, ...]:
    """Refuse a value that the scenario refuses wherever it is tried; returns what is to be warned of.

    One that only does not go with some others makes errors in the table.
    """
    warned: dict[str, None] = {}
    proven: set[tuple[str, str]] = set()
    refused: dict[str, str] = {}
    """Problems by what is wrong, told with the first point at which it is."""
    budget = CAREFUL
    for axis, value, combinations in _trials(plan):
        place, first = (axis, value), ("", "")
        for values in combinations:
            if place in proven or budget <= 0:
                break
            for pick in plan.picks:
                budget -= 1
                try:
                    run = plan.base.at([(a.location, v) for a, v in zip(plan.axes, values, strict=True)], 0, *pick)
                    if run.workload.trace is not None:
                        resolve(run.workload.trace.path, run.base, run.where)
                except InputError as error:
                    first = first if first[0] else (str(error), _told(plan, str(error), values))
                else:
                    warned |= dict.fromkeys(warnings(run))
                    proven |= {(a.key, v.path) for a, v in zip(plan.axes, values, strict=True) if _reaches(a, pick)}
                    proven.add(("", ""))
        if place not in proven and first[0]:
            refused.setdefault(*first)
    if refused:
        raise InputError("\n".join(list(refused.values())[:MAX_LISTED]))
    return tuple(warned)


def _trials(plan: Plan) -> Iterator[tuple[str, str, Iterator[tuple[Node, ...]]]]:
    """The key and the place of each value (of a distribution: one place), with points at which it can be tried."""
    if not plan.axes:
        yield "", "", iter([()])
    for axis in plan.axes:
        if plan.crossed:
            for value in axis.values:
                rest = product(*((value,) if other is axis else other.values for other in plan.axes))
                yield axis.key, value.path, islice(rest, TRIES)
            continue
        points: dict[str, list[int]] = {}
        for point, value in enumerate(axis.values):
            points.setdefault(value.path, []).append(point)
        for path, there in points.items():
            yield axis.key, path, (plan.values(point) for point in there[:TRIES])


def _reaches(axis: Axis, pick: tuple[str, str]) -> bool:
    """True if a run of this variant and case has anything of this key."""
    part, name = axis.location[:2]
    return part not in ("variants", "cases") or name in pick


def _told(plan: Plan, error: str, values: Sequence[Node]) -> str:
    """An error, with the point at which it is."""
    at = ", ".join(f"{axis.key}={json.dumps(plain(v))}" for axis, v in zip(plan.axes, values, strict=True))
    return f"{error} (with {at})" if at else error
