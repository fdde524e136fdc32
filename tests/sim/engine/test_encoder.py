"""Encoded items: budgets, what is kept, and where a chunk stops before one that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.request import Request
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

BLOCK = 8
GROUPS = (Group("attention", "full-attention", 8), Group("gdn", "recurrent", BLOCK))


def options(rule: str, size: int, compute: int = 64, drafts: int = 0, **more: object) -> Options:
    return Options(
        groups=GROUPS,
        rules={"encoder_cap": rule},
        max_num_batched_tokens=64,
        encoder_cache_size=size,
        max_num_encoder_input_tokens=compute,
        partial_hits=False,
        speculative=Speculative("mtp", drafts) if drafts else Speculative(),
        clock="steps",
        **more,  # type: ignore[arg-type]
    )


def request(length: int, *spans: tuple[int, int], name: str = "a", index: int = 0, **more: object) -> Arrival:
    return Arrival(name, index, 0, ((1, length),), encoder=spans, **more)  # type: ignore[arg-type]


def run(how: Options, *arrivals: Arrival, observers: Sequence[Observer] = (), fast_forward: bool = True) -> Outcome:
    return drive(how, arrivals, observers=observers, fast_forward=fast_forward)


@pytest.mark.parametrize(
    ("rule", "drafts", "ends"),
    [
        ("before-split", 0, ()),
        ("after-split", 0, (6, 8, 24)),
        ("after-split-unshifted", 0, (6, 8, 24)),
        # A drafter reads a token ahead: the chunk stays away from the second image, and the first is kept for it.
        ("before-split", 1, ()),
        ("after-split", 1, (5,)),
        ("after-split-unshifted", 1, (6, 8, 16, 24)),
    ],
)
def test_two_images_of_which_one_fits(rule: str, drafts: int, ends: tuple[int, ...]) -> None:
    """J3 (vLLM issue 40707): block 8, room for 6, images [0, 5) and [6, 11)."""
    outcome = run(options(rule, 6, drafts=drafts), request(24, (0, 5), (6, 5)))
    assert outcome.ends["a"] == ends
    assert outcome.livelock == (24 not in ends)


@pytest.mark.parametrize(("rule", "why"), [("before-split", "block-boundary"), ("after-split", "encoder")])
def test_who_stands_still_is_told_what_it_was_denied(rule: str, why: str) -> None:
    outcome = run(options(rule, 6, drafts=1), request(24, (0, 5), (6, 5)))
    (finding,) = outcome.findings
    assert (finding.invariant, finding.severity) == ("I14", "liveness")
    assert finding.message.endswith(f"last deferred by {why}")


def test_a_chunk_encodes_its_image_though_another_is_preempted_to_make_room_for_it() -> None:
    """As in live vLLM 0.29.0: the blocks are found after the encoder was asked."""
    how = options("after-split", 8)
    encoder = Encoder(Policy.of(how))
    first, victim = (Request(request(24, (0, 5), name=name, index=i), how, 0) for i, name in enumerate("ab"))
    encoder.new_step()
    assert encoder.cap(first, 0, 8) == 8
    encoder.free(victim)
    encoder.commit(first)
    assert encoder.holds(first) and encoder.budget == 64 - 5


def test_an_image_is_let_go_of_once_it_is_passed_and_put_out_for_the_next() -> None:
    outcome = run(options("after-split", 5), request(64, (0, 5), (8, 5), (16, 5), (40, 5)))
    assert outcome.ends["a"] == (8, 16, 40, 64)


def test_the_compute_budget_holds_for_a_step() -> None:
    """Room for all, but 6 embeddings a step: the second image waits for the next one."""
    outcome = run(options("after-split", 64, compute=6), request(40, (0, 5), (16, 5)))
    assert outcome.ends["a"] == (16, 40)


def test_who_shares_an_image_that_runs_needs_no_room() -> None:
    how = replace(options("after-split", 5), enable_prefix_caching=False)
    sharing = [Arrival(name, i, 0, ((1, 16), (5 + i, 8)), encoder=((0, 5),)) for i, name in enumerate("ab")]
    apart = [Arrival(name, i, 0, ((i + 1, 16), (5 + i, 8)), encoder=((0, 5),)) for i, name in enumerate("ab")]
    assert run(how, *sharing).steps < run(how, *apart).steps


def test_an_image_larger_than_the_room_stands_still_or_is_refused() -> None:
    stuck = run(options("after-split", 4), request(24, (0, 5)))
    assert (stuck.livelock, stuck.rejected) == (True, 0)
    rules = {"encoder_cap": "after-split", "admission": "reject"}
    told = run(replace(options("after-split", 4), rules=rules), request(24, (0, 5)))
    assert (told.livelock, told.rejected, told.finished) == (False, 1, 0)
    assert not told.findings


@st.composite
def spans(draw: st.DrawFn, length: int) -> tuple[tuple[int, int], ...]:
    found, at = [], 0
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=6)):
        if at + gap + size > length:
            break
        found.append((at + gap, size))
        at += gap + size
    return tuple(found)


@st.composite
def loads(draw: st.DrawFn) -> list[Arrival]:
    arrivals = []
    for i in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 90))
        segments = ((10 + i, length),)
        outputs = draw(st.integers(1, 30))
        arrivals.append(Arrival(f"r{i}", i, draw(st.integers(0, 5)), segments, outputs, encoder=draw(spans(length))))
    return arrivals


@given(
    load=loads(),
    preset=st.sampled_from(sorted(PRESETS)),
    size=st.integers(20, 64),
    drafts=st.integers(0, 2),
    blocks=st.sampled_from([24, 40, 10_000]),
    depth=st.integers(1, 3),
    resets=st.lists(st.integers(1, 40), max_size=2).map(sorted),
)
def test_fast_forwarding_decides_the_same(
    load: list[Arrival], preset: str, size: int, drafts: int, blocks: int, depth: int, resets: list[int]
) -> None:
    """Whoever is preempted, or put back by a reset, encodes again."""
    how = replace(options("after-split", size, drafts=drafts), preset=preset, rules={}, num_blocks=blocks)
    how = replace(how, max_concurrent_batches=depth)
    one, two = (drive(how, load, fast_forward=fast, resets=resets, reset_running=True) for fast in (True, False))
    event(f"preempted: {one.preempted > 0}")
    assert replace(one, wall_s=0.0) == replace(two, wall_s=0.0)


# Ends of chunks as vLLM 0.33.0 and 0.26.0 have decided them.


def test_who_a_reset_puts_back_encodes_its_item_again() -> None:
    how = Options((Group("attention", "full-attention", 4),), preset="vllm-0.33.0", encoder_cache_size=40)
    load = [Arrival(name, i, 0, ((1 + i, 54),), 9, encoder=((1, 30),)) for i, name in enumerate("ab")]
    outcome = drive(replace(how, clock="steps"), load, resets=[3], reset_running=True)
    assert outcome.preempted == 2
    assert outcome.ends == {"a": (54, 57), "b": (1, 54, 1, 56)}


def test_who_is_preempted_encodes_its_item_again() -> None:
    how = Options(
        (Group("attention", "full-attention", 8, eagle=True), Group("gdn", "recurrent", 32)),
        preset="vllm-0.26.0",
        num_blocks=50,
        encoder_cache_size=40,
        speculative=Speculative("mtp", 2),
        clock="steps",
    )
    sent = [
        (1, 1, 70, (33, 20)),
        (3, 1, 70, (5, 30)),
        (5, 1, 100, (33, 30)),
        (0, 2, 70, (5, 30)),
        (1, 2, 100, (33, 30)),
    ]
    load = [
        Arrival(f"r{i}", i, time, ((seed, length), (9 + i, 1)), 40, encoder=(item,))
        for i, (time, seed, length, item) in enumerate(sent)
    ]
    outcome = drive(how, load)
    assert (outcome.preempted, outcome.deferred, outcome.claims) == (3, 4, 23)
    assert outcome.ends == {
        "r0": (32, 64, 71),
        "r1": (32, 64, 71),
        "r2": (32, 64, 96, 101, 64, 32, 64, 96, 103),
        "r3": (32, 64, 71),
        "r4": (32, 64, 96, 101, 64, 96, 120),
    }


@given(load=loads(), size=st.integers(20, 64), compute=st.integers(20, 64), drafts=st.integers(0, 2))
def test_without_a_shift_whoever_fits_is_served(load: list[Arrival], size: int, compute: int, drafts: int) -> None:
    """Each item fits alone: the cap that comes after the split, right before the item, never stands still."""
    outcome = run(options("after-split-unshifted", size, compute, drafts), *load)
    assert not outcome.livelock
    assert outcome.finished == len(load)


@given(load=loads())
def test_items_that_all_fit_change_nothing(load: list[Arrival]) -> None:
    plain = [replace(arrival, encoder=()) for arrival in load]
    for preset in PRESETS:
        how = replace(options("after-split", 10_000, 10_000), preset=preset, rules={})
        assert run(how, *load).digest == run(how, *plain).digest


@pytest.mark.parametrize("preset", PRESETS)
def test_an_item_and_its_tokens_as_text_share_no_block_behind_its_start(preset: str) -> None:
    """As vLLM 0.26.0 to 0.33.0 decide it: hits of four requests with the same tokens, one after another."""
    groups = (Group("attention", "full-attention", 64), Group("gdn", "recurrent", 64))
    spans = {"item": ((10, 30),), "text": (), "longer": ((10, 31),), "again": ((10, 30),)}
    arrivals = [
        Arrival(name, i, 0, ((1, 200),), encoder=span, after=before)
        for i, ((name, span), before) in enumerate(zip(spans.items(), (None, *spans), strict=False))
    ]
    outcome = drive(Options(groups, preset=preset, clock="steps"), arrivals)
    assert outcome.hits == {"item": 0, "text": 0, "longer": 0, "again": 192}


@pytest.mark.parametrize(
    ("spans", "text", "item"),
    [
        # What lies before an item is text for both.
        (((40, 8),), 40, 16),
        (((44, 8),), 40, 16),
        (((8, 2),), 8, 8),
        # Blocks are chained: the second item is the same one in vain.
        (((0, 2), (16, 8)), 0, 0),
        (((16, 8), (40, 8)), 16, 40),
        # The same place, the same start, another item.
        (((16, 7),), 16, 16),
    ],
)
def test_a_hit_ends_before_the_first_item_that_differs(
    spans: tuple[tuple[int, int], ...], text: int, item: int
) -> None:
    how = replace(options("after-split", 64), max_num_batched_tokens=BLOCK)
    for asked, hit in (((), text), (((16, 8),), item)):
        arrivals = [request(70, *spans, name="b", index=1), request(70, *asked, after="b")]
        assert run(how, *arrivals).hits["a"] == hit


def test_a_hash_that_looks_ahead_covers_the_item_behind_its_block() -> None:
    """vLLM 0.33.0: an item that starts right behind a block is in that block's hash, one a token later is not."""
    groups = (Group("attention", "full-attention", BLOCK, eagle=True), Group("gdn", "recurrent", BLOCK))
    how = Options(
        groups,
        preset="vllm-0.33.0",
        max_num_batched_tokens=BLOCK + 1,
        partial_hits=False,
        speculative=Speculative("mtp", 1),
        clock="steps",
    )
    for start, hit in ((16, 8), (17, 16)):
        arrivals = [request(40, (start, 4)), request(40, name="b", index=1, after="a")]
        assert drive(how, arrivals).hits["b"] == hit
