"""Token streams, and fingerprints of their prefixes.

A stream is made of *segments* ``(seed, length)``: token ``i`` of a segment with seed ``s >= 0`` is
``splitmix64(s * 2**32 + i) mod 50000``, so a prompt of a million tokens is one line of a scenario. A
negative seed ``s`` stands for the output tokens of the request with index ``-s - 1`` (multi-turn), and
output token ``k`` of request ``r`` is ``splitmix64(2**63 + r * 2**32 + k) mod 50000``.

Under an encoded item (an image) a model reads the item's embeddings and no text: such a token has an id of its own,
which follows from the whole item and the place in it, and which no text has. Ids below are what is read, unless they
say text.

The fingerprint of a prefix of ``n`` tokens has two lanes ``F_A(n) = sum(mix(t_i) * A**(n-1-i)) mod 2**64``
with ``A`` odd. It composes: the fingerprint after more tokens follows from the one before in O(1), and one
vector pass gives those of every prefix. It is not adversarially safe and need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
Ids = NDArray[np.int64]
Segments = tuple[tuple[int, int], ...]
Spans = tuple[tuple[int, int], ...]
"""(start, length) of encoded items (images, audio) in a prompt, in order."""
Fingerprint = tuple[int, int]

VOCABULARY = 50_000
MAX_TOKENS = 1 << 27
"""Most tokens of one request: a gigabyte of ids."""
PLACEHOLDER = -1
"""Draft token that stands for nothing and never matches (vLLM pads decode rows with it)."""

MASK = (1 << 64) - 1
EMPTY: Fingerprint = (0, 0)
"""Fingerprint of no tokens: a zero state."""

MULTIPLIERS = (0x9E3779B97F4A7C15 | 1, 0xD1342543DE82EF95 | 1)
_INVERSES = tuple(pow(a, -1, 1 << 64) for a in MULTIPLIERS)
_OUTPUTS = 1 << 63
_EMBEDDED = np.uint64((1 << 32) - VOCABULARY - 1)
"""Ids under items are 32 bits wide, above the vocabulary and below the placeholder's bits."""


def splitmix64(x: U64) -> U64:
    """Finaliser of splitmix64, element by element (Steele, Lea and Flood, OOPSLA 2014)."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def segment_ids(segments: Iterable[tuple[int, int]]) -> Ids:
    """Token ids of the segments, one after the other; shape [sum of lengths]. Raises ValueError above MAX_TOKENS."""
    pairs = [(seed, length) for seed, length in segments if length > 0]
    if not pairs:
        return np.zeros(0, np.int64)
    total = sum(length for _, length in pairs)
    if total > MAX_TOKENS:
        raise ValueError(f"found {total} tokens, allowed at most {MAX_TOKENS}")
    lengths = np.array([length for _, length in pairs], np.int64)
    bases = np.array([_base(seed) for seed, _ in pairs], np.uint64)
    starts = np.cumsum(lengths) - lengths
    within = np.arange(total, dtype=np.int64) - np.repeat(starts, lengths)
    raw = splitmix64(np.repeat(bases, lengths) + within.astype(np.uint64))
    return (raw % np.uint64(VOCABULARY)).astype(np.int64)


def read_under(spans: Spans, ids: Ids) -> Ids:
    """Ids that a model reads where ``spans`` of a text are encoded items: equal text of equal length, equal item."""
    if not spans:
        return ids
    read = ids.copy()
    for start, length in spans:
        key = int.from_bytes(item_key(ids[start : start + length])[:8], "little")
        places = np.uint64(key) + np.arange(length, dtype=np.uint64)
        read[start : start + length] = (splitmix64(places) % _EMBEDDED).astype(np.int64) + VOCABULARY
    return read


def item_key(text: Ids) -> bytes:
    """Key of an encoded item: its text stands for its content, so that equal text is the same item."""
    return blake2b(text.tobytes(), digest_size=16).digest()


def _base(seed: int) -> int:
    return (seed << 32) & MASK if seed >= 0 else _OUTPUTS + ((-seed - 1) << 32)


def output_seed(index: int) -> int:
    """Seed of a segment that repeats the outputs of the request with this index."""
    return -index - 1


def mix(token: int) -> int:
    """64-bit value under which one token id enters a fingerprint."""
    if 0 <= token < _MIXED.size:
        return int(_MIXED[token])
    return int(_mix(np.array([token & MASK], np.uint64))[0])


def _mix(ids: U64) -> U64:
    return splitmix64(ids ^ np.uint64(0x5851F42D4C957F2D))


_MIXED: U64 = _mix(np.arange(1 << 16, dtype=np.uint64))


class _Powers:
    """Powers A**0, A**1, ... mod 2**64, grown by doubling."""

    __slots__ = ("base", "values")

    def __init__(self, base: int) -> None:
        self.base = base
        self.values: U64 = np.ones(1, np.uint64)

    def upto(self, n: int) -> U64:
        """Return at least n + 1 powers."""
        while self.values.size <= n:
            step = np.uint64(pow(self.base, self.values.size, 1 << 64))
            self.values = np.concatenate([self.values, self.values * step])
        return self.values


@cache
def _powers(base: int) -> _Powers:
    return _Powers(base)


def prefix_fingerprints(ids: Ids) -> tuple[U64, U64]:
    """Fingerprints of every prefix of ``ids``, in two lanes of shape [len(ids) + 1]."""
    n = ids.size
    small = n == 0 or (int(ids.min()) >= 0 and int(ids.max()) < _MIXED.size)
    mixed = _MIXED[ids] if small else _mix(ids.astype(np.uint64))
    lanes = []
    for a, inverse in zip(MULTIPLIERS, _INVERSES, strict=True):
        lane = np.zeros(n + 1, np.uint64)
        if n:
            np.cumsum(mixed * _powers(inverse).upto(n)[:n], out=lane[1:])
            lane[1:] *= _powers(a).upto(n)[:n]
        lanes.append(lane)
    return lanes[0], lanes[1]


def append(state: Fingerprint, token: int) -> Fingerprint:
    """Fingerprint after one more token."""
    value = mix(token)
    a, b = MULTIPLIERS
    return (state[0] * a + value) & MASK, (state[1] * b + value) & MASK


MOST_BEHIND = 4096
"""Tokens by which a stream grows, at most, when it is asked for more than were generated."""


@lru_cache(maxsize=4)
def _spoken(segments: Segments, spans: Spans) -> tuple[Ids, tuple[U64, U64]]:
    """Ids and lanes of a stream; cached, since the engine and the oracle, each for itself, ask for the same one."""
    ids = read_under(spans, segment_ids(segments))
    lanes = prefix_fingerprints(ids)
    for array in (ids, *lanes):
        array.flags.writeable = False
    return ids, lanes


class Tokens:
    """Tokens of one request: its prompt, then its outputs, with the fingerprint of every prefix.

    If built from segments, the outputs are known beforehand (the simulator's model is its token formula);
    if built from explicit ids (a recorded log), they are appended by :meth:`extend`.
    """

    __slots__ = ("_again", "_lane0", "_lane1", "ids", "num_prompt")

    def __init__(self, ids: Ids, num_prompt: int) -> None:
        self.ids = ids
        self.num_prompt = num_prompt
        self._again: Callable[[int], tuple[Ids, tuple[U64, U64]]] | None = None
        self._lane0: U64 | None = None
        self._lane1: U64 | None = None

    @classmethod
    def generate(cls, segments: Sequence[tuple[int, int]], index: int, outputs: int, spans: Spans = ()) -> Tokens:
        """Build a prompt of ``segments``, with encoded items in it, and the first ``outputs`` output tokens of request
        ``index``."""

        def again(count: int) -> tuple[Ids, tuple[U64, U64]]:
            return _spoken((*segments, (output_seed(index), count)), spans)

        ids, lanes = again(outputs)
        tokens = cls(ids, ids.size - max(outputs, 0))
        tokens._lane0, tokens._lane1 = lanes
        tokens._again = again
        return tokens

    @classmethod
    def explicit(cls, ids: Sequence[int], spans: Spans = ()) -> Tokens:
        """Build a prompt given token by token, with encoded items in it."""
        return cls(read_under(spans, np.array(ids, np.int64)), len(ids))

    def __len__(self) -> int:
        return self.ids.size

    def extend(self, ids: Sequence[int]) -> None:
        """Append output tokens (explicit streams)."""
        self.ids = np.concatenate([self.ids, np.array(ids, np.int64)])
        self._lane0 = self._lane1 = None

    def lanes(self) -> tuple[U64, U64]:
        """Fingerprints of every prefix, in two lanes of shape [len + 1]."""
        if self._lane0 is None or self._lane1 is None:
            self._lane0, self._lane1 = prefix_fingerprints(self.ids)
        return self._lane0, self._lane1

    def _reach(self, n: int) -> None:
        """Generate what a request says behind its last output: a release that loses outputs (0.26) asks for more."""
        if self._again is not None and self.ids.size < n <= self.ids.size + MOST_BEHIND:
            self.ids, (self._lane0, self._lane1) = self._again(n + MOST_BEHIND - self.num_prompt)

    def fingerprint(self, n: int) -> Fingerprint:
        """Fingerprint of the first n tokens."""
        self._reach(n)
        lane0, lane1 = self.lanes()
        return lane0.item(n), lane1.item(n)

    def advance(self, state: Fingerprint, start: int, end: int) -> Fingerprint:
        """Fingerprint of ``state`` followed by tokens [start, end) of this stream."""
        self._reach(end)
        lane0, lane1 = self.lanes()
        before = (lane0.item(start), lane1.item(start))
        after = (lane0.item(end), lane1.item(end))
        if state == before:
            return after
        p0 = _powers(MULTIPLIERS[0]).upto(end - start).item(end - start)
        p1 = _powers(MULTIPLIERS[1]).upto(end - start).item(end - start)
        return (
            ((state[0] - before[0]) * p0 + after[0]) & MASK,
            ((state[1] - before[1]) * p1 + after[1]) & MASK,
        )

    def find(self, state: Fingerprint) -> int | None:
        """Find the n > 0 for which ``state`` is the fingerprint of the first n tokens; None if there is none."""
        lane0, lane1 = self.lanes()
        for n in np.flatnonzero(lane0 == np.uint64(state[0])).tolist():
            if n > 0 and lane1.item(n) == state[1]:
                return int(n)
        return None

    def block_hashes(self, unit: int, ahead: int = 0) -> list[bytes]:
        """Chained hashes of blocks: entry i is the 128-bit hash of the first ``(i + 1) * unit + ahead`` tokens."""
        lane0, lane1 = self.lanes()
        count = max(self.ids.size - ahead, 0) // unit
        pairs = np.empty((count, 2), np.uint64)
        pairs[:, 0] = lane0[unit + ahead : count * unit + ahead + 1 : unit]
        pairs[:, 1] = lane1[unit + ahead : count * unit + ahead + 1 : unit]
        return pairs.astype("<u8").view("V16").reshape(-1).tolist()
