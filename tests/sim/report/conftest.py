"""Synthetic runs: the anatomy of the bug (S2), told as an engine would tell it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stateat.sim.events import SCHEMA, Finding, Group, Observer, Write
from stateat.sim.run.result import Failure, Outcome, Result

GROUPS = (Group("attention", "full-attention", 16, eagle=True), Group("gdn", "recurrent", 1600))
HASH = b"\x01" * 16


def tell_old_gate(to: Observer) -> None:
    """a: 0→364, then 364→2002, so that slot 17 is claimed as state@1600; b restores from it and runs to 2002."""
    to.run(SCHEMA, "reference", GROUPS, 3, {"clock": "steps"})
    to.arrive("a", 0, 0, ((1, 2002),), None, 1)
    to.step(0, 0, 364)
    to.admit("a", 0, 0, False)
    to.chunk("a", 0, 364, 0, "budget", 0, ())
    to.step(1, 1, 2002)
    to.claim(1, 17, "a", 0, 1600, HASH)
    to.chunk("a", 364, 2002, 0, "prompt-end", 0, ())
    to.output("a", 1, None)
    to.finish("a")
    to.arrive("b", 1, 2, ((1, 2002),), None, 1)
    to.step(2, 2, 8192)
    to.admit("b", 1600, 0, False)
    to.restore("b", 1, 17, 0, 1600, (1600, 1600))
    to.chunk("b", 1600, 2002, 0, "prompt-end", 0, ())
    to.output("b", 1, None)
    to.finish("b")
    to.end(3, 3, False)


def tell_fixed_gate(to: Observer) -> None:
    """a: deferred, then 0→2002 in one chunk and no claim; b finds nothing and does the same."""
    to.run(SCHEMA, "reference", GROUPS, 3, {"clock": "steps"})
    to.arrive("a", 0, 0, ((1, 2002),), None, 1)
    to.step(0, 0, 364)
    to.defer("a", 364, "block-boundary")
    to.step(1, 1, 2002)
    to.admit("a", 0, 0, False)
    to.chunk("a", 0, 2002, 0, "prompt-end", 0, ())
    to.output("a", 1, None)
    to.finish("a")
    to.arrive("b", 1, 2, ((1, 2002),), None, 1)
    to.step(2, 2, 8192)
    to.admit("b", 0, 0, False)
    to.chunk("b", 0, 2002, 0, "prompt-end", 0, ())
    to.output("b", 1, None)
    to.finish("b")
    to.end(3, 3, False)


def make_finding(id: int = 0, **changes: object) -> Finding:
    values: dict[str, object] = {
        "id": id, "invariant": "I1", "severity": "poison", "step": 1, "time_us": 1, "request": "a", "group": "gdn",
        "column": 0, "slot": 17, "claimed": 1600, "held": 364, "verdict": "wrong offset", "root": None,
        "readers": ("b",), "write": Write(0, "a", 0, 364, "chunk"), "claimed_by": "a in step 1",
        "message": "gdn column 0 (slot 17, request a) is hashed as state@1600 but holds state@364",
    }  # fmt: skip
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def make_outcome(variant: str = "old gate", **changes: object) -> Outcome:
    values: dict[str, object] = {
        "variant": variant, "preset": "vllm-0.26.0", "groups": GROUPS, "rules": {}, "poisoned": 1,
        "poisoned_roots": 1, "findings": (make_finding(),), "wrong_restores": 1, "tainted_requests": 1,
        "hit_tokens": 1600, "prompt_tokens": 4004, "output_tokens": 2, "requests": 2, "finished": 2, "steps": 3,
        "chunks": 3, "claims": 1, "restores": 1, "ttft_us": {"p50": 1.0, "p95": 2.0, "p99": 2.0}, "digest": "00ff",
        "ends": {"a": (364, 2002), "b": (2002,)}, "hits": {"a": 0, "b": 1600}, "violated": 1, "wall_s": 0.5,
    }  # fmt: skip
    return Outcome(**{**values, **changes})  # type: ignore[arg-type]


def make_clean(variant: str = "fixed gate", **changes: object) -> Outcome:
    return make_outcome(
        variant,
        **{
            "preset": "vllm-0.27.0", "poisoned": 0, "poisoned_roots": 0, "findings": (), "wrong_restores": 0,
            "tainted_requests": 0, "hit_tokens": 0, "deferred": 1, "null_boundaries": 2, "claims": 0, "restores": 0,
            "ends": {"a": (2002,), "b": (2002,)}, "hits": {"a": 0, "b": 0}, "violated": 0, "chunks": 2, **changes,
        },
    )  # fmt: skip


def make_result(*failures: Failure, expected: bool = True, **variants: Outcome) -> Result:
    outcomes = {outcome.variant: outcome for outcome in variants.values()} or {
        "old gate": make_outcome(),
        "fixed gate": make_clean(),
    }
    return Result(
        "fragmented-first-chunk", "A 364-token first chunk poisons slot 0", "vLLM PR 51113",
        "scenarios/seeds/fragmented-first-chunk.yaml", "steps", outcomes, tuple(failures), expected,
    )  # fmt: skip


@pytest.fixture
def told() -> SimpleNamespace:
    """The runs to tell and the results to print."""
    return SimpleNamespace(
        old_gate=tell_old_gate,
        fixed_gate=tell_fixed_gate,
        finding=make_finding,
        outcome=make_outcome,
        clean=make_clean,
        result=make_result,
        groups=GROUPS,
    )
