"""The small hybrid model and the two continuations: what must hold of them bit for bit, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.oracle import hybrid
from stateat.oracle.drift import MAX_TOKENS, Absorbed, Drift, absorb, drift, repetition, state_distances
from stateat.oracle.hybrid import LAYERS, RECURRENT, Memory, build, consume, empty
from stateat.sim.tokens import Ids, segment_ids

S2 = segment_ids([(1, 2002)])
"""The prompt of seed S2: a slot claims state@1600 of it and holds state@364."""


def in_chunks(ids: Ids, cuts: Sequence[int], forget: bool = False) -> tuple[Memory, Any]:
    """The prompt in chunks that end at the cuts; ``forget``: the convolution's window is lost between them."""
    memory, logits = empty(), np.zeros(0)
    for start, end in zip([0, *cuts], [*cuts, ids.size], strict=True):
        if forget:
            blank = empty().recurrent[0].window
            memory = replace(memory, recurrent=tuple(layer._replace(window=blank) for layer in memory.recurrent))
        if end > start:
            memory, logits = consume(build(), memory, ids[start:end])
    return memory, logits


def same(one: Memory, other: Memory) -> bool:
    """Equal in every bit."""
    arrays = [
        [array for layer in memory.recurrent for array in layer] + [*memory.keys, *memory.values]
        for memory in (one, other)
    ]
    return one.position == other.position and all(
        a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True)
    )


# The model.


@settings(max_examples=25)
@given(st.integers(0, 5), st.integers(1, 40), st.lists(st.integers(0, 40), max_size=6))
def test_chunks_leave_the_same_bits_as_one_go(seed: int, length: int, cuts: list[int]) -> None:
    ids = segment_ids([(seed, length)])
    whole, logits = in_chunks(ids, [])
    split, again = in_chunks(ids, sorted(min(cut, length) for cut in cuts))
    assert same(whole, split)
    assert logits.tobytes() == again.tobytes()


def test_a_lost_window_is_seen() -> None:
    """Negative control of the test above: what a chunk must carry over is not only the recurrent state."""
    ids = segment_ids([(1, 20)])
    assert same(in_chunks(ids, [])[0], in_chunks(ids, [9])[0])
    assert not same(in_chunks(ids, [])[0], in_chunks(ids, [9], forget=True)[0])


def test_one_block_in_four_is_attention() -> None:
    assert [kind == "attention" for kind in LAYERS] == [False, False, False, True] * 2
    assert {"gated-delta", "ssd"} == set(RECURRENT)
    memory, _ = consume(build(), empty(), S2[:7])
    assert [k.shape for k in memory.keys] == [(hybrid.ATTENTION_HEADS, hybrid.HEAD, 7)] * 2
    assert len(memory.recurrent) == 6


@pytest.mark.parametrize("kind", ["gated-delta", "ssd"])
def test_a_recurrence_is_the_published_one(kind: str) -> None:
    """Against a loop over heads in float64, as in fla's and Mamba's references."""
    random = np.random.Generator(np.random.PCG64(3))
    heads, head = hybrid.HEADS, hybrid.HEAD
    rate, skip = -random.uniform(1, 16, heads), np.ones(heads)
    state, truth = np.zeros((heads, head, head), np.float32), np.zeros((heads, head, head))
    for _ in range(50):
        one, two, three = random.standard_normal((3, heads, head))
        dt, gate = random.uniform(0.001, 0.1, heads), random.standard_normal(heads)
        step = hybrid.gated_delta if kind == "gated-delta" else hybrid.ssd
        state, y = step(state, *(a.astype(np.float32) for a in (one, two, three, dt, gate, rate, skip)))
        for h in range(heads):
            if kind == "gated-delta":
                q, k = one[h] / np.linalg.norm(one[h]), two[h] / np.linalg.norm(two[h])
                decayed = np.exp(dt[h] * rate[h]) * truth[h]
                update = (three[h] - decayed.T @ k) / (1 + np.exp(-gate[h]))
                truth[h] = decayed + np.outer(k, update)
                expected = truth[h].T @ q
            else:
                truth[h] = np.exp(dt[h] * rate[h]) * truth[h] + np.outer(two[h], dt[h] * three[h])
                expected = truth[h].T @ one[h] + three[h]
            assert np.allclose(y[h], expected, rtol=1e-3, atol=1e-5)
    assert np.linalg.norm(state - truth) < 1e-5 * np.linalg.norm(truth)


def test_logits_are_neither_flat_nor_certain() -> None:
    entropies = []
    memory = empty()
    for token in S2[:60].tolist():
        memory, logits = consume(build(), memory, [token])
        p = np.exp(logits.astype(np.float64) - logits.max())
        p /= p.sum()
        entropies.append(float(-(p * np.log(p)).sum()))
    assert 0.5 < np.mean(entropies) < 0.8 * np.log(hybrid.VOCABULARY)
    assert np.all(np.isfinite(entropies))


def test_weights_follow_from_the_seed() -> None:
    assert build(0).head.tobytes() == build.__wrapped__(0).head.tobytes()
    assert build(0).head.tobytes() != build(1).head.tobytes()


# Two continuations.


@pytest.fixture(scope="module")
def anatomy() -> Drift:
    """Request b of seed S2: restored at 1600 from state@364."""
    return drift(S2, 1600, [Absorbed(S2[:364], 0)], 32)


def test_a_clean_restore_is_equal_in_every_bit() -> None:
    ids = segment_ids([(4, 60)])
    found = drift(ids, 48, [Absorbed(ids[:48], 0)], 8)
    assert found.true_text == found.held_text
    assert found.first is None and found.different == 0
    assert all(token.logit_distance == token.logit_max == token.divergence == 0 for token in found.tokens)
    assert all(distances == (0.0,) * 6 for _, distances in found.approach)
    true, _ = consume(build(), empty(), ids[:48])
    in_two = absorb(build(), [Absorbed(ids[:30], 0), Absorbed(ids[:48], 30)])
    assert same(true, replace(true, recurrent=in_two))


def test_the_poisoned_restore_of_s2_diverges(anatomy: Drift) -> None:
    assert anatomy.first is not None
    assert anatomy.different > 0
    assert min(anatomy.approach[0][1]) > 0.5
    assert all(token.logit_distance > 1e-4 and token.divergence > 0 for token in anatomy.tokens)
    assert anatomy.approach[0][0] == 1600 and anatomy.approach[-1][0] == 2002


def test_the_state_forgets_the_fault_and_the_distance_says_so(anatomy: Drift) -> None:
    """Decay in the small model: 402 right tokens later every layer is nearer to the truth, and none is equal to it."""
    for before, after in zip(anatomy.approach[0][1], anatomy.approach[-1][1], strict=True):
        assert 0 < after < 0.1 * before


def test_it_is_the_same_again() -> None:
    one, again = (drift(SHORT, 48, [Absorbed(SHORT[:20], 0)], 8) for _ in range(2))
    assert one == again
    assert one != drift(SHORT, 48, [Absorbed(SHORT[:21], 0)], 8)


def test_the_first_different_token_is_the_first_that_greedy_decoding_took_otherwise(anatomy: Drift) -> None:
    assert anatomy.first == next(i for i, token in enumerate(anatomy.tokens) if token.differs)


OTHER = segment_ids([(9, 60)])
SHORT = segment_ids([(4, 60)])


@pytest.mark.parametrize(
    "held",
    [
        pytest.param([], id="zero"),
        pytest.param([Absorbed(SHORT[:20], 0)], id="too-early"),
        pytest.param([Absorbed(SHORT[:52], 0)], id="too-late"),
        pytest.param([Absorbed(OTHER[:48], 0)], id="foreign"),
        pytest.param([Absorbed(SHORT[:48], 0), Absorbed(SHORT[:48], 40)], id="twice"),
        pytest.param([Absorbed(SHORT[:47], 0)], id="one-token-off"),
    ],
)
def test_every_wrong_state_is_told_from_the_true_one(held: list[Absorbed]) -> None:
    found = drift(SHORT, 48, held, 4)
    assert all(token.logit_distance > 1e-3 for token in found.tokens)
    assert max(found.approach[0][1]) > 0.1


def test_a_zero_state_is_as_far_away_as_the_true_one_is_long() -> None:
    assert drift(SHORT, 48, [], 1).approach[0][1] == (1.0,) * 6


def test_distances_are_those_of_their_definitions() -> None:
    found = drift(SHORT, 48, [Absorbed(SHORT[:20], 0)], 1)
    true, a = consume(build(), empty(), SHORT)
    held, _ = consume(build(), empty(), SHORT[:48])
    held, b = consume(build(), replace(held, recurrent=absorb(build(), [Absorbed(SHORT[:20], 0)])), SHORT[48:])
    p, q = (np.exp(x.astype(float)) / np.exp(x.astype(float)).sum() for x in (a, b))
    token = found.tokens[0]
    assert token.logit_distance == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-5)
    assert token.logit_max == pytest.approx(np.abs(a - b).max(), rel=1e-5)
    assert token.divergence == pytest.approx((p * np.log(p / q)).sum(), rel=1e-5)
    assert (token.true, token.held) == (a.argmax(), b.argmax())
    assert found.approach[-1] == (60, state_distances(held, true))


@pytest.mark.parametrize(
    ("text", "share"),
    [((), 0.0), ((1, 2, 3), 0.0), ((1, 2, 3, 4, 5), 0.0), ((7, 7, 7, 7, 7, 7), 2 / 3), ((1, 2, 3, 4) * 2, 1 / 5)],
)
def test_repetition(text: tuple[int, ...], share: float) -> None:
    assert repetition(text) == pytest.approx(share)


@pytest.mark.parametrize(("offset", "tokens"), [(-1, 4), (60, 4), (61, 4), (48, 0)])
def test_what_makes_no_sense_is_refused(offset: int, tokens: int) -> None:
    with pytest.raises(ValueError, match="allowed"):
        drift(SHORT, offset, [], tokens)


def test_a_prompt_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=str(MAX_TOKENS)):
        drift(np.zeros(MAX_TOKENS + 1, np.int64), 1, [], 1)
