"""A kernel exports what its own rule says, whether a block was reserved for it or not."""

from __future__ import annotations

from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
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
