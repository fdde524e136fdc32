"""How many tokens a second the states of each family absorb, beside the naive recurrences of flash-linear-attention.

One thread, and its CPU time, so that other work on the machine counts less. Every number is the median of ``--runs``
rounds over the columns of a row, and a ratio the median of the ratios within a round. With ``--fla`` the naive
functions get the same inputs, drawn beforehand, and must reach the same states.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch

from stateat.kernels import inputs
from stateat.kernels.backends import states_at
from stateat.kernels.families import CHUNKED, shape
from stateat.kernels.shapes import Shape
from stateat.kernels.work import Work

BATCH = 64
ONE, MANY, NAIVE_MANY = 256, 64, 8
"""Tokens of a run's request: alone, and in a batch; the naive functions, each of whose tokens takes the same time, get
the first ones of a batch only."""

LEAST_SECONDS = 0.3
"""Of a round of a column: a shorter run is repeated, or it would pay for memory that the column before it gave back."""

FLA_FILES = {"gated-delta": "fla/ops/gated_delta_rule/naive.py", "kda": "fla/ops/kda/naive.py"}
FLA_NAMES = {"gated-delta": "naive_recurrent_gated_delta_rule", "kda": "naive_recurrent_kda"}
FLA_HINT = "python -m pip install --no-deps --target DIR fla-core einops, then --fla DIR"

COLUMNS = ("numpy", "sequential", f"sequential, {BATCH}", "chunked", "naive", f"naive, {BATCH}")


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    shape: Shape
    chunk: int = 64


def four_heads(family: str, preset: str) -> Shape:
    width = shape(family, preset)
    return replace(width, heads=4, key_heads=4, conv_channels=3 * 4 * width.rows)


ROWS = (
    Row("gated-delta, 16/32 x 128 (qwen3-next)", shape("gated-delta", "qwen3-next")),
    Row("gated-delta, 4 x 128", four_heads("gated-delta", "qwen3-next")),
    Row("gated-delta, 2 x 16 (small)", shape("gated-delta")),
    Row("kda, 32 x 128 (kimi-linear)", shape("kda", "kimi-linear")),
    Row("kda, 4 x 128", four_heads("kda", "kimi-linear")),
    Row("ssd, 128 x 80 x 128 (nemotron-nano-9b-v2)", shape("ssd", "nemotron-nano-9b-v2"), 128),
    Row("ssd, 2 x 16 x 16 (small)", shape("ssd"), 128),
    Row("selective-scan, 8192 x 16 (jamba-v0.1)", shape("selective-scan", "jamba-v0.1")),
    Row("ring, 2 x 16 (small)", shape("ring")),
    Row("short-conv, 2048 (lfm2-1.2b)", shape("short-conv", "lfm2-1.2b")),
)


def load_naive(folder: Path | None, family: str) -> Callable[..., Any] | None:
    """The naive recurrence of a family from its file alone: the package itself wants a GPU's libraries."""
    if folder is None or family not in FLA_FILES:
        return None
    path = folder / FLA_FILES[family]
    if not path.is_file():
        sys.exit(f"{path} is missing; {FLA_HINT}")
    spec = importlib.util.spec_from_file_location(f"naive_{family.replace('-', '_')}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"{path} needs {error.name}; {FLA_HINT}")
    found: Callable[..., Any] = getattr(module, FLA_NAMES[family])
    return found


def works_of(count: int, length: int) -> list[Work]:
    ids = np.random.default_rng(5).integers(0, 50_000, (count, length))
    return [Work(row, (length,)) for row in ids]


def naive_run(width: Shape, naive: Callable[..., Any], works: list[Work]) -> Callable[[], Any]:
    """A call of the naive recurrence on the inputs of ``works``: [B, T, heads, dim]; keys stand in for queries."""
    tokens = np.stack([work.tokens for work in works])
    drawn = inputs.delta(width, inputs.NumpySource(width, tokens), 0, width.heads)
    g, k, v, beta = (torch.from_numpy(np.ascontiguousarray(array)) for array in drawn)
    return lambda: naive(k, k, v, beta=beta, g=g, output_final_state=True)[1]


def runs_of(row: Row, naive: Callable[..., Any] | None) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Column to tokens of a run and the run."""
    alone, batch = works_of(1, ONE), works_of(BATCH, MANY)

    def ours(works: list[Work], **options: Any) -> tuple[int, Callable[[], Any]]:
        return sum(work.tokens.size for work in works), lambda: states_at(row.shape, works, **options)

    found = {
        "numpy": ours(alone, backend="numpy"),
        "sequential": ours(alone),
        COLUMNS[2]: ours(batch),
    }
    if row.shape.family in CHUNKED:
        found["chunked"] = ours(alone, form="chunked", chunk=row.chunk)
    if naive is not None:
        begun = [Work(work.tokens[:NAIVE_MANY], (NAIVE_MANY,)) for work in batch]
        found["naive"] = ONE, naive_run(row.shape, naive, alone)
        found[COLUMNS[5]] = BATCH * NAIVE_MANY, naive_run(row.shape, naive, begun)
        agree(row, found["chunked"][1](), found["naive"][1]())
        agree(row, found["sequential"][1](), found["naive"][1]())
        agree(row, states_at(row.shape, begun), found[COLUMNS[5]][1]())
    return found


def agree(row: Row, ours: Any, naive: Any) -> None:
    """Both have computed the same states, or the program stops."""
    mine = np.concatenate([states[0]["recurrent"] for states in ours])
    error = np.linalg.norm(mine - naive.numpy()) / np.linalg.norm(mine)
    if not error < 1e-5:
        sys.exit(f"{row.label}: the states differ by {error:.1e}")


def measure(row: Row, naive: Callable[..., Any] | None, runs: int) -> dict[str, list[float]]:
    """Column to tokens a second of each round."""
    columns = runs_of(row, naive)
    times = {}
    for name, (_, run) in columns.items():
        started = process_time()
        run()
        times[name] = max(1, round(LEAST_SECONDS / (process_time() - started)))
    rates: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(runs):
        for name, (tokens, run) in columns.items():
            started = process_time()
            for _ in range(times[name]):
                run()
            rates[name].append(times[name] * tokens / (process_time() - started))
    return rates


def ratio(rates: dict[str, list[float]], one: str, other: str) -> str:
    if one not in rates or other not in rates:
        return "-"
    return f"{median(a / b for a, b in zip(rates[one], rates[other], strict=True)):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds, whose median counts")
    parser.add_argument("--fla", type=Path, help="a folder with the fla package (fla-core) and einops in it")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.fla is None:
        print(f"Without flash-linear-attention its columns are empty. To fill them: {FLA_HINT}\n")
    else:
        sys.path.append(str(args.fla))
    ratios = (("chunked", "naive"), (COLUMNS[2], "naive"), (COLUMNS[2], COLUMNS[5]))
    print("| tokens/s |", " | ".join((*COLUMNS, *(f"{one} / {other}" for one, other in ratios))), "|")
    print("|---" * (1 + len(COLUMNS) + len(ratios)) + "|")
    for row in ROWS:
        if args.only not in row.label:
            continue
        rates = measure(row, load_naive(args.fla, row.shape.family), args.runs)
        cells = [f"{median(rates[name]):,.0f}" if name in rates else "-" for name in COLUMNS]
        cells += [ratio(rates, one, other) for one, other in ratios]
        print(f"| {row.label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
