"""Blocks that a chunk does not fill: J1's figures, and that each policy moves on or says why not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.oracle.chunks import check_shape
from stateat.oracle.evidence import Evidence
from stateat.oracle.states import family as family_of
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.presets import table
from stateat.sim.releases.support import lacks
from stateat.sim.rules.wide_block import WIDE_BLOCK
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

WIDE = Options(
    (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 11_392)), partial_hits=False, clock="steps"
)


def prefill(policy: str, prompt: int, budgets: tuple[int, ...] = (), **engine: object) -> tuple[int, ...] | None:
    """The ends of a prompt's chunks; None: it hangs."""
    options = replace(WIDE, rules={"wide_block": policy}, **engine)  # type: ignore[arg-type]
    outcome = drive(options, [Arrival("a", 0, 0, ((1, prompt),))], budgets)
    assert not outcome.poisoned
    return None if outcome.livelock else outcome.ends["a"]


def test_j1_a_private_state_moves_on_inside_the_block() -> None:
    ends = (8192, 11_392, 19_584, 22_784, 30_000)
    assert prefill("private", 30_000) == prefill("private-always", 30_000) == ends
    assert prefill("wait", 30_000) is None


def test_j1_a_budget_that_is_short_once_is_waited_out_if_the_cap_holds_a_block() -> None:
    late, at_once = (11_392, 22_784, 30_000), (8192, 11_392, 22_784, 30_000)
    assert prefill("private", 30_000, (8192,), max_num_batched_tokens=11_392) == late
    assert prefill("wait", 30_000, (8192,), max_num_batched_tokens=11_392) == late
    assert prefill("private-always", 30_000, (8192,), max_num_batched_tokens=11_392) == at_once


def test_j2_the_threshold_is_a_cap_too() -> None:
    assert prefill("private", 12_000, long_prefill_token_threshold=8000) == (8000, 11_392, 12_000)
    assert prefill("wait", 12_000, long_prefill_token_threshold=8000) is None


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 300))
def test_private_progress_always_ends_and_keeps_every_boundary_that_it_can(block: int, cap: int, prompt: int) -> None:
    groups = (WIDE.groups[0], Group("gdn", "recurrent", block))
    for policy in ("private", "private-always"):
        ends = prefill(policy, prompt, groups=groups, max_num_batched_tokens=cap)
        assert ends is not None and ends[-1] == prompt
        # No chunk passes a boundary that it starts short of, inside a block.
        starts = (0, *ends)
        for start, end in zip(starts, ends, strict=False):
            assert start % block == 0 or end <= (start // block + 1) * block


@given(st.integers(1, 40), st.integers(1, 60))
def test_to_wait_is_to_hang_exactly_if_a_prompt_never_fits(block: int, cap: int) -> None:
    groups = (WIDE.groups[0], Group("gdn", "recurrent", block))
    hangs = prefill("wait", 100, groups=groups, max_num_batched_tokens=cap) is None
    assert hangs == (cap < block)


@pytest.mark.parametrize("policy", WIDE_BLOCK)
@pytest.mark.parametrize(
    ("budget", "threshold", "keys"),
    [
        (8192, 0, ["max_num_batched_tokens"]),
        (8192, 4000, ["max_num_batched_tokens", "long_prefill_token_threshold"]),
        (11_392, 0, []),
        (11_392, 11_392, []),
        (20_000, 11_391, ["long_prefill_token_threshold"]),
    ],
)
def test_only_reject_refuses_and_names_each_key(policy: str, budget: int, threshold: int, keys: list[str]) -> None:
    options = replace(WIDE, max_num_batched_tokens=budget, long_prefill_token_threshold=threshold)
    found = [key for (key,), text in lacks(options, table("vllm-0.27.0", {"wide_block": policy})) if "11392" in text]
    assert found == (keys if policy == "reject" else [])


@pytest.mark.parametrize("taken", [0, 4])
def test_i2_counts_what_a_drafter_takes_off_the_longest_chunk(taken: int) -> None:
    """Up to 0.27 a budget of a block, less a drafter's slots, never holds one: progress inside it is private."""
    options = Options(
        (Group("gdn", "recurrent", 16),),
        preset="vllm-0.27.0",
        speculative=Speculative("eagle3", 4, draft_slots=taken),
        max_num_batched_tokens=16,
        max_num_seqs=1,
        clock="steps",
    )
    assert Policy.of(options).in_force()["longest_chunk"] == 16 - taken
    outcome = drive(options, [Arrival("a", 0, 0, ((1, 13),))])
    assert (outcome.ends["a"], outcome.findings) == ((12, 13) if taken else (13,), ())
    unheard = Policy.of(options).in_force() | {"longest_chunk": 16}
    evidence = Evidence(family_of("digest"))
    evidence.configure(options.groups, 4, unheard)
    evidence.arrive("a", 0, ((1, 13),), None, 1)
    check_shape(evidence, "a", evidence.requests["a"], 0, 12, "budget")
    assert [f.invariant for f in evidence.lineage.findings()] == ["I2"]
