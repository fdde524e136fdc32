"""Reads a YAML file into a tree that remembers where each value was written.

PyYAML's safe loader parses; the values are built here, so that a duplicate key, a tag, a bomb of aliases and the
surprises of YAML 1.1 become messages with a line, and so that an override keeps the line and the key path
where it was written after :func:`merge`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from stateat.sim.errors import InputError
from stateat.sim.inputs import MAX_DOCUMENT, read_bytes
from stateat.sim.printable import short
from stateat.sim.schema import Location

INLINE = Path("<mapping>")
"""Stands for the file where a program gives the data itself; there are no lines then."""
MAX_VALUES = 200_000
"""Values of a file with its aliases written out."""
MAX_DEPTH = 50
"""Mappings and lists inside one another."""
MAX_PATH = 200
"""Characters of a path of keys in a message."""
MAX_TEXT = 4000
"""Characters of what is said of one problem."""
MAX_LISTED = 50
"""Problems that one message lists."""

_YAML = "tag:yaml.org,2002:"
_TEXT_TAGS = {_YAML + name for name in ("str", "timestamp", "value")}
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")
_OCTAL = re.compile(r"[-+]?0[0-9_]+$")


@dataclass(frozen=True, slots=True)
class Node:
    """One value of the file, with its place."""

    value: Any
    """A ``dict[str, Node]``, a ``list[Node]``, or text, a number, a truth value or None."""
    line: int
    """Line of the value, from 1; of the key, for a value of a mapping. 0: it was written in no file."""
    path: str
    """The keys that lead to it, as written in the file: ``variants.old gate.engine.groups[0]``."""
    text: str | None = None
    """A plain (unquoted) scalar as written."""

    def get(self, key: str) -> Node | None:
        """The value under a key, or None where there is none or this is no mapping."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def child(self, key: str) -> str:
        """The path of a key below this node."""
        return f"{self.path}.{key}" if self.path else key


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file."""

    line: int
    path: str
    text: str
    """Message: what was found and what is allowed."""


def failure(file: Path, problems: Iterable[Problem]) -> InputError:
    """One error that lists each problem on a line, in the order of the file."""
    listed = sorted(dict.fromkeys(problems), key=lambda p: p.line)
    lines = [
        ": ".join(filter(None, (place(file, p.line), short(p.path, MAX_PATH), short(p.text, MAX_TEXT)))) for p in listed
    ]
    more = [f"... and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return InputError("\n".join(lines[:MAX_LISTED] + more))


def place(file: Path, line: int) -> str:
    """``FILE:LINE``."""
    return f"{file}:{line}" if line else str(file)


def read(file: Path, schema: str = "stateat/1") -> tuple[Node, list[Problem]]:
    """The file's tree, and what is wrong with single values of it; ``schema`` is what messages say it starts with.

    Raises InputError for a file that cannot be read at all: missing, a directory, too large, not UTF-8, not
    YAML, empty, no mapping, nested too deeply or swollen by aliases. Of one that does not say that it is ours nothing
    is told: a link, or another file, may lead to any file of this machine.
    """
    root = _compose(file, _text(file))
    if root is None:
        raise InputError(f"{file}: the file is empty, allowed a mapping that starts with `schema: {schema}`")
    builder = _Builder(file)
    node = builder.build(root, root.start_mark.line + 1, "", 0)
    if not isinstance(node.value, dict):
        what = "text" if isinstance(node.value, str) else found(node)
        raise failure(
            file,
            [Problem(node.line, "", f"found {what}, allowed a mapping that starts with `schema: {schema}`")],
        )
    said = node.get("schema")
    if said is None or not str(said.value).startswith("stateat"):
        raise failure(file, [Problem(said.line if said else node.line, "schema", f"allowed and required: {schema}")])
    return node, builder.problems


def _text(file: Path) -> str:
    raw = read_bytes(file, MAX_DOCUMENT, "a scenario file (YAML)")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{line}: not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}") from None


def _compose(file: Path, text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise InputError(f"{file}: nested too deeply, allowed {MAX_DEPTH} levels") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"{file}:{line}: not YAML: the character {error.character!r} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(f"{file}:{mark.line + 1 if mark else 1}: not YAML: {what}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets some through: an escape beyond Unicode, a version number without end.
        raise InputError(f"{file}: not YAML: {error}") from None


class _Builder:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.count = 0
        self.scalars = yaml.SafeLoader("")

    def build(self, node: yaml.Node, line: int, path: str, depth: int) -> Node:
        """Our node for ``node``; ``line`` is where it, or its key, stands."""
        self.count += 1
        if depth > MAX_DEPTH:
            raise InputError(f"{self.file}:{line}: nested too deeply, allowed {MAX_DEPTH} levels")
        if self.count > MAX_VALUES:
            raise InputError(f"{self.file}:{line}: more than {MAX_VALUES} values (aliases written out)")
        if isinstance(node, yaml.MappingNode) and node.tag == _YAML + "map":
            return Node(self.mapping(node, path, depth), line, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _YAML + "seq":
            items = [
                self.build(item, item.start_mark.line + 1, f"{path}[{i}]", depth + 1)
                for i, item in enumerate(node.value)
            ]
            return Node(items, line, path)
        if isinstance(node, yaml.ScalarNode):
            return Node(self.scalar(node, line, path), line, path, None if node.style else node.value)
        self.problem(line, path, f"found the tag {node.tag!r}, allowed plain YAML")
        return Node(None, line, path)

    def mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        values: dict[str, Node] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _YAML + "merge":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif not isinstance(key, yaml.ScalarNode):
                self.problem(line, path, "found a mapping or list as a key, allowed text")
            elif key.value in values:
                first = values[key.value].line
                self.problem(line, join(path, key.value), f"found the key twice (first in line {first}), allowed once")
            elif self.utf8(key.value, line, path):
                # The text as written: `on`, 1600 and 0.26 are names like any other.
                values[key.value] = self.build(value, line, join(path, key.value), depth + 1)
        for source in merged:
            self.merge(source, values, path, depth)
        return values

    def merge(self, source: yaml.Node, values: dict[str, Node], path: str, depth: int) -> None:
        node = self.build(source, source.start_mark.line + 1, path, depth + 1)
        if isinstance(node.value, dict):
            for key, value in node.value.items():
                values.setdefault(key, value)
        else:
            self.problem(node.line, join(path, "<<"), f"found {found(node)}, allowed a mapping")

    def scalar(self, node: yaml.ScalarNode, line: int, path: str) -> Any:
        """The scalar's value; its text where it has none, with a problem."""
        text, tag = node.value, node.tag
        if not self.utf8(text, line, path) or tag in _TEXT_TAGS:
            return text
        if tag == _YAML + "null":
            return None
        value: Any = None
        try:
            if tag == _YAML + "bool":
                return self.scalars.construct_yaml_bool(node)
            if tag == _YAML + "int":
                value = self.scalars.construct_yaml_int(node)
            elif tag == _YAML + "float":
                value = self.scalars.construct_yaml_float(node)
        except (ValueError, LookupError, OverflowError):
            value = None
        if value is None:
            self.problem(line, path, f"found {text[:60]!r} with the tag {tag!r}, allowed plain YAML")
            return text
        if isinstance(value, int) and value.bit_length() > 64:
            self.problem(line, path, f"found a number of {value.bit_length()} bits, allowed 64")
            return text
        if _BASE_60.match(text) or _OCTAL.match(text):
            base = "base 60" if ":" in text else "octal"
            self.problem(
                line,
                path,
                f"found {text}, which YAML 1.1 reads as {value} ({base}), allowed a decimal number or a quoted text",
            )
            return text
        return value

    def utf8(self, text: str, line: int, path: str) -> bool:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.problem(line, path, "found an unpaired surrogate, allowed UTF-8")
            return False
        return True

    def problem(self, line: int, path: str, text: str) -> None:
        self.problems.append(Problem(line, path, text))


def join(path: str, key: str) -> str:
    """The path of a key below ``path``."""
    return f"{path}.{key}" if path else key


def plain(node: Node) -> Any:
    """The value without places."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [plain(value) for value in node.value]
    return node.value


def of_plain(file: Path, value: Any, path: str = "", depth: int = 0) -> Node:
    """The tree of plain data: mappings, lists, text, numbers (NumPy's too), truth values, None.

    Raises InputError for anything else; ``file`` is named there.
    """
    if depth > MAX_DEPTH:
        raise InputError(f"{file}: {path}: nested too deeply, allowed {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{file}: {path}: found {key!r} as a key, allowed text".replace(": : ", ": "))
        return Node({k: of_plain(file, v, join(path, k), depth + 1) for k, v in value.items()}, 0, path)
    if isinstance(value, list | tuple):
        return Node([of_plain(file, v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)], 0, path)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        value = str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return Node(value, 0, path)
    raise InputError(f"{file}: {path}: found {type(value).__name__}, allowed what YAML has".replace(": : ", ": "))


def merge(base: Node, over: Node) -> Node:
    """``over`` on top of ``base``: maps merge, anything else replaces.

    A map of another ``kind`` replaces as well: what the old kind said means nothing to the new one.
    """
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    old, new = base.get("kind"), over.get("kind")
    if old is not None and new is not None and old.value != new.value:
        return over
    values = dict(base.value)
    for key, value in over.value.items():
        values[key] = merge(values[key], value) if key in values else value
    return Node(values, base.line, base.path)


def placed(location: Location, node: Node) -> Node:
    """A tree that holds this node at a location, and nothing else."""
    for part in reversed(location):
        node = Node({str(part): node}, node.line, node.path)
    return node


def locate(root: Node, location: Location) -> tuple[Node, str]:
    """The deepest existing node on the way to a location, and the path of the location as written."""
    node, missing = root, ""
    for i, part in enumerate(location):
        below = node.value
        listed = isinstance(below, list) and isinstance(part, int) and part < len(below)
        if listed or (isinstance(below, dict) and part in below):
            node = below[part]
        elif i == len(location) - 1 and isinstance(below, dict):
            missing = str(part)
    return node, node.child(missing) if missing else node.path


def found(node: Node) -> str:
    """Return what a node holds, in words: text with quotes, and as written where YAML reads it otherwise."""
    value, text = node.value, node.text
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 60 else f"the text {value[:57] + '...'!r}"
    if value is None:
        return "nothing"
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    if text is None or text.lower() == shown:
        return shown
    return (
        f"{shown} (written {text}{', which YAML 1.1 reads so: quote it for text' if isinstance(value, bool) else ''})"
    )
