"""Keys of a scenario as dotted paths: ``engine.groups.0.block_size``. Which exist, and a scenario with one changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from stateat.sim.releases.rules import RULES
from stateat.sim.scenario.messages import keys, step, strip, tag
from stateat.sim.scenario.models import File
from stateat.sim.scenario.tree import Node
from stateat.sim.schema import Location

SWEPT = ("engine", "workload", "oracle", "variants", "cases")
"""The keys of a scenario below which a sweep may change something."""
_LISTED = 20_000
"""Paths that are compared with one that does not exist."""


class NoSuchKey(Exception):
    """Message of a key that does not exist: what was found and what is allowed."""


def locate_key(root: Node, key: str) -> Location:
    """The keys and indices of a dotted path in this scenario, whether or not it has a value there.

    Raises NoSuchKey, with the nearest path that is allowed, unless the schema knows it. A name of a variant or a case
    may hold dots itself.
    """
    parts = re.sub(r"\[([0-9]+)\]", r".\1", key).split(".")
    if key == "seed":
        raise NoSuchKey("allowed in `seeds`, beside the grid or the sample")
    found = _walk(File, root, parts) if parts[0] in SWEPT and "expect" not in parts and len(parts) > 1 else None
    if found is None:
        raise NoSuchKey(f"no such key of the scenario{_nearest(root, key)}, allowed a path such as engine.num_blocks")
    return found


def put(root: Node, location: Location, value: Node) -> Node:
    """The scenario with another value there; what lies between is made where it is missing."""
    if not location:
        return value
    key, rest = location[0], location[1:]
    if isinstance(key, int):
        items = list(root.value)
        items[key] = put(items[key], rest, value)
        return Node(items, root.line, root.path)
    values = dict(root.value) if isinstance(root.value, dict) else {}
    values[key] = put(values.get(key, Node({}, value.line, value.path)), rest, value)
    return Node(values, root.line, root.path)


def covers(override: Node, location: Location) -> bool:
    """True if a variant or a case that merges this over the base decides by itself what is there."""
    node: Node | None = override
    for part in location:
        assert node is not None
        if not isinstance(node.value, dict) or not isinstance(part, str):
            # A list or a value replaces what the base says.
            return True
        node = node.get(part)
        if node is None:
            return False
    return True


def _walk(annotation: Any, node: Node | None, parts: Sequence[str]) -> Location | None:
    if not parts:
        return ()
    for head, rest, below, child in _children(annotation, node, parts):
        found = _walk(below, child, rest)
        if found is not None:
            return (head, *found)
    return None


def _children(
    annotation: Any, node: Node | None, parts: Sequence[str]
) -> Iterator[tuple[str | int, Sequence[str], Any, Node | None]]:
    """The ways to take the first of the parts: the key, the parts that are left, the type and the value there."""
    part = parts[0]
    for model in _members(annotation, node):
        origin = get_origin(model)
        if origin is dict:
            for count in range(len(parts), 0, -1):
                name = ".".join(parts[:count])
                child = node.get(name) if node is not None else None
                if child is not None or name in _open_keys(model):
                    yield name, parts[count:], get_args(model)[1], child
        elif origin in (list, tuple):
            items = node.value if node is not None and isinstance(node.value, list) else []
            if part.isascii() and part.isdecimal() and int(part) < len(items):
                yield int(part), parts[1:], step(model, int(part)), items[int(part)]
        elif part in keys(model):
            yield part, parts[1:], step(model, part), node.get(part) if node is not None else None


def _members(annotation: Any, node: Node | None) -> list[Any]:
    """The types that a value may have: of a union those of the value's own kind, where it has one."""
    annotation = strip(annotation)
    if get_origin(annotation) not in (Union, UnionType):
        return [annotation]
    members = [member for member in get_args(annotation) if member is not NoneType]
    kind = node.get("kind") if node is not None else None
    of_kind = [member for member in members if kind is not None and tag(member) == kind.value]
    return [strip(member) for member in of_kind or members]


def _open_keys(model: Any) -> Sequence[str]:
    """Return the keys, of a mapping whose keys are names, that need not be there."""
    return list(RULES) if get_args(model)[1] is str else []


def _paths(annotation: Any, node: Node | None, path: str) -> Iterator[str]:
    """Every path below a type, as far as the value goes."""
    for model in _members(annotation, node):
        below: list[tuple[str, Any, Node | None]] = []
        if get_origin(model) is dict:
            there = node.value if node is not None and isinstance(node.value, dict) else {}
            below = [
                (name, get_args(model)[1], there.get(name)) for name in dict.fromkeys([*there, *_open_keys(model)])
            ]
        elif get_origin(model) in (list, tuple):
            items = node.value if node is not None and isinstance(node.value, list) else []
            below = [(str(i), step(model, i), item) for i, item in enumerate(items)]
        elif isinstance(model, type) and issubclass(model, BaseModel):
            below = [(name, step(model, name), node.get(name) if node is not None else None) for name in keys(model)]
        for name, annotated, child in below:
            if name == "expect" or (not path and name not in SWEPT):
                continue
            whole = f"{path}.{name}" if path else name
            if path:
                yield whole
            yield from _paths(annotated, child, whole)


def _nearest(root: Node, key: str) -> str:
    known = list(islice(_paths(File, root, ""), _LISTED))
    last = key.rpartition(".")[2]
    same = [path for path in known if path.rpartition(".")[2] == last and not last.isdecimal()]
    matches = get_close_matches(key, same, 1, cutoff=0.0) or get_close_matches(key, known, 1)
    return f" (did you mean {matches[0]}?)" if matches else ""
