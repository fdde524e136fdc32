"""Frames made by hand, with the columns of ``Result``'s frames and of a sweep's table."""

from __future__ import annotations

from typing import Any

import pandas as pd

RUN = {"variant": "old gate", "case": ""}


def frame(rows: list[dict[str, Any]], columns: str) -> pd.DataFrame:
    """Rows as a frame; what may be missing is a nullable integer."""
    made = pd.DataFrame([RUN | row for row in rows], columns=["variant", "case", *columns.split()])
    nullable = [name for name in ("claimed", "held", "end_step", "finding") if name in made and name != "finding"]
    if "end_step" in made:
        nullable.append("finding")
    return made.astype(dict.fromkeys(nullable, "Int64"))


def chunk(step: int, request: str, start: int, end: int, stop: str, steps: int = 1, **more: Any) -> dict[str, Any]:
    """A chunk under ``clock: steps``."""
    values = {"step": step, "time_us": step, "duration_us": steps, "request": request, "start": start, "end": end}
    return values | {"drafts": 0, "stop": stop, "steps": steps} | more


def chunks(*rows: dict[str, Any]) -> pd.DataFrame:
    """S2 under the old gate, unless told otherwise."""
    anatomy = (
        chunk(0, "a", 0, 364, "budget"),
        chunk(1, "a", 364, 2002, "prompt-end"),
        chunk(3, "b", 1600, 2002, "prompt-end"),
        chunk(6, "c", 1600, 2402, "prompt-end"),
    )
    return frame(list(rows or anatomy), "step time_us duration_us request start end drafts stop steps")


def finding(index: int = 0, **more: Any) -> dict[str, Any]:
    """S2's."""
    values = {
        "finding": index, "invariant": "I1", "severity": "poison", "step": 1, "time_us": 1, "request": "a",
        "group": "gdn", "column": 0, "slot": 24, "claimed": 1600, "held": 364, "verdict": "wrong offset",
        "root": index, "is_root": True, "readers": 2,
        "claimed_by": "a in step 1", "written_by": "a in step 0",
        "message": "gdn column 0 (slot 24, request a) is hashed as state@1600 but holds state@364",
    }  # fmt: skip
    return values | more


def findings(*rows: dict[str, Any]) -> pd.DataFrame:
    columns = (
        "finding invariant severity step time_us request group column slot claimed held verdict root is_root readers "
        "claimed_by written_by message"
    )
    return frame(list(rows), columns)


def requests(*tainted_us: int | None) -> pd.DataFrame:
    """One for each time: when it first read a wrong state."""
    rows = [{"request": f"r{i}", "tainted_us": time} for i, time in enumerate(tainted_us)]
    return frame(rows, "request tainted_us").astype({"tainted_us": "Int64"})


def claim(index: int, step: int, slot: int, **more: Any) -> dict[str, Any]:
    values = {
        "claim": index, "step": step, "time_us": step, "request": "a", "group": "gdn", "column": 0, "slot": slot,
        "offset": 1600, "hash": f"{index:032x}", "end_step": None, "why": "", "finding": None, "restores": 0,
    }  # fmt: skip
    return values | more


def claims(*rows: dict[str, Any]) -> pd.DataFrame:
    columns = "claim step time_us request group column slot offset hash end_step why finding restores"
    return frame(list(rows), columns)


def run(number: int, variant: str, seed: int = 0, point: int = 0, **more: Any) -> dict[str, Any]:
    """A row of a sweep's table; swept keys are among ``more``, as ``{"engine.max_num_seqs": 4}``."""
    keys = {name: value for name, value in more.items() if "." in name}
    counts = {
        "poisoned": 4, "poisoned_roots": 2, "claims": 100, "restores": 50, "starts": 50, "wrong_restores": 2,
        "wrong_reads": 0, "tainted_requests": 2, "requests": 100, "finished": 100,
        "hit_tokens": 80_000, "prompt_tokens": 200_200, "prefill_tokens": 120_200,
        "deferred": 0, "steps": 400, "preempted": 0, "evicted": 0, "livelock": False,
        "ttft_p50_us": 640_000, "ttft_p95_us": 900_000, "ttft_p99_us": 1_100_000, "time_us": 9_000_000,
    }  # fmt: skip
    rest = {name: value for name, value in more.items() if name not in keys}
    head = {"run": number, "point": point, "seed": seed, "variant": variant, "case": ""}
    return head | keys | counts | {"digest": f"{number:08x}", "error": ""} | rest


def sweep(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows))
