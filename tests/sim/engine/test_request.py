"""Requests inside the engine, and what their drafters get right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.engine.request import Proposals, Request
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.rules.partial_hits import PARTIAL_HITS_WHEN
from stateat.sim.tokens import VOCABULARY
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))


def request(prompt: int = 10, outputs: int = 5, longest: int = 100, drafts: int = 2) -> Request:
    options = Options(GROUPS, max_model_len=longest, speculative=Speculative("mtp", drafts))
    return Request(Arrival("a", 3, 0, ((1, prompt),), outputs), options, 0)


@given(
    cycle=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    drafts=st.integers(0, 4),
    places=st.lists(st.integers(0, 200), min_size=1, max_size=6),
)
def test_entry_m_modulo_the_cycle_is_for_the_mth_proposal(cycle: list[int], drafts: int, places: list[int]) -> None:
    acceptance = Proposals(Speculative("mtp", drafts), cycle, 0, "a")
    for place in places:
        assert acceptance.of(place) == min(cycle[place % len(cycle)], drafts)


def test_a_request_without_a_cycle_has_the_engines() -> None:
    assert [Proposals(Speculative("mtp", 3, (1, 2)), None, 0, "a").of(m) for m in range(4)] == [1, 2, 1, 2]


@given(st.integers(0, 60), st.integers(0, 60))
def test_what_was_emitted_is_the_sum_of_accepted_drafts_and_one_each(first: int, more: int) -> None:
    acceptance = Proposals(Speculative("mtp", 3, (2, 0, 3)), None, 0, "a")
    acceptance.emitted(first)
    emitted = acceptance.emitted(first + more).tolist()
    assert emitted[first + more] == sum([2, 0, 3][m % 3] + 1 for m in range(first + more))


@given(rate=st.floats(0, 1), seed=st.integers(0, 5), ask=st.integers(0, 80))
def test_drawn_drafts_do_not_depend_on_who_asks_first(rate: float, seed: int, ask: int) -> None:
    speculative = Speculative("mtp", 4, acceptance_rate=rate)
    one, other = (Proposals(speculative, None, seed, "a") for _ in range(2))
    one.of(ask)
    counts = [one.of(m) for m in range(80)]
    assert counts == [other.of(m) for m in range(80)]
    assert all(0 <= n <= 4 for n in counts)
    if rate in (0, 1):
        assert set(counts) == {4 * int(rate)}


def test_other_requests_and_seeds_draw_others() -> None:
    speculative = Speculative("mtp", 4, acceptance_rate=0.5)
    drawn = {
        (seed, name): tuple(Proposals(speculative, None, seed, name).of(m) for m in range(60))
        for seed in (0, 1)
        for name in "ab"
    }
    assert len(set(drawn.values())) == 4


def test_a_cycle_of_the_request_goes_before_a_rate() -> None:
    acceptance = Proposals(Speculative("mtp", 4, acceptance_rate=0.0), (3,), 0, "a")
    assert acceptance.of(7) == 3


@given(right=st.integers(0, 3), position=st.integers(0, 12))
def test_drafts_are_the_true_tokens_as_far_as_they_are_right(right: int, position: int) -> None:
    made = request(drafts=3)
    truth = made.tokens.ids[position : position + 3].tolist()
    drafts = made.draft_ids(position, right, 3)
    assert drafts[:right] == truth[:right]
    assert drafts[right:] == [(t + 1) % VOCABULARY for t in truth[right:]]


def test_outputs_stop_at_the_models_longest_and_are_one_at_least() -> None:
    assert request(prompt=90, outputs=50).max_outputs == 10
    assert request(prompt=10, outputs=50).max_outputs == 50
    assert request(prompt=100, outputs=50).max_outputs == 1


def test_a_prefill_ends_at_the_prompt_and_its_replay_one_token_short_of_all() -> None:
    made = request(prompt=10)
    for outputs, end in ((0, 10), (1, 10), (2, 11), (5, 14)):
        made.outputs = outputs
        assert (made.num_tokens, made.prefill_end) == (10 + outputs, end)


def test_options_follow_from_the_groups() -> None:
    options = Options((*GROUPS, Group("kda", "recurrent", 24)))
    assert (options.hash_unit, options.scheduler_block_size, PARTIAL_HITS_WHEN["cacheable-groups"].on(options)) == (
        4,
        48,
        True,
    )
    assert (options.attention, options.recurrent) == ((0,), (1, 2))
    assert Options(GROUPS, prefix_match_unit=2).hash_unit == 2
    assert not PARTIAL_HITS_WHEN["cacheable-groups"].on(Options(GROUPS, partial_hits=False))


def test_only_look_ahead_drafters_drop_and_only_models_look_ahead() -> None:
    told = {m: (Speculative(m, 2).eagle, Speculative(m, 2).lookahead_tokens) for m in ("mtp", "draft_model", "ngram")}
    assert told == {"mtp": (True, 2), "draft_model": (False, 2), "ngram": (False, 0)}
    assert not Speculative("mtp", 0).eagle
