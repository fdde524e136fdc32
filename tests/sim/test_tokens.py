"""Token streams and fingerprints, against their formulas in plain integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stateat.sim.tokens import (
    EMPTY,
    MULTIPLIERS,
    VOCABULARY,
    Tokens,
    append,
    mix,
    output_seed,
    prefix_fingerprints,
    read_under,
    segment_ids,
    splitmix64,
)

M = 2**64


def plain_splitmix64(x: int) -> int:
    """The formula, in Python's integers."""
    z = (x + 0x9E3779B97F4A7C15) % M
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % M
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % M
    return z ^ (z >> 31)


def plain_prompt(seed: int, i: int) -> int:
    return plain_splitmix64((seed * 2**32 + i) % M) % 50_000


def plain_output(request: int, k: int) -> int:
    return plain_splitmix64((2**63 + request * 2**32 + k) % M) % 50_000


def plain_fingerprint(ids: list[int]) -> tuple[int, int]:
    """The sum of mix(t_i) * A^(n-1-i), as the module's docstring says."""
    n = len(ids)
    one, other = (sum(mix(t) * pow(a, n - 1 - i, M) for i, t in enumerate(ids)) % M for a in MULTIPLIERS)
    return one, other


IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)
ANY_IDS = st.lists(st.integers(-5, 2**40), max_size=40)


def test_splitmix64_gives_its_authors_first_numbers() -> None:
    # Seed 1234567 of the reference implementation; each call adds the golden gamma once more.
    gamma = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * gamma) % M for i in range(3)], np.uint64)
    assert splitmix64(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(st.integers(0, M - 1), min_size=1))
def test_splitmix64_is_the_formula(values: list[int]) -> None:
    assert splitmix64(np.array(values, np.uint64)).tolist() == [plain_splitmix64(v) for v in values]


@given(st.integers(0, 2**31 - 1), st.integers(0, 20))
def test_a_segment_is_the_formula(seed: int, length: int) -> None:
    assert segment_ids([(seed, length)]).tolist() == [plain_prompt(seed, i) for i in range(length)]


@given(st.integers(0, 2**31 - 1), st.integers(0, 20))
def test_outputs_are_the_formula(request: int, length: int) -> None:
    assert segment_ids([(output_seed(request), length)]).tolist() == [plain_output(request, k) for k in range(length)]


def test_some_tokens_written_out() -> None:
    assert segment_ids([(0, 2), (1, 2), (-1, 2)]).tolist() == [
        plain_prompt(0, 0), plain_prompt(0, 1), plain_prompt(1, 0), plain_prompt(1, 1),
        plain_output(0, 0), plain_output(0, 1),
    ]  # fmt: skip
    # splitmix64(0), a published value, modulo 50,000.
    assert segment_ids([(0, 1)]).tolist() == [0xE220A8397B1DCDAF % 50_000]


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(0, 12))))
def test_segments_follow_one_another(segments: list[tuple[int, int]]) -> None:
    whole = [token for pair in segments for token in segment_ids([pair]).tolist()]
    ids = segment_ids(segments)
    assert ids.tolist() == whole
    assert ids.dtype == np.int64
    assert all(0 <= t < VOCABULARY for t in whole)


@given(st.integers(0, 500), st.integers(1, 30), st.integers(0, 30))
def test_a_negative_seed_is_the_output_of_that_request(index: int, prompt: int, outputs: int) -> None:
    asked = Tokens.generate([(7, prompt)], index, outputs)
    repeats = Tokens.generate([(7, prompt), (-index - 1, outputs)], index + 1, 4)
    assert repeats.ids[: prompt + outputs].tolist() == asked.ids.tolist()
    assert repeats.num_prompt == len(asked) == prompt + outputs
    assert repeats.fingerprint(len(asked)) == asked.fingerprint(len(asked))


def test_other_requests_say_other_things() -> None:
    assert Tokens.generate([(1, 8)], 0, 8).ids.tolist() != Tokens.generate([(1, 8)], 1, 8).ids.tolist()
    assert segment_ids([(1, 8)]).tolist() != segment_ids([(2, 8)]).tolist()


# Fingerprints.


@given(ANY_IDS)
def test_fingerprints_of_all_prefixes_are_the_formula(ids: list[int]) -> None:
    lanes = prefix_fingerprints(np.array(ids, np.int64))
    assert list(zip(*(lane.tolist() for lane in lanes), strict=True)) == [
        plain_fingerprint(ids[:n]) for n in range(len(ids) + 1)
    ]


@given(ANY_IDS)
def test_appending_token_by_token_is_the_same(ids: list[int]) -> None:
    state = EMPTY
    tokens = Tokens.explicit(ids)
    for n, token in enumerate(ids, 1):
        state = append(state, token)
        assert state == tokens.fingerprint(n)


@given(ANY_IDS, st.data())
def test_fingerprints_compose(ids: list[int], data: st.DataObject) -> None:
    tokens = Tokens.explicit(ids)
    end = data.draw(st.integers(0, len(ids)))
    start = data.draw(st.integers(0, end))
    assert tokens.advance(tokens.fingerprint(start), start, end) == tokens.fingerprint(end)
    # From any other state too: as if its tokens stood before.
    before = data.draw(ANY_IDS)
    assert tokens.advance(plain_fingerprint(before), start, end) == plain_fingerprint(before + ids[start:end])


@given(IDS, st.data())
def test_a_changed_token_changes_the_fingerprint(ids: list[int], data: st.DataObject) -> None:
    assume(ids)
    place = data.draw(st.integers(0, len(ids) - 1))
    other = ids.copy()
    other[place] = (ids[place] + data.draw(st.integers(1, VOCABULARY - 1))) % VOCABULARY
    one, two = Tokens.explicit(ids).fingerprint(len(ids)), Tokens.explicit(other).fingerprint(len(ids))
    assert one[0] != two[0] and one[1] != two[1]


@given(IDS, st.data())
def test_swapped_tokens_change_the_fingerprint(ids: list[int], data: st.DataObject) -> None:
    assume(len(set(ids)) > 1)
    i, j = data.draw(st.tuples(*[st.integers(0, len(ids) - 1)] * 2).filter(lambda p: ids[p[0]] != ids[p[1]]))
    other = ids.copy()
    other[i], other[j] = ids[j], ids[i]
    assert Tokens.explicit(ids).fingerprint(len(ids)) != Tokens.explicit(other).fingerprint(len(ids))


@given(IDS, st.data())
def test_a_dropped_or_doubled_token_changes_the_fingerprint(ids: list[int], data: st.DataObject) -> None:
    assume(ids)
    place = data.draw(st.integers(0, len(ids) - 1))
    whole = plain_fingerprint(ids)
    assert plain_fingerprint(ids[:place] + ids[place + 1 :]) != whole
    assert plain_fingerprint(ids[: place + 1] + ids[place:]) != whole


def test_no_two_of_a_million_prefixes_share_a_fingerprint() -> None:
    lanes = prefix_fingerprints(segment_ids([(3, 1_000_000)]))
    for lane in lanes:
        assert np.unique(lane).size == lane.size


@pytest.mark.parametrize("token", [-1, -2, 0, 1, 65_535, 65_536, 2**63 - 1])
def test_a_token_is_mixed_alike_in_a_stream_and_alone(token: int) -> None:
    assert Tokens.explicit([token]).fingerprint(1) == append(EMPTY, token) == (mix(token), mix(token))


# Hashes and finding.


@given(IDS, IDS, IDS, st.integers(1, 8))
def test_block_hashes_chain(shared: list[int], one: list[int], other: list[int], unit: int) -> None:
    first, second = Tokens.explicit(shared + one), Tokens.explicit(shared + other)
    a, b = first.block_hashes(unit), second.block_hashes(unit)
    assert (len(a), len(b)) == (len(first) // unit, len(second) // unit)
    same = 0
    while same < min(len(first), len(second)) and first.ids[same] == second.ids[same]:
        same += 1
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        assert (x == y) == ((i + 1) * unit <= same)
    assert all(len(key) == 16 for key in a + b)
    assert len(set(a)) == len(a)


@given(IDS, st.integers(1, 8))
def test_a_hash_names_its_prefix_whatever_the_unit(ids: list[int], unit: int) -> None:
    tokens = Tokens.explicit(ids)
    assert tokens.block_hashes(unit) == tokens.block_hashes(1)[unit - 1 :: unit]
    for i, key in enumerate(tokens.block_hashes(unit)):
        one, other = tokens.fingerprint((i + 1) * unit)
        assert key == one.to_bytes(8, "little") + other.to_bytes(8, "little")


@given(IDS)
def test_find_inverts_fingerprint_and_finds_nothing_else(ids: list[int]) -> None:
    tokens = Tokens.explicit(ids)
    for n in range(1, len(ids) + 1):
        assert tokens.find(tokens.fingerprint(n)) == n
        one, other = tokens.fingerprint(n)
        assert tokens.find((one, other ^ 1)) is None
        assert tokens.find((one ^ 1, other)) is None
    assert tokens.find(EMPTY) is None


# Streams that grow.


@given(IDS, IDS)
def test_an_extended_stream_is_the_longer_stream(ids: list[int], more: list[int]) -> None:
    tokens = Tokens.explicit(ids)
    tokens.lanes()
    tokens.extend(more)
    assert tokens.num_prompt == len(ids)
    assert len(tokens) == len(ids) + len(more)
    assert tokens.fingerprint(len(tokens)) == plain_fingerprint(ids + more)


def test_a_generated_stream_knows_its_prompt() -> None:
    tokens = Tokens.generate([(1, 5), (2, 3)], 0, 4)
    assert (tokens.num_prompt, len(tokens)) == (8, 12)


@given(st.integers(1, 60), st.integers(0, 30), st.integers(1, 30))
def test_an_item_reads_as_no_text_and_as_itself_alone(length: int, start: int, size: int) -> None:
    text = segment_ids([(1, start + size + length)])
    read = read_under(((start, size),), text)
    outside = np.r_[read[:start], read[start + size :]]
    assert outside.tolist() == np.r_[text[:start], text[start + size :]].tolist()
    assert (read[start : start + size] >= VOCABULARY).all() and (read < 2**32 - 1).all()
    # A longer item is another one from its first place on; the same one elsewhere reads as it does here.
    longer = read_under(((start, size + 1),), text)
    assert (longer[start : start + size] != read[start : start + size]).all()
    moved = read_under(((0, size),), text[start : start + size])
    assert moved.tolist() == read[start : start + size].tolist()


def test_outputs_of_a_request_are_the_same_behind_an_item() -> None:
    plain, item = (Tokens.generate([(1, 8)], 0, 4, spans) for spans in ((), ((2, 3),)))
    assert item.ids[8:].tolist() == plain.ids[8:].tolist() and item.fingerprint(2) == plain.fingerprint(2)
    assert all(item.fingerprint(n) != plain.fingerprint(n) for n in range(3, 13))
