"""Says in words what pydantic found wrong: ``found X, allowed Y``, with the nearest name that exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from stateat.sim.scenario.tree import Node, Problem, found, join, locate
from stateat.sim.schema import Location, WrittenAs, fields_of, nearest

NOT_MODELLED: Mapping[str, tuple[str, ...] | None] = {
    "mamba_cache_mode": ("none",),
}
"""Keys of vLLM that stateat knows and does not model yet, with the values concerned (None: any)."""

_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "too_short": ("min_length", "at least {} entries"),
    "too_long": ("max_length", "at most {} entries"),
}
_EXPONENT = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+$")


def problems(error: ValidationError, model: type[BaseModel], root: Node) -> list[Problem]:
    """Each of the errors, at the place in ``root`` that it concerns."""
    return [_problem(item, model, root) for item in error.errors(include_url=False)]


def _problem(error: Any, model: type[BaseModel], root: Node) -> Problem:
    location: Location = error["loc"]
    node, path = locate(root, _as_written(model, location))
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        text = _unknown(str(location[-1]), keys(_walk(model, location[:-1])))
    elif kind == "missing" and isinstance(node.value, list):
        text = f"found {found(node)}, allowed {len(get_args(strip(_walk(model, location[:-1]))))} entries"
    elif kind == "missing":
        text = f"found no such key, required{_about(model, location)}"
    elif kind == "literal_error":
        text = _literal(
            node,
            path,
            [
                str(value).lower() if isinstance(value, bool) else str(value)
                for value in get_args(strip(_walk(model, location)))
            ],
        )
    elif kind == "union_tag_invalid":
        given = node.get("kind")
        path = join(path, "kind")
        names = re.findall("'([^']*)'", context["expected_tags"])
        text = _literal(given, path, names) if given else f"allowed {', '.join(names)}"
        node = given or node
    elif kind == "union_tag_not_found":
        path, text = join(path, "kind"), f"found no such key, required{_kinds(_walk(model, location))}"
    elif kind == "value_error":
        text = str(context["error"])
    else:
        text = f"found {found(node)}, allowed {_allowed(kind, context, error['msg'], location)}"
        if kind in ("int_type", "float_type") and isinstance(node.value, str) and _EXPONENT.match(node.value):
            text += f" (YAML 1.1 reads {node.value} as text: {_decimal(node.value, kind)})"
    return Problem(node.line, path, text)


def _unknown(key: str, keys: list[str]) -> str:
    if key in NOT_MODELLED:
        return "not modelled yet"
    return f"unknown key{nearest(key, keys)}, allowed {', '.join(keys) or 'none'}"


def _literal(node: Node, path: str, names: list[str]) -> str:
    values = NOT_MODELLED.get(path.rpartition(".")[2])
    if values and node.value in values:
        return f"{node.value}: not modelled yet, allowed {', '.join(names)}"
    near = nearest(node.value, names) if isinstance(node.value, str) else ""
    return f"found {found(node)}, allowed {', '.join(names)}{near}"


def _allowed(kind: str, context: Mapping[str, Any], message: str, location: Location) -> str:
    if kind in _TYPES:
        also = {"number": " or a mapping of min and max", "all": " or a mapping with contains"}
        return _TYPES[kind] + also.get(str(location[-1]) if location else "", "")
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return text.format(context[name])
    if kind == "string_pattern_mismatch":
        return f"text that matches {context['pattern']}"
    return message.removeprefix("Input should be ")


def _decimal(text: str, kind: str) -> str:
    value = float(text) if text.count(".") < 2 else 0.0
    if kind == "int_type" and value.is_integer() and abs(value) < 2**63:
        return f"write {int(value)}"
    return "write it with a point and a sign, such as 1.0e+5"


def _about(model: type[BaseModel], location: Location) -> str:
    """Return what a missing key is for: the first line of its description."""
    field = fields_of(strip(_walk(model, location[:-1]))).get(str(location[-1]))
    return ": " + field.description.splitlines()[0].rstrip(".") if field and field.description else ""


def _kinds(annotation: Any) -> str:
    tags = [tag(member) for member in get_args(strip(annotation))]
    return ": " + ", ".join(tag for tag in tags if tag)


def keys(annotation: Any) -> list[str]:
    """The keys of a model or record; none of any other type."""
    return list(fields_of(strip(annotation)))


def _as_written(annotation: Any, location: Location) -> Location:
    """A location without the names of union members and the like that pydantic puts between the keys."""
    parts = []
    for part in location:
        annotation = strip(annotation)
        if get_origin(annotation) not in (Union, UnionType) and part != "[key]":
            parts.append(part)
        annotation = step(annotation, part)
    return tuple(parts)


def _walk(annotation: Any, location: Location) -> Any:
    """The type at a location below a type; None where the location leads nowhere."""
    for part in location:
        annotation = step(strip(annotation), part)
    return annotation


def step(annotation: Any, part: str | int) -> Any:
    """The type of a key, an index or a union's member (by its tag); None where there is no such."""
    if fields := fields_of(annotation):
        return fields[str(part)].annotation if part in fields else None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        return args[0]
    if origin is tuple:
        if args[1:] == (...,):
            return args[0]
        return args[part] if isinstance(part, int) and part < len(args) else None
    if origin is dict:
        return args[1]
    return next((member for member in args if tag(member) == part), None)


def strip(annotation: Any) -> Any:
    """Return a type without what surrounds it: Annotated, or None."""
    while True:
        if get_origin(annotation) is Annotated:
            first, *marks = get_args(annotation)
            annotation = next((mark.record for mark in marks if isinstance(mark, WrittenAs)), first)
            continue
        members = [a for a in get_args(annotation) if a is not NoneType]
        if get_origin(annotation) not in (Union, UnionType) or len(members) != 1:
            return annotation
        annotation = members[0]


def tag(member: Any) -> str:
    """The name under which pydantic reports a member of a union: its tag, or its ``kind``."""
    for extra in get_args(member)[1:] if get_origin(member) is Annotated else ():
        if isinstance(extra, Tag):
            return extra.tag
    field = fields_of(strip(member)).get("kind")
    kinds = get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
    return str(kinds[0]) if kinds else ""
