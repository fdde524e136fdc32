"""Which groups, drafters and sites give something up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateat.sim.cache.drafter_drop import DRAFTER_DROP
from stateat.sim.cache.lookup import geometry
from stateat.sim.events import Group
from stateat.sim.options import LOOK_AHEAD_METHODS, Offload, Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.tokens import Segments
from stateat.sim.workload import Arrival

METHODS = ("mtp", "eagle", "eagle3", "dflash", "dspark")


def options(method: str, *eagle: bool, drafts: int = 3) -> Options:
    names = ("attention", "gdn", "draft")
    kinds = ("full-attention", "recurrent", "full-attention")
    sizes = (32, 32, 16)
    groups = tuple(Group(n, k, s, e) for n, k, s, e in zip(names, kinds, sizes, eagle or (False,) * 3, strict=True))
    return Options(groups, speculative=Speculative(method, drafts))


@pytest.mark.parametrize("method", METHODS)
def test_s15_who_fills_in_is_spared_from_0_33_on(method: str) -> None:
    fills_in = method in ("dflash", "dspark")
    for name in ("drop", "drop-at-hashed"):
        assert DRAFTER_DROP[name].drop(options(method)) and DRAFTER_DROP[name].lookup_drops(options(method))
    assert DRAFTER_DROP["drop-eagle-family"].drop(options(method)) is not fills_in
    assert DRAFTER_DROP["look-ahead-hash"].ahead(options(method)) == (0 if fills_in else 1)
    assert not DRAFTER_DROP["look-ahead-hash"].drop(options(method))


def test_all_that_look_ahead_or_fill_in_are_known() -> None:
    assert LOOK_AHEAD_METHODS == METHODS


@pytest.mark.parametrize("name", [name for name in DRAFTER_DROP if name != "ignore"])
def test_nothing_is_given_up_without_drafts(name: str) -> None:
    assert not DRAFTER_DROP[name].drop(options("mtp", drafts=0)) and not DRAFTER_DROP[name].lookup_drops(
        options("ngram")
    )


@pytest.mark.parametrize(
    ("name", "flags", "families", "split"),
    [
        ("drop", (False, False, False), {0, 1, 2}, True),
        ("drop", (False, False, True), {2}, True),
        ("drop-all-groups", (False, False, True), {0, 1, 2}, True),
        ("drop-flagged", (False, False, False), set(), False),
        ("drop-flagged", (False, False, True), {2}, False),
        ("drop-flagged", (False, True, True), {1, 2}, True),
    ],
)
def test_d12_the_scope_is_of_the_lookup_and_where_a_policy_says_so_of_the_split(
    name: str, flags: tuple[bool, ...], families: set[int], split: bool
) -> None:
    asked, guard = options("mtp", *flags), DRAFTER_DROP[name]
    geo = geometry(asked, guard.lookup_drops(asked), guard.past_the_end, guard.scope(asked.groups), guard.states)
    assert {g for f in geo.families for g in f.groups if f.drops} == families
    assert guard.drop(asked) is split


def test_dflash_has_a_slot_more_for_the_last_sampled_token() -> None:
    assert [Speculative(m, 3).lookahead_tokens for m in (*METHODS, "ngram")] == [3, 3, 3, 4, 3, 0]
    assert Speculative("dflash", 0).lookahead_tokens == 0


def ends(method: str, attention: int, prompts: Sequence[Segments], eagle: bool = False, **more: bool) -> Outcome:
    """What vLLM 0.33 decides for prompts of one step, with ``shared_prefix_checkpoint`` and recurrent blocks of 16."""
    how = Options(
        (Group("attention", "full-attention", attention, eagle), Group("gdn", "recurrent", 16)),
        preset="vllm-0.33.0",
        shared_prefix_checkpoint=True,
        speculative=Speculative(method, 1, **more),  # type: ignore[arg-type]
        clock="steps",
    )
    return drive(how, [Arrival(name, i, 0, text) for i, (name, text) in enumerate(zip("ab", prompts, strict=True))])


def test_an_exact_junction_hangs_on_flagged_groups_and_not_on_what_they_give_up() -> None:
    """Each as vLLM 0.33.0 decides it: chunk ends of the second request."""
    shared, longer = (((1, 5), (2, 4)), ((1, 9),)), (((1, 8),), ((1, 17),))
    # It looks ahead in place of a drop: none drops, none is flagged.
    assert (ends("eagle", 4, shared).ends["b"], ends("eagle", 4, shared).claims) == ((8, 9), 4)
    assert ends("eagle", 4, shared, eagle=True).ends["b"] == (4, 8, 9)
    # It drops: all groups are the drafter's.
    assert ends("eagle", 4, shared, hash_lookahead=False).ends["b"] == (4, 9)
    # It gives nothing up, and its group is flagged all the same.
    assert (ends("dspark", 8, longer, eagle=True).ends["b"], ends("dspark", 8, longer).ends["b"]) == (
        (8, 16, 17),
        (16, 17),
    )
    assert ends("eagle", 8, longer, eagle=True, block_drop=False).ends["b"] == (8, 16, 17)


def test_a_flagged_group_drops_in_0_32_whatever_the_option_says_and_so_does_what_is_kept_for_a_repeat() -> None:
    off = replace(options("mtp", True, False, False), speculative=Speculative("mtp", 3, block_drop=False))
    none = replace(off, groups=tuple(replace(group, eagle=False) for group in off.groups))
    old, new = DRAFTER_DROP["drop-at-hashed"], DRAFTER_DROP["look-ahead-hash"]
    assert (old.drop(off), old.lookup_drops(off), old.replay_drops(off), old.marks(off)) == (False, True, True, True)
    assert (new.drop(off), new.lookup_drops(off), new.replay_drops(off), new.marks(off)) == (False, False, False, True)
    for guard in (old, new):
        assert not (guard.lookup_drops(none) or guard.replay_drops(none) or guard.marks(none))


def test_beside_a_tier_hashes_look_at_no_token_behind_their_block_and_a_drop_takes_their_place() -> None:
    """vLLM 0.33: with a connector the hashes stay as they were (``VllmConfig.num_hash_lookahead_tokens``)."""
    guard, how = DRAFTER_DROP["look-ahead-hash"], options("mtp")
    beside = replace(how, offload=Offload(blocks=8))
    assert (guard.ahead(how), guard.drop(how)) == (1, False)
    assert (guard.ahead(beside), guard.drop(beside)) == (0, True)
