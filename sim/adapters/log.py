"""Event logs as JSON Lines: one event a line, ``{"event": NAME, ...its fields}``; a ``run`` event starts each run.

``docs/events.md`` documents them with an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import cache
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Any, TextIO, Union, get_args, get_origin, get_type_hints

from stateat.sim.errors import InputError
from stateat.sim.events import EVENTS, SCHEMAS, SINCE, Event, Group, Observer
from stateat.sim.inputs import open_lines, shown
from stateat.sim.printable import short

INTEGERS = range(-(2**63), 2**63)
"""Range of an integer of a log."""


class Recorder(Observer):
    """Writes each event that it hears as a line."""

    def __init__(self, stream: TextIO) -> None:
        for name, arguments in EVENTS.items():
            setattr(self, name, _writer(stream, name, [argument.name for argument in arguments]))


def _writer(stream: TextIO, name: str, keys: Sequence[str]) -> Any:
    head = f'{{"event":"{name}",'
    encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode

    def write(*values: Any) -> None:
        stream.write(head + encode(dict(zip(keys, values, strict=True)))[1:] + "\n")

    return write


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Group):
        return asdict(value)
    raise TypeError(f"an event holds a {type(value).__name__}")


def read(path: Path) -> Iterator[Event]:
    """The events of a log. Raises InputError that names the file, the line and what is wrong with it."""
    return (event for _, event in numbered(path))


def numbered(path: Path) -> Iterator[tuple[int, Event]]:
    """The events of a log, each with its line. Raises InputError as :func:`read` does."""
    schema = ""
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            event = _event(f"{path}:{number}", line, schema)
            if event.name == "run":
                schema, *_ = event.values
            elif not schema:
                raise InputError(f"{path}:{number}: event: found {event.name}, allowed: run")
            yield number, event
    if not schema:
        raise InputError(f"{path}: an empty log, allowed are lines such as the ones that --log writes")


def _event(where: str, line: str, schema: str) -> Event:
    """The event of a line; ``schema``: that of the run that it belongs to, '' before the first."""
    try:
        data = json.loads(line, object_pairs_hook=_object)
    except KeyError as error:
        raise InputError(f"{where}: {short(error.args[0])}: found twice in an object, allowed once") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error} (a log has an event on each line, as --log writes it)") from None
    if not isinstance(data, dict):
        raise InputError(f"{where}: found {type(data).__name__}, allowed is an object")
    name = data.pop("event", None)
    allowed = [name for name in EVENTS if not schema or schema >= SINCE.get(name, "")]
    if name not in allowed:
        raise InputError(f"{where}: event: found {shown(name)}, allowed: {', '.join(allowed)}")
    if name == "run" and data.get("schema") not in SCHEMAS:
        raise InputError(f"{where}: schema: found {shown(data.get('schema'))}, allowed: {', '.join(SCHEMAS)}")
    defaults = {argument.name: argument.default for argument in EVENTS[name]}
    needed = {key for key, default in defaults.items() if default is Parameter.empty}
    for key in sorted((needed - set(data)) | (set(data) - set(defaults))):
        raise InputError(f"{where}: {name}.{short(key)}: {'missing' if key in defaults else 'an unknown key'}")
    types = _types(name)
    given = {key: _value(f"{where}: {name}.{key}", types[key], value) for key, value in data.items()}
    return Event(name, tuple((defaults | given).values()))


@cache
def _types(name: str) -> dict[str, Any]:
    """Types of an event's fields."""
    return get_type_hints(getattr(Observer, name))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises KeyError for a key that is there twice, of which one would be lost."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise KeyError(next(key for i, key in enumerate(keys) if key in keys[:i]))
    return made


_GROUP_KEYS = {f.name for f in fields(Group)}
_LATER = {"sliding_window", "prefix_cacheable"}
"""Keys of a group that a log may lack."""


def _value(where: str, hint: Any, value: Any) -> Any:
    """A JSON value as the type of a field."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return None if value is None else _value(where, args[0], value)
    if origin in (tuple, Sequence) and isinstance(value, list):
        if origin is Sequence or args[1:] == (Ellipsis,):
            return tuple(_value(f"{where}[{i}]", args[0], item) for i, item in enumerate(value))
        if len(args) == len(value):
            return tuple(
                _value(f"{where}[{i}]", arg, item) for i, (arg, item) in enumerate(zip(args, value, strict=True))
            )
    if hint is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise InputError(f"{where}: found {shown(value)}, allowed is hexadecimal") from None
    if hint is Group and isinstance(value, dict) and _GROUP_KEYS - _LATER <= set(value) <= _GROUP_KEYS:
        hints = get_type_hints(Group)
        group = Group(**{key: _value(f"{where}.{key}", hints[key], item) for key, item in value.items()})
        if group.block_size < 1:
            raise InputError(f"{where}.block_size: found {group.block_size}, allowed is 1 or more")
        return group
    if origin is dict and isinstance(value, dict):
        _check_text(where, value)
        return value
    if isinstance(value, str) and not value.isascii():
        _check_text(where, value)
    if hint is int and type(value) is int and value not in INTEGERS:
        raise InputError(f"{where}: found {shown(value)}, allowed is {INTEGERS[0]} to {INTEGERS[-1]}")
    if hint in (str, int, bool) and type(value) is hint:
        return value
    raise InputError(f"{where}: found {shown(value)}, allowed is {getattr(hint, '__name__', hint)}")


def _check_text(where: str, value: Any) -> None:
    """Raises InputError for a text, wherever it is in this value, that no file can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = shown(error.object[error.start : error.end])
        raise InputError(f"{where}: found {found}, which is not text: it is half a character") from None
    except RecursionError:
        raise InputError(f"{where}: found {shown(value)}, which is nested too deeply") from None
