"""A value of a rule does what its words in ``docs/rules.md`` say, in every mode and wherever it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from stateat.sim.cache.drafter_drop import DRAFTER_DROP
from stateat.sim.events import Group, Observer
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.rules.proposals import replay_boundary
from stateat.sim.rules.split import Chunk
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

ATTENTION = Group("attention", "full-attention", 16)
WIDE = Group("attention", "full-attention", 64)
STATES = Group("states", "recurrent", 64)
ALL = Group("states", "recurrent", 16, mamba_cache_mode="all")
AHEAD = Speculative("mtp", 1)


class Heard(Observer):
    """Claims by their tokens and blocks, hits and what is brought, and the slots that are read."""

    def __init__(self) -> None:
        self.claims: list[int] = []
        self.claimed: list[int] = []
        self.admitted: list[tuple[int, int]] = []
        self.reads: list[tuple[str, int, int]] = []

    def claim(self, group: int, block: int, request: str, column: int, offset: int, digest: bytes) -> None:
        self.claims.append(offset)
        self.claimed.append(block)

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.admitted.append((hit, external))

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        self.reads.append((request, start, read))


def run(
    groups: tuple[Group, ...], arrivals: Sequence[Arrival], preset: str = "vllm-0.33.0", **changes: Any
) -> tuple[Heard, Outcome]:
    heard = Heard()
    options = Options(groups, preset=preset, clock="steps", max_num_batched_tokens=512, **changes)
    return heard, drive(options, arrivals, (), observers=[heard])


def prompts(*lengths: int, **changes: Any) -> list[Arrival]:
    """The same text, so long, ten steps apart, one output each."""
    return [Arrival(f"r{i}", i, 10 * i, ((1, length),), 1, **changes) for i, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("rules", "changes"),
    [
        ({"boundaries": "floor"}, {}),
        ({"snapshots": "kept", "split": "snapshot-points"}, {"snapshots": (48,)}),
    ],
)
def test_no_state_is_published_under_a_hash_that_is_not_known_yet(
    rules: dict[str, str], changes: dict[str, Any]
) -> None:
    """The hash of a prompt's last unit covers the first output, where it looks ahead."""
    # When its step commits, it would be.
    rules = {"publish": "at-schedule", **rules}
    groups = (ATTENTION, STATES)
    assert 48 in run(groups, prompts(48, **changes), "vllm-0.32.0", rules=rules)[0].claims
    assert 48 not in run(groups, prompts(48, **changes), rules=rules, speculative=AHEAD)[0].claims
    assert 48 in run(groups, prompts(49, **changes), rules=rules, speculative=AHEAD)[0].claims


def test_whole_blocks_publishes_no_tail_of_attention_either() -> None:
    groups = (WIDE, Group("states", "recurrent", 32))
    for preset in ("vllm-0.27.0", "vllm-0.33.0"):
        hits = {
            rule: run(groups, prompts(100, 100), preset, prefix_match_unit=16, rules={"boundaries": rule})[0].admitted
            for rule in ("floor", "whole-blocks")
        }
        assert (hits["floor"][1], hits["whole-blocks"][1]) == ((96, 0), (0, 0)), preset


def test_nobody_is_a_look_ahead_drafters_where_the_flagged_groups_drop_and_none_is_flagged() -> None:
    unflagged = Options((ATTENTION, STATES), speculative=AHEAD)
    assert not DRAFTER_DROP["drop-flagged"].marks(unflagged) and not DRAFTER_DROP["drop-flagged"].lookup_drops(
        unflagged
    )
    flagged = Options((Group("attention", "full-attention", 16, eagle=True), STATES), speculative=AHEAD)
    assert DRAFTER_DROP["drop-flagged"].marks(flagged) and DRAFTER_DROP["drop-flagged"].lookup_drops(flagged)
    assert DRAFTER_DROP["drop"].marks(unflagged)


def test_a_connector_that_fails_closed_brings_no_external_tokens_either() -> None:
    for groups, found in (((ATTENTION, STATES), 0), ((ATTENTION,), 64)):
        heard, _ = run(groups, prompts(100, external=64), "vllm-0.28.0", rules={"connector": "fails-closed"})
        assert heard.admitted == [(0, found)]


def test_the_tier_is_asked_for_a_shorter_prefix_where_a_connector_failed() -> None:
    arrivals = [
        Arrival("a", 0, 0, ((1, 80),), 1),
        # Takes the blocks of the pool that a had.
        Arrival("b", 1, 10, ((2, 150),), 1),
        Arrival("c", 2, 20, ((1, 200),), 1, external=128, load_error=True),
    ]
    groups = (Group("attention", "full-attention", 16), Group("states", "recurrent", 16))
    for value, brought in (("shorter-prefix", 80), ("recompute", 0)):
        rules = {"load_failure": value}
        heard, _ = run(groups, arrivals, "vllm-0.28.0", rules=rules, num_blocks=17, offload=Offload(100))
        assert heard.admitted[-1] == (0, brought)


def test_a_resend_starts_so_far_before_its_end_as_hashes_look_ahead() -> None:
    for length, ahead, start in ((66, 0, 64), (66, 1, 64), (66, 3, 48), (67, 3, 64), (64, 1, 48)):
        chunk = Chunk(0, length, length, length, length, 16, 0, 512, False, ahead, 0)
        assert replay_boundary(chunk) == (start,)


def test_a_request_in_all_mode_reads_what_its_slot_holds_where_slots_are_not_zeroed() -> None:
    for worker, read in (("v2", {-1}), ("unzeroed", {1, 2, 3, 4, 5, 6, 7, 8})):
        heard, outcome = run((ALL,), prompts(40), "vllm-0.28.0", rules={"worker": worker})
        assert {slot for _, start, slot in heard.reads if start == 0} <= read
        assert (outcome.wrong_reads > 0) is (worker == "unzeroed")


def test_a_request_in_all_mode_that_is_skipped_for_a_step_loses_its_count_with_worker_v1() -> None:
    arrivals = [Arrival(name, i, 0, ((i + 1, 20),), 12) for i, name in enumerate("ab")]
    # In the steps of three tokens there is room for one of them.
    budgets = (64, 64, 3, 3, 64, 3, 3, 64)
    options = Options(
        (ALL,),
        preset="vllm-0.28.0",
        num_blocks=100,
        max_num_batched_tokens=64,
        speculative=Speculative("ngram", 2, (1,)),
        clock="steps",
    )
    wrong = {
        worker: drive(replace(options, rules={"worker": worker}), arrivals, budgets).wrong_reads
        for worker in ("v2", "v1")
    }
    assert wrong["v2"] == 0 and wrong["v1"] > 0


def test_a_checkpoint_is_reserved_only_before_the_running_column() -> None:
    """Where the slots behind the scheduled tokens reach into another block, the running column lies behind it, and the
    null block would be advertised."""
    groups = (Group("attention", "full-attention", 4), Group("states", "recurrent", 4))
    heard, outcome = run(
        groups,
        prompts(7, 7),
        "vllm-0.32.0",
        rules={"state_slots": "with-look-ahead"},
        num_prefill_checkpoint_blocks=1,
        speculative=Speculative("dflash", 1, block_drop=False),
    )
    assert outcome.finished == 2 and 0 not in heard.claimed


def test_a_tail_that_is_published_late_waits_for_the_next_step_of_its_owner_where_others_are_at_commit() -> None:
    rules = {"boundaries": "floor", "tail_copy": "published-late"}
    for tokens, claims in ((1, []), (3, [48])):
        arrivals = [Arrival("a", 0, 0, ((1, 48),), tokens)]
        heard, _ = run((ATTENTION, STATES), arrivals, rules=rules, speculative=Speculative("ngram", 1))
        assert heard.claims == claims
