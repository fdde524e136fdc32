import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stateat.kernels.triton_plan import ragged, steps, stops
from stateat.kernels.work import Work


@st.composite
def works(draw):
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=9))
    found = []
    for number, length in enumerate(lengths):
        offsets = draw(st.sets(st.integers(0, length), max_size=6))
        found.append(Work(np.arange(length) + 100 * number, tuple(sorted(offsets))))
    return found


@given(works())
def test_a_works_tokens_and_wants_are_found_from_the_tables(given_works):
    plan = ragged(given_works)
    for work, first, count in zip(given_works, plan.first, plan.count, strict=True):
        assert plan.tokens[first : first + count].tolist() == work.tokens.tolist()
    expected = [(number, offset) for number, work in enumerate(given_works) for offset in work.offsets]
    assert list(zip(plan.want_request.tolist(), plan.want_offset.tolist(), strict=True)) == expected


def test_ids_are_kept_mod_2_to_the_32():
    ids = np.array([-1, 0, 2**31, 2**32 - 1, 2**32 + 5])
    assert ragged([Work(ids, ())]).tokens[:5].view(np.uint32).tolist() == [2**32 - 1, 0, 2**31, 2**32 - 1, 5]


@given(works(), st.sampled_from([1, 2, 4, 16]))
def test_walking_the_stops_fills_each_want_once_at_its_own_offset(given_works, width):
    plan = ragged(given_works)
    halts = stops(plan, width)
    filled = {}
    for block, (low, high) in enumerate(zip(halts.block, halts.block[1:], strict=False)):
        assert (np.diff(halts.stop[low:high]) > 0).all()
        for stop in range(low, high):
            for row in np.flatnonzero(halts.slot[stop] >= 0).tolist():
                want = halts.slot[stop, row].item()
                assert want not in filled
                filled[want] = (block * width + row, halts.stop[stop].item())
    wants = zip(plan.want_request.tolist(), plan.want_offset.tolist(), strict=True)
    assert filled == dict(enumerate(wants))
    assert halts.block[0] == 0
    assert halts.block[-1] == halts.stop.size


@given(works(), st.sampled_from([1, 3, 8, 64]))
def test_steps_are_chunks_from_the_start_and_one_shorter_one_before_a_want_within(given_works, chunk):
    plan, walk = ragged(given_works), steps(given_works, chunk)
    filled = {}
    for number in range(len(given_works)):
        at = 0
        for start, length, want, moves in walk.step[walk.request[number] : walk.request[number + 1]].tolist():
            assert start == at
            assert length == chunk if moves else length < chunk
            assert want >= 0 or moves
            if want >= 0:
                filled[want] = (number, start + length)
            at += length * moves
        last = max(given_works[number].offsets, default=0)
        assert at == last // chunk * chunk  # no chunk beyond the last want
    wants = zip(plan.want_request.tolist(), plan.want_offset.tolist(), strict=True)
    assert filled == dict(enumerate(wants))


def test_no_works_make_empty_tables():
    plan = ragged([])
    assert plan.tokens.tolist() == [0]
    assert plan.want_offset.size == plan.count.size == 0
    assert stops(plan, 4).block.tolist() == [0]
    assert steps([], 4).step.shape == (0, 4)
