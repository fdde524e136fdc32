"""Small loads that were once decided or judged wrongly; each right value stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import load

SLOTS = """
  groups: [{name: g0, kind: recurrent, block_size: 4}]
  max_num_batched_tokens: 3
  max_num_seqs: 2
  speculative: {draft_slots: 1}
workload:
  requests: [{id: r3, prompt: [[0, 1]], max_tokens: 4}, {id: r6, prompt: [[0, 1]]}]
"""
WIDE_DRAFTS = """
  groups: [{name: g1, kind: recurrent, block_size: 1}]
  speculative: {num_speculative_tokens: 1}
workload: {requests: [{id: r0, prompt: [[0, 1]], max_tokens: 5}]}
"""
EXPORTS_IN_FLIGHT = """
  preset: vllm-0.33.0
  groups: [{name: g0, kind: recurrent, block_size: 1}]
  max_num_batched_tokens: 2
  max_concurrent_batches: 2
  num_prefill_checkpoint_blocks: 1
workload: {requests: [{id: r2, prompt: [[0, 6]]}]}
"""
WINDOW_IN_FLIGHT = """
  groups:
  - {name: g1, kind: recurrent, block_size: 2}
  - {name: win, kind: full-attention, block_size: 1, sliding_window: 1}
  max_concurrent_batches: 2
workload: {requests: [{id: r3, prompt: [[0, 3]], external: 1}]}
"""
MOVED_AWAY = """
  preset: vllm-0.33.0
  groups: [{name: g0, kind: recurrent, block_size: 2}]
  speculative: {num_speculative_tokens: 3}
  num_prefill_checkpoint_blocks: 1
workload:
  requests: [{id: r0, prompt: [[1, 2]], max_tokens: 6}]
  budgets: [2, 2, 0, 2, 0, 2, 4, 3, 1]
"""


def outcome(folder: Path, text: str, fast_forward: bool = True) -> Outcome:
    file = folder / "case.yaml"
    file.write_text(f"schema: stateat/1\nname: f\nengine:{text}")
    (run,) = load(file).expanded
    return simulate(run, fast_forward=fast_forward)


def test_quiet_requests_take_their_part_of_what_a_drafters_slots_leave(tmp_path: Path) -> None:
    steps = [outcome(tmp_path, SLOTS, fast).steps for fast in (True, False)]
    assert steps == [5, 5]


@pytest.mark.parametrize("text", [WIDE_DRAFTS, EXPORTS_IN_FLIGHT, WINDOW_IN_FLIGHT])
def test_what_a_release_does_by_itself_holds_no_block_too_many_or_of_another(tmp_path: Path, text: str) -> None:
    assert outcome(tmp_path, text).findings == ()


def test_a_checkpoint_of_which_the_block_was_moved_away_claims_nothing(tmp_path: Path) -> None:
    """As vLLM 0.33.0 has decided it: the drafts of a decode reach over a hash unit, and the step before moved that."""
    moved = outcome(tmp_path, MOVED_AWAY)
    assert (moved.claims, moved.poisoned, moved.findings) == (3, 0, ())
