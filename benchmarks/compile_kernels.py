"""Compile every Triton kernel ahead of time, for GPUs that need not be here, and say what each would take of one.

Columns: registers of a thread; stack bytes of a thread (0: nothing is spilled); shared memory of a block in bytes;
fused multiply-adds in the assembly (PTX, or that of the GPU for hip); seconds to compile. For hip, registers are VGPRs,
and the division and square root of IEEE 754 are made of fused multiply-adds, which is no fusion of ours.

Exit code 1 if a kernel of the sequential form has a fused multiply-add in PTX, or if any kernel spills.
"""

# mypy: ignore-errors
# Triton has no types that a checker could see.

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

os.environ.pop("TRITON_INTERPRET", None)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from stateat.kernels import triton_states
from stateat.kernels.families import FAMILIES
from stateat.kernels.families import shape as shape_of

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
"""A100, H100 and H200, B200, MI300."""

REAL = (
    ("ring", "small"),
    ("gated-delta", "qwen3-next"),
    ("kda", "kimi-linear"),
    ("ssd", "nemotron-nano-9b-v2"),
    ("ssd", "falcon-h1"),
    ("selective-scan", "jamba-v0.1"),
    ("short-conv", "lfm2-1.2b"),
)
"""The widths at which the families are compiled."""

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def kernels():
    """(name, kernel, dtype of its states) of every family and form at its real width."""
    for family, preset in REAL:
        shape, record = shape_of(family, preset), FAMILIES[family]
        dtype = "i64" if record.exact else "fp32"
        if not shape.heads:
            yield f"{family} {preset}", triton_states.convolution_kernel(shape), dtype
            continue
        yield f"{family} {preset}", triton_states.recurrent_kernel(shape), dtype
        if chunk := record.chunk_tokens:
            kernel = triton_states.recurrent_kernel(shape, "chunked", chunk)
            yield f"{family} {preset} chunk {chunk}", kernel, dtype


def compiled(kernel, dtype, target):
    """What a launch would compile."""
    signature, attributes = {}, {}
    for index, name in enumerate(kernel.function.arg_names):
        if name in kernel.constants:
            signature[name] = "constexpr"
        elif name in ("out_ptr", "state_ptr", "work_ptr"):
            signature[name] = f"*{dtype}"
        elif name.endswith("_ptr"):
            signature[name] = "*i64" if name == "first_ptr" else "*i32"
        else:
            signature[name] = "i32"
        if name.endswith("_ptr"):
            # torch aligns what it allocates, and a launch makes use of that.
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=kernel.function, signature=signature, constexprs=kernel.constants, attrs=attributes)
    options = {"num_warps": kernel.warps, **triton_states.OPTIONS}
    return triton.compile(source, target=target, options=options)


def measure(name, kernel, dtype, label):
    """One row of the table."""
    began = perf_counter()
    binary = compiled(kernel, dtype, TARGETS[label])
    seconds = perf_counter() - began
    usage = of_cubin(binary) if TARGETS[label].backend == "cuda" else of_amdgcn(binary)
    return {
        "kernel": name,
        "target": label,
        "chunked": "chunk" in name,
        "warps": kernel.warps,
        **usage,
        "shared": binary.metadata.shared,
        "seconds": round(seconds, 2),
    }


def of_cubin(binary):
    """Registers and stack of the machine code, fused multiply-adds of the PTX."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name], check=True, capture_output=True, text=True
        ).stdout
    registers, stack = (int(re.search(rf"{word}:(\d+)", said)[1]) for word in ("REG", "STACK"))
    return {"registers": registers, "stack": stack, "fma": len(re.findall(r"\bfma\.", binary.asm["ptx"]))}


def of_amdgcn(binary):
    """The same of the assembly's own metadata."""
    text = binary.asm["amdgcn"]
    registers, stack = (
        int(re.search(rf"\.{word}:\s*(\d+)", text)[1]) for word in ("vgpr_count", "private_segment_fixed_size")
    )
    return {"registers": registers, "stack": stack, "fma": len(re.findall(r"\bv_(?:pk_)?(?:fma|fmac|mad)_f", text))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="one line of JSON a row")
    options = parser.parse_args()
    labels = options.targets.split(",")
    if unknown := [label for label in labels if label not in TARGETS]:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if not options.json:
        print(f"triton {triton.__version__}\n")
        print("| kernel | target | warps | registers | stack B | shared B | fused | compile s |")
        print("|---|---|---|---|---|---|---|---|")
    bad = False
    with tempfile.TemporaryDirectory() as cache:
        # An old cache would hide what this release compiles, and how fast.
        triton.knobs.cache.dir = cache
        for name, kernel, dtype in kernels():
            for label in labels:
                row = measure(name, kernel, dtype, label)
                fused = row["fma"] and not row["chunked"] and TARGETS[label].backend == "cuda"
                bad = bad or bool(row["stack"] or fused)
                if options.json:
                    print(json.dumps(row), flush=True)
                else:
                    keys = ("kernel", "target", "warps", "registers", "stack", "shared", "fma", "seconds")
                    print("| " + " | ".join(str(row[key]) for key in keys) + " |", flush=True)
    sys.exit(int(bad))


if __name__ == "__main__":
    main()
