"""Pandas frames of a result and of its recording, as docs/python.md names their columns. Each call makes a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stateat.sim.errors import InputError
from stateat.sim.run.recorder import MISSING, Columns
from stateat.sim.run.result import Outcome, Result

if TYPE_CHECKING:
    import pandas as pd

Ints = np.ndarray[Any, np.dtype[np.int64]]
Key = tuple[str, str]
"""Variant and case."""
Recorded = Mapping[Key, Columns]
"""Recording of each run; empty: nothing was recorded."""


def summary(result: Result) -> pd.DataFrame:
    """A row for each variant: what a notebook shows of a result."""
    import pandas as pd

    counts = ("poisoned", "poisoned_roots", "wrong_restores", "tainted_requests", "requests", "steps", "deferred")
    rows = []
    for name, outcome in result.variants.items():
        rate = outcome.hit_tokens / outcome.prompt_tokens if outcome.prompt_tokens else 0.0
        row = {"variant": name, "preset": outcome.preset, **{key: getattr(outcome, key) for key in counts}}
        rows.append(row | {"hit_rate": f"{100 * rate:.1f} %"})
    return pd.DataFrame(rows)


def findings(result: Result) -> pd.DataFrame:
    """Return a row for each finding, in order."""
    return _joined(FINDINGS, [(key, _findings(outcome)) for key, outcome in _outcomes(result)])


def requests(result: Result, recorded: Recorded) -> pd.DataFrame:
    """A row for each request, in the order of arrival."""
    return _recorded(result, recorded, REQUESTS, _requests)


def steps(result: Result, recorded: Recorded) -> pd.DataFrame:
    """A row for each step that was told; those between two rows were fast-forwarded, and only decoded."""
    return _recorded(result, recorded, STEPS, _steps)


def claims(result: Result, recorded: Recorded) -> pd.DataFrame:
    """A row for each claim, in the order in which they were made."""
    return _recorded(result, recorded, CLAIMS, _claims)


def chunks(result: Result, recorded: Recorded) -> pd.DataFrame:
    """A row for each chunk, and one for each fast-forwarded run of decode steps."""
    return _recorded(result, recorded, CHUNKS, _chunks)


INT, MAYBE, TEXT, FLAG = "int64", "Int64", "str", "bool"

FINDINGS = {
    "finding": INT, "invariant": TEXT, "severity": TEXT, "step": INT, "time_us": INT, "request": TEXT, "group": TEXT,
    "column": MAYBE, "slot": MAYBE, "claimed": MAYBE, "held": MAYBE, "verdict": TEXT, "root": MAYBE, "is_root": FLAG,
    "readers": INT, "claimed_by": TEXT, "written_by": TEXT, "message": TEXT,
}  # fmt: skip
REQUESTS = {
    "request": TEXT, "index": INT, "arrive_us": INT, "prompt_tokens": INT, "output_tokens": INT, "hit_tokens": MAYBE,
    "external_tokens": MAYBE, "first_step": MAYBE, "ttft_us": MAYBE, "finish_us": MAYBE, "preempted": INT,
    "deferred": INT, "tainted": FLAG, "tainted_us": MAYBE,
}  # fmt: skip
STEPS = {
    "step": INT, "time_us": INT, "duration_us": MAYBE, "budget": INT, "prefill_tokens": INT, "decode_tokens": INT,
    "requests": INT, "claims": INT, "poisoned": INT,
}  # fmt: skip
CLAIMS = {
    "claim": INT, "step": INT, "time_us": INT, "request": TEXT, "group": TEXT, "column": INT, "slot": INT,
    "offset": INT, "hash": TEXT, "end_step": MAYBE, "why": TEXT, "finding": MAYBE, "restores": INT,
}  # fmt: skip
CHUNKS = {
    "step": INT, "time_us": INT, "duration_us": MAYBE, "request": TEXT, "start": INT, "end": INT, "drafts": INT,
    "stop": TEXT, "steps": INT,
}  # fmt: skip

Table = dict[str, Any]
"""Columns by name: arrays, or lists with None for what is missing."""


def _outcomes(result: Result) -> Iterator[tuple[Key, Outcome]]:
    for variant, outcome in result.variants.items():
        for case, one in (outcome.cases or {"": outcome}).items():
            yield (variant, case), one


def _recorded(
    result: Result, recorded: Recorded, types: Mapping[str, str], table: Callable[[Outcome, Columns], Table]
) -> pd.DataFrame:
    if not recorded:
        raise InputError(
            f"{result.scenario}: nothing of its requests, steps, claims and chunks was recorded; "
            "stateat.replay(...) records them, unless record=False"
        )
    return _joined(types, [(key, table(outcome, recorded[key])) for key, outcome in _outcomes(result)])


def _joined(types: Mapping[str, str], parts: list[tuple[Key, Table]]) -> pd.DataFrame:
    import pandas as pd

    frames: list[pd.DataFrame] = []
    for (variant, case), table in parts:
        columns = {name: pd.Series(table[name], dtype=kind) for name, kind in types.items()}
        frame = pd.DataFrame(columns)
        frame.insert(0, "variant", pd.Series([variant] * len(frame), dtype=TEXT))
        frame.insert(1, "case", pd.Series([case] * len(frame), dtype=TEXT))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _findings(outcome: Outcome) -> Table:
    found = outcome.findings
    # An ancestor that is no finding of this run: known to be wrong, but not since when.
    roots = [f.id if f.root is None else f.root if f.root >= 0 else None for f in found]
    writes = [f.write for f in found]
    return {
        "finding": [f.id for f in found],
        **{
            name: [getattr(f, name) for f in found]
            for name in (
                "invariant", "severity", "step", "time_us", "request", "group", "claimed", "held", "verdict",
                "claimed_by", "message",
            )
        },
        "column": [None if f.column < 0 else f.column for f in found],
        "slot": [None if f.slot < 0 else f.slot for f in found],
        "root": roots,
        "is_root": [f.root is None for f in found],
        "readers": [len(f.readers) for f in found],
        "written_by": ["" if w is None else f"{w.request} in step {w.step}" for w in writes],
    }  # fmt: skip


def _requests(outcome: Outcome, columns: Columns) -> Table:
    admitted = np.asarray(columns.admitted) == 0
    return {
        "request": columns.requests,
        "index": np.asarray(columns.index),
        "arrive_us": np.asarray(columns.arrive_us),
        "prompt_tokens": np.asarray(columns.prompts),
        "output_tokens": np.asarray(columns.outputs),
        "hit_tokens": _masked(columns.hits, admitted),
        "external_tokens": _masked(columns.external, admitted),
        "first_step": _masked(columns.first_step),
        "ttft_us": _masked(columns.ttft_us),
        "finish_us": _masked(columns.finish_us),
        "preempted": np.asarray(columns.preempted),
        "deferred": np.asarray(columns.deferred),
        "tainted": np.array([request in outcome.tainted for request in columns.requests], bool),
        "tainted_us": _masked([outcome.tainted.get(request, MISSING) for request in columns.requests]),
    }


def _steps(outcome: Outcome, columns: Columns) -> Table:
    index = np.asarray(columns.step_index)
    # A chunk of several steps is told after them; the steps among them that were told had it too.
    first = np.searchsorted(index, np.asarray(columns.chunk_step))
    last = np.searchsorted(index, np.asarray(columns.chunk_step) + np.asarray(columns.chunk_steps))
    drafts = np.asarray(columns.chunk_drafts)
    taken = np.asarray(columns.chunk_end) - np.asarray(columns.chunk_start)
    tokens = np.where(_fast_forwarded(columns), 1 + drafts, taken)
    # The drafts behind a prompt's end are decode tokens, as an outcome counts them.
    prefill = np.where(np.asarray(columns.chunk_prefill) == 1, np.maximum(tokens - drafts, 1), 0)

    def over_steps(each: Ints) -> Ints:
        change = np.zeros(index.size + 1, np.int64)
        np.add.at(change, first, each)
        np.subtract.at(change, last, each)
        return np.cumsum(change)[:-1]

    poisoned = np.sort([f.step for f in outcome.findings if f.invariant == "I1"])
    claimed = np.searchsorted(index, np.asarray(columns.claim_step))
    return {
        "step": index,
        "time_us": np.asarray(columns.step_us),
        "duration_us": _masked(_durations(columns)),
        "budget": np.asarray(columns.step_budget),
        "prefill_tokens": over_steps(prefill),
        "decode_tokens": over_steps(tokens - prefill),
        "requests": over_steps(np.ones(first.size, np.int64)),
        "claims": np.bincount(claimed, minlength=index.size),
        "poisoned": np.searchsorted(poisoned, index, side="right"),
    }


def _claims(outcome: Outcome, columns: Columns) -> Table:
    step = np.asarray(columns.claim_step)
    names = [group.name for group in columns.groups]
    return {
        "claim": np.arange(step.size),
        "step": step,
        "time_us": np.asarray(columns.step_us)[np.searchsorted(np.asarray(columns.step_index), step)],
        "request": [columns.requests[row] for row in columns.claim_request],
        "group": [names[group] for group in columns.claim_group],
        "column": np.asarray(columns.claim_column),
        "slot": np.asarray(columns.claim_slot),
        "offset": np.asarray(columns.claim_offset),
        "hash": [hash.hex() for hash in columns.claim_hash],
        "end_step": _masked(columns.claim_end),
        "why": columns.claim_why,
        "finding": [outcome.wrong_claims.get(i) for i in range(step.size)],
        "restores": np.asarray(columns.claim_restores),
    }


def _chunks(_: Outcome, columns: Columns) -> Table:
    step, count = np.asarray(columns.chunk_step), np.asarray(columns.chunk_steps)
    at = np.searchsorted(np.asarray(columns.step_index), step)
    time, duration = np.zeros(step.size, np.int64), np.zeros(step.size, np.int64)
    apart = _fast_forwarded(columns)
    time[~apart] = np.asarray(columns.step_us)[at[~apart]]
    duration[~apart] = _durations(columns)[at[~apart]]
    for i in np.flatnonzero(apart).tolist():
        # Its steps share the time between those that were told.
        begin = round(columns.times.begin(int(step[i])))
        time[i], duration[i] = begin, round(columns.times.finish(int(step[i] + count[i] - 1))) - begin
    return {
        "step": step,
        "time_us": time,
        "duration_us": _masked(duration),
        "request": [columns.requests[row] for row in columns.chunk_request],
        "start": np.asarray(columns.chunk_start),
        "end": np.asarray(columns.chunk_end),
        "drafts": np.asarray(columns.chunk_drafts),
        "stop": columns.chunk_stop,
        "steps": count,
    }


def _fast_forwarded(columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(columns.chunk_fast).astype(bool)


def _durations(columns: Columns) -> Ints:
    """Return the duration of each told step; MISSING where it never committed."""
    committed = np.asarray(columns.step_commit_us)
    return np.where(committed == MISSING, MISSING, committed - np.asarray(columns.step_us))


def _masked(values: Any, missing: Any = None) -> Any:
    """A column with gaps: where ``missing`` says so, or where a number is MISSING."""
    import pandas as pd

    numbers = np.asarray(values, np.int64)
    return pd.arrays.IntegerArray(numbers, numbers == MISSING if missing is None else missing)
