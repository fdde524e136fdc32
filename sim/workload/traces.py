"""Readers of request traces. Each row becomes a request; nothing is drawn and no token is made here.

An output length of 0 counts as 1: a request that produces nothing cannot be told from one that never ran.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from stateat.sim.errors import InputError
from stateat.sim.inputs import csv_rows, open_lines, shown
from stateat.sim.printable import short
from stateat.sim.schema import MAX_REQUESTS, MAX_STEP_TOKENS, MAX_TIME, Count, Strict
from stateat.sim.tokens import Segments
from stateat.sim.workload import Arrival
from stateat.sim.workload.files import discreet, resolve
from stateat.sim.workload.prefixes import TRACE_SEEDS, own


class Trace(Strict):
    """Requests from a file."""

    format: Literal["mooncake", "bailian", "azure", "jsonl"]
    """`mooncake`: JSON Lines with timestamp (ms), input_length, output_length, hash_ids of 512-token blocks.
    `bailian`: the same with timestamp in seconds, blocks of 16 and a chat_id. `azure`: CSV with TIMESTAMP,
    ContextTokens, GeneratedTokens and no prefixes. `jsonl`: id, arrive (microseconds), prompt as [[seed, length],
    ...], max_tokens."""
    path: Annotated[str, Field(min_length=1)]
    """Absolute, relative to the scenario file, or `shared:NAME` (in the folder that STATEAT_SHARED names)."""
    limit: Count | None = None
    """Requests to take at most; all by default."""
    time_scale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Arrival times (microseconds) are multiplied by this. Under `clock: steps` the product is a step number, so
    that 0.0001 makes steps of 10 ms."""
    start: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Seconds of the trace to skip, from its first row (`jsonl`: from time 0)."""


MAX_SEGMENTS = 2**24
"""Blocks that all prompts of a trace are written in."""
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One row of a trace."""

    id: str
    time_us: int
    segments: Segments
    max_tokens: int


class _Broken(Exception):
    """A row says something impossible: found X, allowed Y."""


def read(trace: Trace, base: Path, where: str) -> list[Arrival]:
    """The requests of a trace in the order of its rows.

    Raises InputError for a missing file (with ``where``, the place in the scenario), a broken row (with the
    trace's own line) and a trace without requests.
    """
    file = resolve(trace.path, base, where)
    start_us = round(trace.start * 1e6)
    with discreet(file, base), open_lines(file) as lines:
        arrivals = _arrivals(trace, file, where, start_us, _READERS[trace.format](file, lines))
    if not arrivals:
        after = f" after the first {trace.start:g} seconds" if trace.start else ""
        raise InputError(f"{where}: the trace {file} is empty: no request{after}")
    return arrivals


def _arrivals(trace: Trace, file: Path, where: str, start_us: int, rows: Iterable[TraceRow]) -> list[Arrival]:
    arrivals: list[Arrival] = []
    segments = 0
    for row in rows:
        if row.time_us < start_us:
            continue
        if len(arrivals) == (trace.limit or MAX_REQUESTS):
            if trace.limit is None:
                raise InputError(f"{file}: more than {MAX_REQUESTS} requests; set limit")
            break
        segments += len(row.segments)
        if segments > MAX_SEGMENTS:
            raise InputError(f"{file}: more than {MAX_SEGMENTS:,} blocks in all prompts; set limit")
        time = round((row.time_us - start_us) * trace.time_scale)
        if time > MAX_TIME:
            raise InputError(f"{where}: found an arrival at {time} (times time_scale), allowed at most {MAX_TIME}")
        arrivals.append(Arrival(row.id, len(arrivals), time, row.segments, row.max_tokens))
    return arrivals


def _json_rows(file: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line that is not blank."""
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{file}:{line}: found {short(text.strip())!r}, allowed a JSON object") from None
        if not isinstance(row, dict):
            raise InputError(f"{file}:{line}: found {short(text.strip())!r}, allowed a JSON object")
        yield line, row


def _hashed(
    file: Path,
    lines: Iterable[str],
    unit: int,
    clock: Callable[[dict[str, Any]], int],
    name: Callable[[int, dict[str, Any]], str],
) -> Iterator[TraceRow]:
    """Rows whose prompt is given as ids of its blocks of ``unit`` tokens."""
    origin: int | None = None
    for number, (line, row) in enumerate(_json_rows(file, lines)):
        try:
            now = clock(row)
            origin = now if origin is None else origin
            if now < origin:
                raise _Broken(f"timestamp: found {row['timestamp']}, allowed no time before the first row's")
            prompt = _integer(row, "input_length", 1, MAX_STEP_TOKENS)
            segments = _blocks(row.get("hash_ids"), prompt, unit, number)
            yield TraceRow(name(number, row), now - origin, segments, _output(row, "output_length"))
        except _Broken as broken:
            raise InputError(f"{file}:{line}: {broken}") from None


def _blocks(ids: Any, prompt: int, unit: int, number: int) -> Segments:
    """One segment a block, the last cut to fit; where only full blocks have an id, the rest is the row's own."""
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < TRACE_SEEDS for i in ids):
        raise _Broken(f"hash_ids: found {_shown(ids)}, allowed a list of whole numbers from 0 to {TRACE_SEEDS - 1}")
    rest = prompt - unit * (len(ids) - 1)
    if 0 < rest <= unit and ids:
        return (*((i, unit) for i in ids[:-1]), (ids[-1], rest))
    if unit < rest < 2 * unit:
        return (*((i, unit) for i in ids), (own(number), rest - unit))
    raise _Broken(
        f"hash_ids: found {len(ids)} ids, allowed {-(-prompt // unit)} for {prompt} tokens in blocks of {unit}"
    )


def _mooncake(file: Path, lines: Iterable[str]) -> Iterator[TraceRow]:
    return _hashed(file, lines, 512, lambda row: _time(row, "timestamp", 1e3), lambda number, _: f"r{number}")


def _bailian(file: Path, lines: Iterable[str]) -> Iterator[TraceRow]:
    seen: set[str] = set()

    def name(number: int, row: dict[str, Any]) -> str:
        chat = row.get("chat_id")
        if type(chat) not in (int, str):
            raise _Broken(f"chat_id: found {_shown(chat)}, allowed a whole number or text")
        if str(chat) in seen:
            raise _Broken(f"chat_id: found {_shown(chat)} again, allowed a new one")
        seen.add(str(chat))
        return f"chat{chat}"

    return _hashed(file, lines, 16, lambda row: _time(row, "timestamp", 1e6), name)


def _azure(file: Path, lines: Iterable[str]) -> Iterator[TraceRow]:
    rows = csv_rows(file, lines)
    first, header = next(rows, (0, []))
    if not first:
        # Whoever reads on finds no request.
        return
    if missing := [name for name in AZURE if name not in header]:
        raise InputError(f"{file}:{first}: found no column {', '.join(missing)}, allowed a header with it")
    origin: datetime | None = None
    filled = ((line, cells) for line, cells in rows if cells)
    for number, (line, cells) in enumerate(filled):
        row: dict[str, Any] = dict(zip(header, cells, strict=False))
        try:
            now = _moment(row.get("TIMESTAMP"))
            origin = origin or now
            time_us = _since(origin, now)
            prompt = _integer(_numbers(row), "ContextTokens", 1, MAX_STEP_TOKENS)
            segments = ((own(number), prompt),)
            yield TraceRow(f"r{number}", time_us, segments, _output(_numbers(row), "GeneratedTokens"))
        except _Broken as broken:
            raise InputError(f"{file}:{line}: {broken}") from None


def _moment(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise _Broken(f"TIMESTAMP: found {_shown(text)}, allowed a time such as 2023-11-16 18:17:03.979") from None


def _since(origin: datetime, now: datetime) -> int:
    try:
        time_us = (now - origin) // timedelta(microseconds=1)
    except TypeError:
        raise _Broken("TIMESTAMP: found times with and without a time zone, allowed one kind") from None
    if time_us < 0:
        raise _Broken(f"TIMESTAMP: found {now}, allowed no time before the first row's")
    return time_us


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A CSV row with its decimal texts as numbers."""
    return {k: int(v) if isinstance(v, str) and v.isdecimal() and len(v) < 19 else v for k, v in row.items()}


def _jsonl(file: Path, lines: Iterable[str]) -> Iterator[TraceRow]:
    seen: set[str] = set()
    keys = ("id", "arrive", "prompt", "max_tokens")
    for line, row in _json_rows(file, lines):
        try:
            for key in row:
                if key not in keys:
                    raise _Broken(f"{short(key)}: unknown key, allowed {', '.join(keys)}")
            name = row.get("id")
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                raise _Broken(f"id: found {_shown(name)}, allowed text of printable characters")
            if name in seen:
                raise _Broken(f"id: found {short(repr(name))} again, allowed a new one")
            seen.add(name)
            row = {"arrive": 0, "max_tokens": 1, **row}
            arrive = _integer(row, "arrive", 0, MAX_TIME)
            yield TraceRow(name, arrive, _segments(row.get("prompt")), _output(row, "max_tokens"))
        except _Broken as broken:
            raise InputError(f"{file}:{line}: {broken}") from None


def _segments(prompt: Any) -> Segments:
    pairs: list[Any] = prompt if isinstance(prompt, list) else [None]
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair)):
            raise _Broken(f"prompt: found {_shown(prompt)}, allowed [[seed, length], ...]")
        if not (0 <= pair[0] < 2**31 and 0 <= pair[1] <= MAX_STEP_TOKENS):
            raise _Broken(
                f"prompt: found {_shown(pair)}, allowed a seed below 2**31 and at most {MAX_STEP_TOKENS} tokens"
            )
    segments = tuple((seed, length) for seed, length in pairs)
    if not sum(length for _, length in segments):
        raise _Broken("prompt: found an empty prompt, allowed at least one token")
    return segments


def _time(row: dict[str, Any], key: str, unit: float) -> int:
    """A time in microseconds from a number in units of ``unit`` microseconds."""
    value = row.get(key)
    # The comparison refuses NaN and the infinities as well.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TIME / unit:
        return round(value * unit)
    raise _Broken(f"{key}: found {_shown(value)}, allowed a number of at least 0")


def _integer(row: dict[str, Any], key: str, low: int, high: int) -> int:
    value = row.get(key)
    if type(value) is int and low <= value <= high:
        return value
    raise _Broken(f"{key}: found {_shown(value)}, allowed a whole number from {low} to {high}")


def _output(row: dict[str, Any], key: str) -> int:
    return max(1, _integer(row, key, 0, MAX_STEP_TOKENS))


def _shown(value: Any) -> str:
    return "nothing" if value is None else shown(value)


_READERS: dict[str, Callable[[Path, Iterable[str]], Iterator[TraceRow]]] = {
    "mooncake": _mooncake,
    "bailian": _bailian,
    "azure": _azure,
    "jsonl": _jsonl,
}
