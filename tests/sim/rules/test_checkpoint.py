"""A kernel exports what its own rule says, whether a block was reserved for it or not."""

from __future__ import annotations

import pytest

from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.rules.checkpoint import CHECKPOINT, Query
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival


def test_a_chunk_that_does_not_end_its_prefill_exports_into_a_speculative_block_under_retention_0() -> None:
    """As vLLM 0.32 and 0.33: the kernel is not told that nothing was reserved, and finds a block in that column."""
    options = Options(
        (Group("attention", "full-attention", 1), Group("states", "recurrent", 1)),
        preset="vllm-0.33.0",
        num_blocks=60,
        max_num_batched_tokens=5,
        num_prefill_checkpoint_blocks=1,
        prefix_cache_retention_interval=0,
        speculative=Speculative("ngram", 1),
        clock="steps",
    )
    arrivals = [Arrival("a", 0, 0, ((1, 9),), 3), Arrival("b", 1, 1, ((1, 3), (2, 8)), 3)]
    decisions = Decisions()
    outcome = drive(options, arrivals, (), observers=[decisions])
    # Of b's tokens 1 to 3; the block is the one in which the chunk then ends.
    assert ("ckpt", 2, 16, "b") in decisions.copies[2] and ("pre", 15, 16, "b") in decisions.copies[2]
    assert outcome.poisoned == 0 and outcome.wrong_reads == 0


AT_ITS_END = {"each-chunk", "hash-unit", "at-prefill-end", "column-key"}


@pytest.mark.parametrize(
    ("start", "end", "eagle", "exempt"),
    [
        (32, 60, False, {"any-aligned-start", *AT_ITS_END}),
        (32, 60, True, AT_ITS_END),
        (33, 60, False, set()),
        # It does not reach the prefill's end: of what it exports the release of 0.29 does not ask.
        (32, 50, False, {"any-aligned-start"}),
    ],
)
def test_which_chunks_the_split_lets_run_on(start: int, end: int, eagle: bool, exempt: set[str]) -> None:
    query = Query(start=start, end=end, prefill_end=60, position=48, block=16, hash_unit=4, alignment=4)
    assert {name for name, rule in CHECKPOINT.items() if rule.exempts(query, eagle)} == exempt
