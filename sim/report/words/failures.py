"""Failed expectations in words: which, what was expected and what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stateat.sim.printable import one_line
from stateat.sim.run.result import Failure

SHOWN_CHARACTERS = 160
_ONE_OF_A_KIND = ("min", "max", "contains")


def failure_name(failure: Failure) -> str:
    """``variant / case: key``."""
    return one_line(f"{case_name(failure.variant, failure.case)}: {failure.key}")


def case_name(variant: str, case: str) -> str:
    """``variant``, or ``variant / case``."""
    return f"{variant} / {case}" if case else variant


def failure_lines(failure: Failure) -> list[str]:
    """Return what was expected and what was found: only the parts that differ, where both have parts."""
    lines = _unmatched(failure.expected, failure.found)
    for path, expected, found in [] if lines else _differences(failure.expected, failure.found, ""):
        if path:
            lines.append(f"at {path}")
        lines += [f"expected  {shown(expected)}", f"found     {shown(found)}"]
    return [one_line(line) for line in lines]


def _unmatched(expected: Any, found: Any) -> list[str]:
    """Return those missing and those too many of expected findings, which match on the keys given and in any order."""
    if isinstance(expected, Mapping) and set(expected) == {"contains"}:
        wanted, only = expected["contains"], False
    else:
        wanted, only = expected, True
    if not (_is_list(wanted) and _is_list(found) and all(isinstance(entry, Mapping) for entry in [*wanted, *found])):
        return []
    left = list(found)
    missing = []
    for entry in wanted:
        match = next((i for i, other in enumerate(left) if _fits(entry, other)), None)
        if match is None:
            missing.append(entry)
        else:
            del left[match]
    lines = [f"missing       {shown(entry)}" for entry in missing]
    return lines + [f"not expected  {shown(entry)}" for entry in left if only or missing]


def _fits(entry: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(key in found and found[key] == value for key, value in entry.items())


def _differences(expected: Any, found: Any, path: str) -> list[tuple[str, Any, Any]]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping) and not set(expected) & set(_ONE_OF_A_KIND):
        parts = [
            _differences(value, found.get(key, "nothing"), f"{path}.{key}" if path else str(key))
            for key, value in expected.items()
            if key not in found or not _same(value, found[key])
        ]
        if parts:
            return [difference for part in parts for difference in part]
    if _is_list(expected) and _is_list(found) and len(shown(expected) + shown(found)) > SHOWN_CHARACTERS:
        return [_first_difference(expected, found, path)]
    return [(path, expected, found)]


def _first_difference(expected: Sequence[Any], found: Sequence[Any], path: str) -> tuple[str, Any, Any]:
    same = 0
    while same < min(len(expected), len(found)) and _same(expected[same], found[same]):
        same += 1
    ends = [values[same] if same < len(values) else f"nothing ({len(values)} in all)" for values in (expected, found)]
    return f"{path}[{same}]", ends[0], ends[1]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _same(expected: Any, found: Any) -> bool:
    if _is_list(expected) and _is_list(found):
        return list(expected) == list(found)
    return bool(expected == found)


def shown(value: Any) -> str:
    """A value as a scenario file would have it, cut where it gets long."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if _is_list(value):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
