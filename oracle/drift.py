"""Drift of an output: a request continued from the true state of its prefix, and from what a slot really holds.

Keys and values of the attention layers are those of the whole prefix in both continuations (attention blocks are
right in this fault); only the recurrent and convolution states differ. The model is that of
:mod:`stateat.oracle.hybrid`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from stateat.oracle.hybrid import F32, RECURRENT, HybridModel, Memory, Recurrent, build, consume, empty
from stateat.sim.tokens import Ids

MAX_TOKENS = 16_384
"""Longest prompt, in tokens: about a millisecond a token, and attention grows with the square."""
APPROACH = 24
"""Comparisons of the states, at most, on the way from the restore to the end of the prompt."""
GRAM = 4


@dataclass(frozen=True, slots=True)
class Absorbed:
    """Tokens that a state has absorbed: ``ids[start:]``, at their own positions, attending to ``ids[:start]`` too."""

    ids: Ids
    start: int


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token, both states having heard the same text before it: the true continuation."""

    logit_distance: float
    """|held - true| / |true| over the vocabulary (L2)."""
    logit_max: float
    """The largest difference of one logit."""
    divergence: float
    """KL(true || held) of the next token's distribution, in nats."""
    true: int
    """The most likely token."""
    held: int
    states: tuple[float, ...]
    """|held - true| / |true| of each recurrent layer's state (Frobenius) after this token was consumed."""

    @property
    def differs(self) -> bool:
        """True if greedy decoding takes another token."""
        return self.true != self.held


@dataclass(frozen=True, slots=True)
class Drift:
    """Comparison of two continuations of one request, from its true state and from the held one."""

    offset: int
    """The restored offset n: the true state has absorbed n tokens."""
    prompt: int
    """Tokens of the prompt; [offset, prompt) is consumed from either state before anything is generated."""
    layers: tuple[str, ...]
    """The kinds of the recurrent layers."""
    approach: tuple[tuple[int, tuple[float, ...]], ...]
    """(position, distance of each layer's state), from the restored offset to the end of the prompt."""
    tokens: tuple[Token, ...]
    true_text: tuple[int, ...]
    """Output of greedy decoding from the true state; ids of the model's vocabulary."""
    held_text: tuple[int, ...]
    """Output from the held state, when it hears its own words."""

    @property
    def first(self) -> int | None:
        """The first generated token (0, 1, ...) in which the texts differ; None: they are the same."""
        return next((i for i, (a, b) in enumerate(zip(self.true_text, self.held_text, strict=True)) if a != b), None)

    @property
    def different(self) -> int:
        """Places in which the texts differ."""
        return sum(a != b for a, b in zip(self.true_text, self.held_text, strict=True))

    @property
    def repetition(self) -> tuple[float, float]:
        """The share of 4-grams that were said before, of the true text and of the held one."""
        return repetition(self.true_text), repetition(self.held_text)


def drift(prompt: Ids, offset: int, held: Sequence[Absorbed], tokens: int = 32, seed: int = 0) -> Drift:
    """Continue ``prompt`` (ids, shape [length]) at ``offset`` from its true state and from the state that absorbed
    ``held`` in this order (nothing: a zero state), and generate ``tokens`` tokens.

    Raises ValueError unless 0 <= offset < length <= MAX_TOKENS and tokens >= 1.
    """
    if not 0 <= offset < prompt.size <= MAX_TOKENS:
        raise ValueError(
            f"found offset {offset} of {prompt.size} tokens, allowed: 0 <= offset < tokens <= {MAX_TOKENS}"
        )
    if tokens < 1:
        raise ValueError(f"found {tokens} tokens to generate, allowed: 1 or more")
    model = build(seed)
    # What a slot holds is mostly an earlier state of the same prompt: then it is met on the way.
    shared = _shared(prompt[:offset], held)
    early, _ = consume(model, empty(), prompt[:shared])
    true, _ = consume(model, early, prompt[shared:offset])
    wrong = replace(true, recurrent=absorb(model, held[1:] if shared else held, early.recurrent))
    approach = [(offset, state_distances(wrong, true))]
    true_logits = wrong_logits = np.zeros(0, np.float32)
    for start, end in pairwise(_stations(offset, prompt.size)):
        true, true_logits = consume(model, true, prompt[start:end])
        wrong, wrong_logits = consume(model, wrong, prompt[start:end])
        approach.append((end, state_distances(wrong, true)))
    held_text = _say(model, wrong, wrong_logits, tokens)
    told: list[Token] = []
    for _ in range(tokens):
        token = int(true_logits.argmax())
        distances = _compare(true_logits, wrong_logits)
        said = int(wrong_logits.argmax())
        true, true_logits = consume(model, true, [token])
        wrong, wrong_logits = consume(model, wrong, [token])
        told.append(Token(*distances, token, said, state_distances(wrong, true)))
    true_text = tuple(token.true for token in told)
    return Drift(offset, prompt.size, RECURRENT, tuple(approach), tuple(told), true_text, held_text)


def _shared(prefix: Ids, held: Sequence[Absorbed]) -> int:
    """The length of what was absorbed first, if that is the beginning of the prefix; else 0."""
    if not held or held[0].start or held[0].ids.size > prefix.size:
        return 0
    size = held[0].ids.size
    return size if np.array_equal(held[0].ids, prefix[:size]) else 0


def absorb(model: HybridModel, held: Sequence[Absorbed], start: tuple[Recurrent, ...] = ()) -> tuple[Recurrent, ...]:
    """The recurrent states after these tokens, in this order, from zero or from those given; keys and values are
    always those of the prefix."""
    recurrent = start or empty().recurrent
    for part in held:
        before, _ = consume(model, empty(), part.ids[: part.start])
        after, _ = consume(model, replace(before, recurrent=recurrent), part.ids[part.start :])
        recurrent = after.recurrent
    return recurrent


def state_distances(one: Memory, other: Memory) -> tuple[float, ...]:
    """|one - other| / |other| of each recurrent layer's state; inf where only the other is zero."""
    return tuple(_distance(a.state, b.state) for a, b in zip(one.recurrent, other.recurrent, strict=True))


def repetition(text: Sequence[int]) -> float:
    """The share of a text's 4-grams that stand earlier in it."""
    grams = Counter(tuple(text[i : i + GRAM]) for i in range(len(text) - GRAM + 1))
    return 1 - len(grams) / grams.total() if grams else 0.0


def _stations(offset: int, end: int) -> list[int]:
    """Positions at which the states are compared: dense after the restore, where they change most."""
    if end - offset <= APPROACH:
        return list(range(offset, end + 1))
    spaced = np.geomspace(1, end - offset, APPROACH).astype(int)
    return [offset, *dict.fromkeys((spaced + offset).tolist())]


def _say(model: HybridModel, memory: Memory, logits: F32, tokens: int) -> tuple[int, ...]:
    """Greedy decoding."""
    text = []
    for _ in range(tokens):
        text.append(int(logits.argmax()))
        memory, logits = consume(model, memory, text[-1:])
    return tuple(text)


def _compare(true: F32, held: F32) -> tuple[float, float, float]:
    """Relative L2, largest difference, KL divergence (nats)."""
    p, q = _log_softmax(true), _log_softmax(held)
    divergence = float((np.exp(p) * (p - q)).sum())
    return _distance(held, true), float(np.abs(held - true).max()), max(divergence, 0.0)


def _log_softmax(logits: F32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return np.asarray(wide - np.log(np.exp(wide).sum()))


def _distance(one: F32, other: F32) -> float:
    size = float(np.linalg.norm(other.astype(np.float64)))
    apart = float(np.linalg.norm(one.astype(np.float64) - other))
    return apart / size if size else float("inf") if apart else 0.0
