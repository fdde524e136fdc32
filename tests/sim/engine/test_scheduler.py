"""One step: who runs, how far, who is admitted, who is sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import EVENTS, Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))
CACHED = Options(GROUPS, num_blocks=500, clock="steps")
PLAIN = replace(CACHED, enable_prefix_caching=False)
"""No prefix cache, so no grid: tokens alone decide."""


class Heard(Observer):
    """All that an engine says, as (step, event, arguments...)."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.index = 0

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[1] in names]

    @property
    def chunks(self) -> list[tuple[int, str, int, int]]:
        return [(step, request, start, end) for step, _, request, start, end, *_ in self.of("chunk")]


def _hear(name: str) -> Any:
    def method(self: Heard, *args: Any) -> None:
        if name == "step":
            self.index = args[0]
        self.events.append((self.index, name, *args))

    return method


for _name in EVENTS:
    setattr(Heard, _name, _hear(_name))


def ask(name: str, prompt: int, outputs: int = 1, time: int = 0, seed: int | None = None) -> tuple[Any, ...]:
    return name, prompt, outputs, time, seed


def play(options: Options, *asked: tuple[Any, ...], budgets: Sequence[int] = ()) -> tuple[Outcome, Heard]:
    arrivals = [
        Arrival(name, i, time, ((i + 1 if seed is None else seed, prompt),), outputs)
        for i, (name, prompt, outputs, time, seed) in enumerate(asked)
    ]
    heard = Heard()
    return drive(options, arrivals, budgets, observers=[heard], fast_forward=False), heard


# Order and limits.


def test_running_requests_come_first_then_waiting_ones_in_order_while_the_budget_lasts() -> None:
    _, heard = play(PLAIN, ask("a", 10, 3), ask("b", 20), ask("c", 5), budgets=[25, 10, 10])
    assert heard.chunks == [
        (0, "a", 0, 10),
        (0, "b", 0, 15),
        (1, "a", 10, 11),
        (1, "b", 15, 20),
        (1, "c", 0, 4),
        (2, "a", 11, 12),
        (2, "c", 4, 5),
    ]
    assert [e[2] for e in heard.of("admit")] == ["a", "b", "c"]


def test_no_more_than_max_num_seqs_run() -> None:
    _, heard = play(replace(PLAIN, max_num_seqs=2), ask("a", 5, 3), ask("b", 5, 2), ask("c", 5))
    assert [(e[0], e[2]) for e in heard.of("admit")] == [(0, "a"), (0, "b"), (2, "c")]


def test_the_threshold_bounds_every_prefill_chunk_and_leaves_the_rest_to_others() -> None:
    _, heard = play(replace(PLAIN, long_prefill_token_threshold=7), ask("a", 20), ask("b", 3))
    assert heard.chunks == [(0, "a", 0, 7), (0, "b", 0, 3), (1, "a", 7, 14), (2, "a", 14, 20)]
    assert [e[6] for e in heard.of("chunk")] == ["threshold", "prompt-end", "threshold", "prompt-end"]


def test_a_sequence_ends_at_the_models_longest() -> None:
    outcome, heard = play(replace(PLAIN, max_model_len=12), ask("a", 10, 50))
    assert outcome.output_tokens == 2
    assert heard.chunks == [(0, "a", 0, 10), (1, "a", 10, 11)]


def test_what_ended_a_chunk_is_named() -> None:
    _, heard = play(CACHED, ask("a", 40, 2), budgets=[20, 1000, 1000])
    assert [e[6] for e in heard.of("chunk")] == [
        "block-boundary", "last-cache-position", "prompt-end", "decode",
    ]  # fmt: skip
    _, heard = play(PLAIN, ask("a", 40), budgets=[20])
    assert [e[6] for e in heard.of("chunk")] == ["budget", "prompt-end"]


@st.composite
def loads(draw: st.DrawFn) -> tuple[Options, list[tuple[Any, ...]], list[int]]:
    cap = draw(st.integers(16, 60))
    drafts = draw(st.integers(0, 2))
    options = replace(
        draw(st.sampled_from([CACHED, PLAIN])),
        preset=draw(st.sampled_from(["vllm-0.26.0", "vllm-0.27.0"])),
        max_num_batched_tokens=cap,
        max_num_seqs=draw(st.integers(1, 3)),
        long_prefill_token_threshold=draw(st.sampled_from([0, 16])),
        num_blocks=draw(st.sampled_from([60, 500])),
        speculative=Speculative("mtp" if drafts else "ngram", drafts, (0, 2)),
    )
    asked = [
        ask(name, draw(st.integers(1, 70)), draw(st.integers(1, 12)), draw(st.integers(0, 6)), draw(st.integers(1, 2)))
        for name in "abcdef"[: draw(st.integers(1, 6))]
    ]
    return options, asked, draw(st.lists(st.integers(1, cap), max_size=6))


@given(loads())
def test_budget_seats_and_order_are_kept_in_every_step(load: tuple[Options, list[tuple[Any, ...]], list[int]]) -> None:
    options, asked, budgets = load
    outcome, heard = play(options, *asked, budgets=budgets)
    assert outcome.finished == len(asked)
    tokens: dict[int, int] = {}
    chunked: dict[int, list[str]] = {}
    for step, request, start, end in heard.chunks:
        assert end > start
        tokens[step] = tokens.get(step, 0) + end - start
        chunked.setdefault(step, []).append(request)
    for step, _, index, _time, budget in heard.of("step"):
        assert step == index
        assert budget == (budgets[step] if step < len(budgets) else options.max_num_batched_tokens)
        assert tokens.get(step, 0) <= budget
    running: list[str] = []
    for event in heard.events:
        if event[1] == "admit":
            running.append(event[2])
        elif event[1] == "preempt":
            # Always the youngest.
            assert running.pop() == event[2]
        elif event[1] == "finish":
            running.remove(event[2])
        assert len(running) <= options.max_num_seqs
    # Nobody is chunked twice in a step.
    assert all(len(set(names)) == len(names) for names in chunked.values())
    # First come, first served.
    first = {e[2]: i for i, e in reversed(list(enumerate(heard.of("admit"))))}
    arrived = [e[2] for e in heard.of("arrive")]
    assert [name for name in arrived if name in first] == sorted(first, key=first.__getitem__)


# Deferral.


def test_a_running_request_that_gets_no_token_is_skipped() -> None:
    _, heard = play(CACHED, ask("a", 64), ask("b", 3, 4), budgets=[19, 8, 8])
    assert heard.chunks[:5] == [(0, "a", 0, 16), (0, "b", 0, 3), (1, "b", 3, 4), (2, "b", 4, 5), (3, "a", 16, 64)]
    assert heard.of("defer") == [(1, "defer", "a", 8, "block-boundary"), (2, "defer", "a", 8, "block-boundary")]


def test_a_waiting_request_that_gets_no_token_ends_the_pass() -> None:
    _, heard = play(CACHED, ask("a", 64), ask("b", 40), ask("c", 3), budgets=[20])
    # c's three tokens would fit, and wait behind b.
    assert [row for row in heard.chunks if row[0] == 0] == [(0, "a", 0, 16)]
    assert heard.of("defer") == [(0, "defer", "b", 4, "block-boundary")]
    assert [e[2] for e in heard.of("admit")] == ["a", "b", "c"]


def test_a_refused_request_ends_the_pass() -> None:
    # a takes 10 + 1 of 19 blocks; b's whole sequence does not fit beside it, c's would.
    options = replace(CACHED, num_blocks=20)
    _, heard = play(options, ask("a", 40, 3), ask("b", 40), ask("c", 3))
    assert heard.of("refuse")[0] == (0, "refuse", "b", "full_sequence")
    assert [e[2] for e in heard.of("admit")] == ["a", "b", "c"]


def test_a_hit_on_a_state_of_the_same_step_waits_for_the_next() -> None:
    options = replace(CACHED, partial_hits=False)
    outcome, heard = play(options, ask("a", 38, 3, 0, 1), ask("b", 60, 1, 0, 1))
    assert heard.of("refuse") == [(0, "refuse", "b", "same_step")]
    assert [(e[0], e[2], e[3]) for e in heard.of("admit")] == [(0, "a", 0), (1, "b", 32)]
    assert outcome.same_step_refused == 1


# Preemption.


def crowded() -> tuple[Outcome, Heard]:
    """Two requests decode until the pool is full; c waits for a seat."""
    options = replace(PLAIN, num_blocks=14, max_num_seqs=2)
    return play(options, ask("a", 16, 20), ask("b", 16, 20), ask("c", 4))


def test_the_youngest_is_preempted_and_goes_to_the_head_of_the_queue() -> None:
    outcome, heard = crowded()
    (step, *preempted), *_ = heard.of("preempt")
    assert preempted == ["preempt", "b"]
    admitted = [(e[0], e[2], e[5]) for e in heard.of("admit")]
    rows = [row[1:] for row in admitted]
    assert rows[:3] == [("a", False), ("b", False), ("b", True)]
    # c, which waited all the time, comes last.
    assert rows[-1] == ("c", False) and set(rows[2:-1]) == {("b", True)}
    # It starts over, and nobody is admitted in a step that preempted.
    assert admitted[2][0] > step
    again = next(row for row in heard.chunks if row[0] > step and row[1] == "b")
    assert again[2] == 0
    assert outcome.preempted == len(heard.of("preempt")) and outcome.finished == 3


def test_who_asks_runs_in_the_room_that_the_youngest_left() -> None:
    _, heard = crowded()
    step = heard.of("preempt")[0][0]
    assert [row[1] for row in heard.chunks if row[0] == step] == ["a"]


def test_a_request_that_preempts_itself_ends_the_pass_and_others_keep_their_tokens() -> None:
    # a and b need their next attention block in different steps: b's turn comes with the pool empty.
    options = replace(PLAIN, num_blocks=13, max_num_seqs=3)
    outcome, heard = play(options, ask("a", 18, 12), ask("b", 15, 12), ask("c", 1, 1, 4))
    step = heard.of("preempt")[0][0]
    assert heard.of("preempt")[0][2] == "b"
    assert [row[1] for row in heard.chunks if row[0] == step] == ["a"]
    order = [e[1] for e in heard.events if e[0] == step]
    assert order.index("chunk") < order.index("preempt") and "admit" not in order
    assert outcome.finished == 3


def test_a_preempted_request_says_again_what_it_had_said_and_no_more() -> None:
    outcome, heard = crowded()
    assert outcome.output_tokens == 20 + 20 + 1
    assert sum(e[3] for e in heard.of("output") if e[2] == "b") == 20


def test_a_preempted_request_may_hit_what_it_had_cached() -> None:
    options = replace(CACHED, num_blocks=24, max_num_seqs=2, scheduler_reserve_full_isl=False)
    outcome, heard = play(options, ask("a", 16, 30), ask("b", 40, 30))
    resumed = [e for e in heard.of("admit") if e[5]]
    assert outcome.resume_hit_tokens == sum(e[3] for e in resumed) > 0
    assert outcome.hits == {"a": 0, "b": 0} and outcome.hit_tokens == 0


def test_an_evicted_slot_is_withdrawn_before_it_is_claimed_again() -> None:
    options = replace(CACHED, num_blocks=20)
    outcome, heard = play(options, *(ask(name, 40, 2, 5 * i) for i, name in enumerate("abcd")))
    assert outcome.evicted > 0
    claimed: dict[int, set[bytes]] = {}
    for event in heard.of("claim", "unclaim"):
        if event[1] == "claim":
            assert event[7] not in claimed.setdefault(event[3], set())
            claimed[event[3]].add(event[7])
        else:
            claimed[event[3]].remove(event[4])


# Placeholders.


def padded(preset: str = "vllm-0.27.0", prompt: int = 17, **more: Any) -> list[tuple[Any, ...]]:
    """b hits all of its prompt but one token while a decodes."""
    options = replace(CACHED, preset=preset, speculative=Speculative("ngram", 2), **more)
    _, heard = play(options, ask("a", 16, 12, 0, 1), ask("b", prompt, 3, 4, 1))
    return [e for e in heard.of("chunk", "accept") if e[2] == "b"][:2]


def test_a_waiting_request_with_one_token_left_is_as_wide_as_the_decodes_beside_it() -> None:
    chunk, accept = padded()
    assert chunk[3:6] == (16, 19, 2)
    assert accept[1:] == ("accept", "b", 2, 0)


def test_with_more_tokens_left_it_is_not_padded() -> None:
    chunk = padded(prompt=18)[0]
    assert chunk[3:6] == (16, 18, 0)


def test_placeholders_that_the_split_clips_are_kept_or_dropped_by_rule() -> None:
    """Block 2 and three drafts: [4, 8) is cut at the prompt's last unit or the block's end."""
    groups = (Group("attention", "full-attention", 2), Group("gdn", "recurrent", 2))
    told = {}
    for padding in ("kept", "dropped"):
        options = Options(
            groups, num_blocks=200, clock="steps", speculative=Speculative("ngram", 3),
            preset="vllm-0.26.0", rules={"padding": padding, "split": "every-boundary"},
        )  # fmt: skip
        _, heard = play(options, ask("a", 4, 12, 0, 1), ask("b", 5, 3, 4, 1))
        told[padding] = next(e for e in heard.of("chunk") if e[2] == "b")[3:6]
    assert told == {"kept": (4, 6, 3), "dropped": (4, 5, 0)}


def test_nobody_is_padded_beside_a_prefill_or_alone() -> None:
    options = replace(CACHED, speculative=Speculative("ngram", 2))
    _, heard = play(options, ask("a", 16, 1, 0, 1), ask("b", 17, 3, 4, 1))
    assert next(e for e in heard.of("chunk") if e[2] == "b")[3:6] == (16, 17, 0)
    # c's prompt takes three steps of 32.
    options = replace(options, max_num_batched_tokens=48, long_prefill_token_threshold=32)
    _, heard = play(options, ask("a", 16, 1, 0, 1), ask("c", 96, 2, 3, 9), ask("b", 17, 3, 4, 1))
    b = next(e for e in heard.of("chunk") if e[2] == "b")
    assert (b[0], *b[3:6]) == (4, 16, 17, 0)


def test_placeholders_that_do_not_fit_end_the_pass() -> None:
    options = replace(CACHED, speculative=Speculative("ngram", 2))
    _, heard = play(options, ask("a", 16, 20, 0, 1), ask("b", 17, 3, 4, 1), budgets=[100] * 4 + [5, 5, 6])
    b = next(e for e in heard.of("chunk") if e[2] == "b")
    # a takes 3 of each step's tokens: b's 3 fit in step 6.
    assert (b[0], *b[3:6]) == (6, 16, 19, 2)


# Drafts.


def test_drafts_that_are_right_are_accepted_and_the_cycle_goes_on() -> None:
    options = replace(PLAIN, speculative=Speculative("mtp", 3, (2, 0, 3)))
    _, heard = play(options, ask("a", 10, 11))
    assert [e[3:] for e in heard.of("accept")] == [(3, 2), (3, 0), (3, 3), (3, 2)]
    assert [e[3] for e in heard.of("output")] == [1, 3, 1, 4, 2]
    assert heard.chunks == [(0, "a", 0, 10), (1, "a", 10, 14), (2, "a", 13, 17), (3, "a", 14, 18), (4, "a", 18, 22)]


def test_a_budget_cuts_drafts() -> None:
    options = replace(PLAIN, speculative=Speculative("mtp", 3, (3,)))
    _, heard = play(options, ask("a", 10, 9), budgets=[10, 2])
    assert heard.chunks[:3] == [(0, "a", 0, 10), (1, "a", 10, 12), (2, "a", 12, 16)]
    assert [e[3:] for e in heard.of("accept")][:2] == [(1, 1), (3, 3)]


@pytest.mark.parametrize("enabled", [True, False])
def test_without_prefix_caching_nothing_is_split_hit_or_claimed(enabled: bool) -> None:
    options = replace(CACHED, enable_prefix_caching=enabled)
    outcome, _ = play(options, ask("a", 40, 1, 0, 1), ask("b", 60, 1, 3, 1), budgets=[20])
    assert (outcome.claims > 0) is (outcome.hit_tokens > 0) is enabled
    assert outcome.ends["a"] == ((16, 32, 40) if enabled else (20, 40))


@pytest.mark.parametrize(
    ("preset", "method", "ends"),
    [
        ("vllm-0.32.0", "dflash", {"a": 0, "b": 0}),
        ("vllm-0.33.0", "dflash", {"a": 0, "b": 1}),
        ("vllm-0.33.0", "dspark", {"a": 0, "b": 0}),
        ("vllm-0.33.0", "mtp", {"a": 0, "b": 0}),
    ],
)
def test_a_drafter_that_fills_in_bounds_who_runs_in_0_33(preset: str, method: str, ends: dict[str, int]) -> None:
    """As each release decides it: three tokens in a batch are one request of K + 1, or three of K."""
    groups = (Group("attention", "full-attention", 1), Group("gdn", "recurrent", 1))
    drafting = Speculative(method, 1)
    options = Options(groups, preset=preset, max_num_batched_tokens=3, speculative=drafting, clock="steps")
    heard = Decisions()
    drive(options, [Arrival(name, i, 0, ((i + 1, 1),)) for i, name in enumerate("ab")], observers=[heard])
    assert heard.finished == ends


def test_drafts_of_a_running_request_end_a_token_before_the_models_longest() -> None:
    """vLLM: ``max_model_len - 1 - num_computed_tokens``; the token behind the last draft has room too."""
    drafting = replace(PLAIN, max_model_len=14, speculative=Speculative(method="ngram", num_speculative_tokens=3))
    _, heard = play(drafting, ask("a", 10, 50))
    assert max(end for *_, end in heard.chunks) == 13


@pytest.mark.parametrize(("longest", "step", "end"), [(40, 4, 36), (36, 4, 36), (35, 10, 33)])
def test_a_padded_request_waits_where_the_models_longest_has_no_room_for_its_placeholders(
    longest: int, step: int, end: int
) -> None:
    """To 0.28: b repeats a's 33 tokens and has one of them left, and K = 3 placeholders behind it. Once nobody decodes
    beside it, it is not padded."""
    drafting = replace(
        CACHED,
        preset="vllm-0.28.0",
        max_model_len=longest,
        speculative=Speculative(method="ngram", num_speculative_tokens=3),
    )
    _, heard = play(drafting, ask("a", 33, 2, seed=1), ask("c", 5, 9), ask("b", 33, 1, time=4, seed=1))
    assert [chunk for chunk in heard.chunks if chunk[1] == "b"] == [(step, "b", 32, end)]


@pytest.mark.parametrize(
    ("connector", "external", "comes"), [("exact-slot", 32, 32), ("hands-over-last-token", 32, 33)]
)
def test_a_producer_hands_the_state_behind_the_last_token_over_only_with_all_before_it(
    connector: str, external: int, comes: int
) -> None:
    """Of a prompt of 33 tokens, brought up to the last one; of what is brought less far no token is added."""
    options = replace(CACHED, rules={"connector": connector})
    for tokens, offset in ((external, comes), (external - 1, external - 1), (16, 16)):
        heard = Heard()
        drive(options, [Arrival("a", 0, 0, ((1, 33),), external=tokens)], observers=[heard], fast_forward=False)
        assert [event[-1] for event in heard.of("load")] == [offset]


@pytest.mark.parametrize(
    ("failure", "told", "start"), [("recompute", 0, 0), ("reported-first", 32, 0), ("ignored", 32, 32)]
)
def test_what_a_failed_load_was_to_bring_is_told_only_where_that_is_the_rule(
    failure: str, told: int, start: int
) -> None:
    heard = Heard()
    options = replace(CACHED, rules={"load_failure": failure})
    arrival = Arrival("a", 0, 0, ((1, 60),), external=32, load_error=True)
    drive(options, [arrival], observers=[heard], fast_forward=False)
    assert [event[2:] for event in heard.of("admit")] == [("a", 0, told, False)]
    assert heard.chunks[0][2] == start


def test_who_does_not_fit_beside_others_waits_for_them_and_is_not_refused_for_good() -> None:
    """Each takes 17 blocks of attention and two states, of 22 in all."""
    options = replace(CACHED, num_blocks=23, scheduler_reserve_full_isl=False, rules={"admission": "reject"})
    outcome, heard = play(options, ask("a", 64, 2), ask("b", 64, 2))
    assert (outcome.finished, outcome.rejected) == (2, 0)
    assert ("b", "blocks") in [event[2:] for event in heard.of("refuse")]


@pytest.mark.parametrize("mode", [{}, {"async_scheduling": True}, {"max_concurrent_batches": 2}])
def test_who_is_taken_away_late_has_run_in_that_step_and_nobody_hears_of_it(mode: dict[str, object]) -> None:
    told: list[str] = []

    class Heard(Observer):
        def advance(self, request: str, *_: object) -> None:
            told.append(f"{request} runs")

        def output(self, request: str, count: int, tokens: object) -> None:
            told.append(f"{request} is heard")

        def abort(self, request: str) -> None:
            told.append(f"{request} goes")

    arrival = Arrival("a", 0, 0, ((1, 20),), 9, abort=0, abort_late=True)
    outcome = drive(replace(PLAIN, clock="steps", **mode), [arrival], observers=[Heard()])  # type: ignore[arg-type]
    assert "a is heard" not in told and told.count("a goes") == 1
    if "max_concurrent_batches" not in mode:
        assert told == ["a runs", "a goes"]
    assert outcome.free_blocks == PLAIN.num_blocks - 1


@pytest.mark.parametrize(
    ("mode", "asked", "resets"),
    [
        ({"async_scheduling": True, "speculative": Speculative("mtp", 3)}, Arrival("a", 0, 3, ((2, 1),), 3), (5, 9)),
        ({"max_concurrent_batches": 2, "speculative": Speculative("ngram", 1)}, Arrival("a", 0, 0, ((2, 1),), 4), (5,)),
    ],
    ids=["asynchronously", "in-a-pipeline"],
)
def test_a_release_that_loses_outputs_behind_a_reset_runs_past_them(
    mode: dict[str, Any], asked: Arrival, resets: tuple[int, ...]
) -> None:
    states = Group("states", "recurrent", 4, mamba_cache_mode="align" if "async_scheduling" in mode else "all")
    options = Options((states,), preset="vllm-0.26.0", clock="steps", **mode)
    assert drive(options, [asked], resets=resets, reset_running=True).finished == 1
