"""Proposals of fewer drafts than K: what a scenario says that they have is what rows have, run and accept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import World, ranges, worlds

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32))
OPTIONS = Options(GROUPS, preset="vllm-0.33.0", num_blocks=200, clock="steps")


class Heard(Observer):
    """Drafts of each decode row, and (drafts, right ones) of each verification, by request."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {}
        self.verified: dict[str, list[tuple[int, int]]] = {}
        self.told_at_once = 0

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self.told_at_once += steps
        if end - start == drafts + 1:
            self.rows.setdefault(request, []).append(drafts)

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self.verified.setdefault(request, []).append((drafted, accepted))


def heard(speculative: Speculative, *arrivals: Arrival, options: Options = OPTIONS) -> Heard:
    told = Heard()
    drive(replace(options, speculative=speculative), arrivals, observers=[told])
    return told


def asks(name: str = "a", index: int = 0, **more: object) -> Arrival:
    return Arrival(name, index, 0, ((1 + index, 5),), 12, **more)  # type: ignore[arg-type]


def test_entry_m_modulo_the_cycle_is_what_the_mth_proposal_has() -> None:
    told = heard(Speculative("suffix", 3, (2,), proposed_drafts=(3, 0, 1)), asks())
    # The first of 12 tokens is the prefill's; of each proposal two drafts are right, or as many as it has.
    assert told.rows["a"] == [3, 0, 1, 3, 0, 1]
    assert told.verified["a"] == [(3, 2), (1, 1), (3, 2), (1, 1)]


def test_a_requests_own_cycles_go_before_the_engines() -> None:
    engines = Speculative("ngram", 3, (1,), proposed_drafts=(2,))
    told = heard(engines, asks(), asks("b", 1, proposed_drafts=(0, 3), accepted_drafts=(3,)))
    assert set(told.rows["a"]) == {2} and set(told.verified["a"]) == {(2, 1)}
    assert told.rows["b"][:4] == [0, 3, 0, 3] and set(told.verified["b"]) == {(3, 3)}


def test_more_drafts_than_k_are_cut_to_k() -> None:
    assert set(heard(Speculative("ngram", 2, proposed_drafts=(9,)), asks()).rows["a"]) == {2}


def test_a_short_budget_cuts_what_was_proposed_as_it_cuts_k_drafts() -> None:
    told = Heard()
    speculative = Speculative("ngram", 4, (4,), proposed_drafts=(3,))
    drive(replace(OPTIONS, speculative=speculative), [asks()], [64, 2, 1, 64], observers=[told])
    assert told.rows["a"][:3] == [1, 0, 3] and told.verified["a"][:2] == [(1, 1), (3, 3)]


def test_the_requests_of_the_step_before_say_how_many_are_drafted() -> None:
    by_size = Speculative("mtp", 3, num_speculative_tokens_per_batch_size=((1, 1, 3), (2, 2, 1)))
    late = replace(asks("b", 1), time=3)
    told = heard(by_size, asks(), late)
    # Step 3 is the first of two requests; a's row has there what was drafted behind step 2.
    assert told.rows["a"][:5] == [3, 3, 3, 1, 1] and told.rows["b"][:2] == [1, 1]


def test_a_step_for_which_nothing_is_drafted_makes_no_proposal() -> None:
    none = ((1, 1, 2), (2, 9, 0))
    by_size = Speculative("mtp", 2, proposed_drafts=(2, 1), num_speculative_tokens_per_batch_size=none)
    told = heard(by_size, asks(), Arrival("b", 1, 2, ((2, 5),), 3))
    # a is alone again once b has its three tokens: entry 1 is next then, whatever lay between.
    assert told.rows["a"][:7] == [2, 1, 0, 0, 0, 2, 1]


def test_a_row_is_not_padded_where_a_batchs_size_says_how_many_are_drafted() -> None:
    prompt = Arrival("b", 1, 3, ((2, 1),), 4)
    for by_size, drafts in ((None, 3), (((1, 9, 3),), 0)):
        plain = Speculative("ngram", 3, num_speculative_tokens_per_batch_size=by_size)
        assert heard(plain, asks(), prompt).rows["b"][0] == drafts


@given(data=st.data(), drafts=st.integers(1, 5), requests=st.integers(1, 20))
def test_the_last_range_that_begins_by_then_says_what_is_drafted(
    data: st.DataObject, drafts: int, requests: int
) -> None:
    found = data.draw(ranges(5))
    speculative = Speculative("mtp", drafts, num_speculative_tokens_per_batch_size=found)
    begun = [asked for first, _, asked in found or () if first <= requests]
    assert speculative.drafts_behind(requests) == min([drafts, *begun[-1:]])


def test_a_drafter_that_looks_up_reserves_nothing_unless_it_has_a_model() -> None:
    slots = [("ngram", 0), ("suffix", 0), ("suffix", 2), ("ngram", 2), ("mtp", 0)]
    assert [Speculative(m, 3, draft_slots=n).lookahead_tokens for m, n in slots] == [0, 0, 0, 3, 3]


@pytest.mark.parametrize(("sizes", "quick"), [(None, True), ((3, 3), True), ((3, 2), False), ((0,), False)])
def test_only_a_request_whose_proposals_all_have_k_drafts_falls_quiet(
    sizes: tuple[int, ...] | None, quick: bool
) -> None:
    assert (heard(Speculative("ngram", 3, (1, 2), proposed_drafts=sizes), asks()).told_at_once > 0) == quick


def ran(world: World, fast_forward: bool) -> Outcome:
    outcome = drive(world.options, world.arrivals, world.budgets, fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0)


@settings(max_examples=100)
@given(world=worlds(varying=True), data=st.data())
def test_telling_decode_steps_at_once_changes_nothing_beside_requests_whose_proposals_vary(
    world: World, data: st.DataObject
) -> None:
    drafts = world.options.speculative.num_speculative_tokens
    whole = data.draw(st.lists(st.booleans(), min_size=8, max_size=8))
    arrivals = (replace(a, proposed_drafts=(drafts,) if whole[a.index] else None) for a in world.arrivals)
    world = replace(world, arrivals=tuple(arrivals))
    assert ran(world, True) == ran(world, False)


@settings(max_examples=60)
@given(world=worlds(varying=True, look_ahead=False))
def test_suffix_decides_as_ngram_does(world: World) -> None:
    other = replace(world.options.speculative, method="suffix")
    found = ran(replace(world, options=replace(world.options, speculative=other)), True)
    assert ran(world, True).digest == found.digest
