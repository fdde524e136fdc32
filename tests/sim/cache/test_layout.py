"""The layout of a cache: a manager for each kind of group, and the sizes that all parts share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateat.sim.cache.groups import AllModeCache, AttentionCache, RecurrentCache
from stateat.sim.cache.layout import Layout, layout
from stateat.sim.cache.window import ScratchCache, WindowCache
from stateat.sim.events import Group, Observer
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.releases.policy import Policy

ATTENTION, STATES = Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64)


def laid_out(options: Options) -> Layout:
    return layout(options, Policy.of(options).rules, Observer())


@pytest.mark.parametrize(
    ("group", "manager"),
    [
        (ATTENTION, AttentionCache),
        (replace(ATTENTION, sliding_window=100), WindowCache),
        (replace(ATTENTION, prefix_cacheable=False), ScratchCache),
        (STATES, RecurrentCache),
        (replace(STATES, mamba_cache_mode="all"), AllModeCache),
    ],
)
def test_each_kind_of_group_has_its_manager(group: Group, manager: type) -> None:
    made = laid_out(Options((ATTENTION, group)))
    assert type(made.managers[1]) is manager
    assert made.managers[1].recurrent == group.recurrent
    assert (made.managers[1].group, made.managers[1].block_size) == (1, group.block_size)


def test_a_drafters_group_drops_and_the_others_do_not() -> None:
    options = Options((replace(ATTENTION, eagle=True), STATES), speculative=Speculative("mtp", 1))
    assert [m.drops for m in laid_out(options).managers] == [True, False]
    assert [m.drops for m in laid_out(replace(options, speculative=Speculative())).managers] == [False, False]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("blocks", [0, 9])
def test_publications_are_noted_only_where_somebody_asks_for_them(batches: int, blocks: int) -> None:
    ledger = laid_out(Options((ATTENTION, STATES), max_concurrent_batches=batches, offload=Offload(blocks))).ledger
    assert (ledger.traces, ledger.stores) == (batches > 1, blocks > 0)
