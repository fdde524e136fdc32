"""Check and time the Triton kernels on this machine's GPU; ``gpu.sh`` starts it.

1. States at real widths against the float64 reference: ``ring`` and ``conv`` exact, the others within TOLERANCE.
2. Bits: of the sequential form across splits, batches and other wants; of the chunked form across aligned splits.
3. Speed: tokens a second of one layer, kernels alone (states carried in and tables already on the GPU), and the part of
   the roofline: the time in which the GPU could have moved the bytes, or done the arithmetic, whichever is longer, over
   the time taken. Bytes: states in, states out, ids. FLOP: the recurrence's; draws are not counted, and multiplications
   and additions of the sequential form are not fused, so that it cannot pass half of the peak.

Exit code 0; 1 if a check of 1 or 2 fails or was not reached, or a case broke; 2 without a GPU. With ``--rehearse`` all
of it runs on tiny sizes under Triton's interpreter: what it prints is of no GPU.
"""

# mypy: ignore-errors
# Triton and torch have no types that a checker could see.

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

BUDGET = 420.0
"""Seconds after which no further case begins."""
TOLERANCE = 1e-5
"""Relative Frobenius norm. Rounding of float32 alone is below 1e-6; a GPU's exp is less exact than a CPU's."""

REAL = (
    ("gated-delta", "qwen3-next", 64),
    ("kda", "kimi-linear", 64),
    ("ssd", "nemotron-nano-9b-v2", 128),
    ("ssd", "falcon-h1", 128),
    ("selective-scan", "jamba-v0.1", 0),
    ("short-conv", "lfm2-1.2b", 0),
    ("ring", "small", 0),
)
"""Family, preset, chunk (0: no chunked form)."""

CASES = ((1, 2048), (64, 512), (256, 128), (256, 1))
"""Requests, tokens of each."""

PEAKS = {
    "GH200": (4000, 66.9),
    "H200": (4800, 66.9),
    "H100 PCIe": (2000, 51.2),
    "H100": (3350, 66.9),
    "B200": (8000, 75.0),
    "A100-SXM4-80GB": (2039, 19.5),
    "A100": (1555, 19.5),
    "L40S": (864, 91.6),
    "L40": (864, 90.5),
    "L4": (300, 30.3),
    "A10": (600, 31.2),
    "MI300X": (5300, 163.4),
}
"""GB/s and TFLOP/s of float32 outside matrix units, of data sheets, by a part of the device name: the first
that fits. For any other device, the bandwidth of a copy, and no bound by arithmetic."""


def flop(shape, chunk):
    """Of one token in one layer, by the formulas of the kernels; e^x counts as one."""
    cells = shape.heads * shape.rows * shape.columns
    if chunk and shape.family == "ssd":
        return 2 * cells
    if chunk:
        return 4 * cells + shape.heads * chunk * (2 * shape.rows + shape.columns)
    return {"ssd": 3, "short-conv": 0}.get(shape.family, 5) * cells


def moved(shape, requests, wants, length):
    """Bytes of a launch that no kernel could save: states in and out, once, and ids."""
    return shape.bytes() * (requests + wants) + 4 * requests * length


class Bench:
    """What all parts share: the device, the sizes, and what was found."""

    def __init__(self, options, torch):
        self.began = perf_counter()
        self.torch = torch
        self.rehearse = options.rehearse
        self.only = options.only
        self.device = "cpu" if options.rehearse else "cuda"
        self.failures = []
        self.rows = []
        if options.rehearse:
            self.name, self.peaks = "rehearsal under Triton's interpreter, no GPU", None
        else:
            self.name = torch.cuda.get_device_name()
            self.peaks = next((peaks for part, peaks in PEAKS.items() if part in self.name), None)

    def real(self):
        """(label, shape, chunk)"""
        from stateat.kernels.families import shape as shape_of

        for family, preset, chunk in REAL:
            if self.only and family != self.only:
                continue
            if self.rehearse:
                if preset == "falcon-h1":
                    continue  # nemotron's stands for both
                preset, chunk = "small", chunk and 16
            yield f"{family} {preset}", shape_of(family, preset), chunk

    def attempt(self, what, case, *arguments):
        """Run one case. What breaks it fails it alone: a GPU is not always at hand for another try."""
        if perf_counter() - self.began > BUDGET:
            print(f"no time for {what}", flush=True)
            if case is not timing:
                self.failures.append(f"no time for {what}")
            return
        try:
            case(self, *arguments)
        except Exception as error:
            self.check(f"{what}: {type(error).__name__}: {error}", False)

    def forms(self):
        """(label, shape, form, chunk)"""
        for label, shape, chunk in self.real():
            yield f"{label} sequential", shape, "sequential", chunk or 16
            if chunk:
                yield f"{label} chunked {chunk}", shape, "chunked", chunk

    def check(self, what, holds):
        print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
        if not holds:
            self.failures.append(what)


def tokens(length, seed):
    import numpy as np

    return np.random.default_rng(seed).integers(-1, 60000, length)


def same(a, b):
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def correctness(bench, label, shape, form, chunk):
    """Part 1."""
    import numpy as np

    from stateat.kernels import reference
    from stateat.kernels.families import FAMILIES
    from stateat.kernels.triton_states import states_at
    from stateat.kernels.work import Work

    lengths = (0, 1, 9, 20) if bench.rehearse else (0, 1, 63, 200)
    works = [Work(tokens(n, n), tuple(sorted({0, n // 2, n}))) for n in lengths]
    found = states_at(shape, works, device=bench.device, form=form, chunk=chunk)
    worst, exact = 0.0, True
    for work, states in zip(works, found, strict=True):
        for offset, state in zip(work.offsets, states, strict=True):
            for name, array in reference.absorb(shape, work.tokens[:offset]).items():
                if name == "conv" or FAMILIES[shape.family].exact:
                    exact = exact and np.array_equal(state[name], array)
                else:
                    error = np.linalg.norm(state[name] - array) / max(np.linalg.norm(array), 1e-30)
                    worst = max(worst, float(np.nan_to_num(error, nan=np.inf)))
    bench.check(f"{label}: largest error {worst:.1e}, the rest exact", worst < TOLERANCE and exact)


def bits(bench, label, shape, form, chunk):
    """Part 2."""
    from stateat.kernels.triton_states import states_at
    from stateat.kernels.work import Work

    total = 2 * chunk + 3

    def at(works):
        return states_at(shape, works, device=bench.device, form=form, chunk=chunk)

    def split(work, cuts):
        state = None
        for start, end in zip([0, *cuts], [*cuts, total], strict=True):
            [[state]] = at([Work(work.tokens[start:end], (end - start,), state)])
        return state

    work = Work(tokens(total, 1), (total,))
    others = [Work(tokens(n, n), (n // 2, n)) for n in (7, 2 * total, 1)]
    [[whole]] = at([work])
    cuts = [[chunk], [1, chunk + 1]] if form == "sequential" else [[chunk], [chunk, 2 * chunk]]
    bench.check(f"{label}: same bits across splits", all(same(split(work, c), whole) for c in cuts))
    batched = at([*others, replace(work, offsets=(1, chunk, total)), *others])
    bench.check(f"{label}: same bits in a batch", same(batched[len(others)][-1], whole))


def timed(bench, launch, least=0.2):
    """Median seconds of one launch."""
    from stateat.kernels.triton_states import run

    if bench.rehearse:
        began = perf_counter()
        run(launch)
        return perf_counter() - began
    cuda = bench.torch.cuda
    run(launch)
    cuda.synchronize()
    taken, total = [], 0.0
    while len(taken) < 3 or (total < least and len(taken) < 100):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        run(launch)
        end.record()
        cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
        total += taken[-1]
    return sorted(taken)[len(taken) // 2]


def bandwidth(bench):
    """GB/s of a copy, read and write."""
    torch = bench.torch
    size = 1 << 16 if bench.rehearse else 1 << 30
    source = torch.ones(size // 4, device=bench.device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(5):
        if not bench.rehearse:
            torch.cuda.synchronize()
        began = perf_counter()
        target.copy_(source)
        if not bench.rehearse:
            torch.cuda.synchronize()
        best = min(best, perf_counter() - began)
    return 2 * size / best / 1e9


def timing(bench, label, shape, form, chunk, requests, length, rates, sweep):
    """One row of part 3."""
    from stateat.kernels.families import FAMILIES
    from stateat.kernels.triton_states import prepare
    from stateat.kernels.work import Work

    wants = tuple(sorted({max(length // 2, 1), length}))
    works = [Work(tokens(length, n), wants) for n in range(requests)]
    launch = prepare(shape, works, device=bench.device, form=form, chunk=chunk)
    seconds = timed(bench, launch)
    bytes_moved = moved(shape, requests, requests * len(wants), length)
    work = flop(shape, chunk if form == "chunked" else 0) * requests * length * shape.layers
    gigabytes, teraflop = rates
    limits = {"bytes": bytes_moved / gigabytes / 1e9}
    if teraflop and not FAMILIES[shape.family].exact:
        limits["FLOP"] = work / teraflop / 1e12
    bound = max(limits, key=limits.get)
    row = {
        "kernel": label,
        "requests": requests,
        "tokens": length,
        "ms": round(seconds * 1e3, 3),
        "tokens_per_s": round(requests * length / seconds),
        "gb_per_s": round(bytes_moved / seconds / 1e9, 1),
        "gflop_per_s": round(work / seconds / 1e9, 1),
        "bound": bound,
        "of_roofline": round(limits[bound] / seconds, 4),
    }
    bench.rows.append(row)
    print("| " + " | ".join(str(value) for value in row.values()) + " |", flush=True)
    if sweep and form == "sequential":
        sweep_tiles(bench, launch, label)


def speed(bench, sweep):
    """Part 3."""
    copied = bandwidth(bench)
    rates = bench.peaks or (copied, None)
    print(f"\ncopy: {copied:.0f} GB/s measured; roofline of {rates[0]:.0f} GB/s, {rates[1] or 'unknown'} TFLOP/s\n")
    print("| kernel | requests | tokens | ms | tokens/s | GB/s | GFLOP/s | bound | of roofline |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = ((2, 17), (3, 1)) if bench.rehearse else CASES
    for label, shape, form, chunk in bench.forms():
        for requests, length in cases:
            # One token is no chunk.
            if form == "sequential" or length > 1:
                swept = sweep and (requests, length) == cases[len(cases) // 2 - 1]
                what = f"speed of {label} at {requests} x {length}"
                bench.attempt(what, timing, label, shape, form, chunk, requests, length, rates, swept)


def sweep_tiles(bench, launch, label):
    """Tiles and warps other than the chosen ones, for the kernel of the recurrent component."""
    from stateat.kernels import triton_states

    for number, (kernel, grid, arguments) in enumerate(launch.calls):
        if kernel.function is triton_states.conv_kernel:
            continue
        constants = kernel.constants
        axis = constants.get("V", constants.get("P"))
        for tile in sorted({max(constants["TILE"] // 2, 1), constants["TILE"], constants["TILE"] * 2}):
            for warps in (1, 2, 4):
                other = replace(kernel, constants=constants | {"TILE": tile}, tiles=-(-axis // tile), warps=warps)
                calls = list(launch.calls)
                calls[number] = (other, (*grid[:2], other.tiles), arguments)
                seconds = timed(bench, replace(launch, calls=tuple(calls)), 0.05)
                chosen = " (chosen)" if (tile, warps) == (constants["TILE"], kernel.warps) else ""
                print(f"  sweep {label}: tile {tile}, {warps} warps: {seconds * 1e3:.3f} ms{chosen}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes under Triton's interpreter, without a GPU")
    parser.add_argument("--sweep", action="store_true", help="also time other tiles and warps")
    parser.add_argument("--only", choices=sorted({family for family, _, _ in REAL}), help="one family")
    parser.add_argument("--json", metavar="FILE", help="also write what was found to this file")
    options = parser.parse_args()
    # The interpreter is chosen when a kernel is defined.
    os.environ["TRITON_INTERPRET"] = "1" if options.rehearse else "0"
    import torch
    import triton

    if not options.rehearse and not torch.cuda.is_available():
        print(
            "gpu.py: torch sees no GPU here, so nothing was measured (--rehearse walks the same way without one)",
            file=sys.stderr,
        )
        sys.exit(2)
    bench = Bench(options, torch)
    print(f"{bench.name}; torch {torch.__version__}, triton {triton.__version__}\n")
    for part in (correctness, bits):
        for case in bench.forms():
            bench.attempt(f"{part.__name__} of {case[0]}", part, *case)
    speed(bench, options.sweep)
    if options.json:
        found = {"device": bench.name, "torch": torch.__version__, "triton": triton.__version__}
        found |= {"failures": bench.failures, "speed": bench.rows}
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\n{len(bench.failures)} failures, {perf_counter() - bench.began:.0f} s")
    for failure in bench.failures:
        print(f"  {failure}")
    if options.rehearse:
        print("This was a rehearsal: no figure above is of a GPU.")
    sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
