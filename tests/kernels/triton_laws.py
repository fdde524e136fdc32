"""What the Triton kernels promise, under Triton's interpreter; ``test_triton_states.py`` runs this in a process of its
own, because the interpreter is chosen when a kernel is defined.

States are compared by relative Frobenius norm. Widths that are no powers of two, several layers and shared key heads
stand beside the small presets, since masks and indices are where a kernel goes wrong. The interpreter is slow: laws
share one batch for each width and form, run once between guards.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice

import numpy as np
import pytest
import torch

from stateat.kernels import draws, reference, torch_chunked, torch_states, triton_states
from stateat.kernels.families import CHUNKED, FAMILIES, shape
from stateat.kernels.shapes import Shape
from stateat.kernels.triton_states import states_at
from stateat.kernels.work import Work, dtype

TOLERANCE = 1e-6
CHUNK = 16

ODD = (
    Shape("ring", 2, 2, 1, 6, 5, 0, 0),
    Shape("gated-delta", 1, 4, 2, 20, 12, 4, 37),
    Shape("kda", 2, 1, 1, 20, 12, 2, 37),
    Shape("ssd", 1, 4, 2, 10, 12, 4, 37),
    Shape("selective-scan", 2, 1, 1, 33, 5, 4, 33),
    Shape("short-conv", 3, 0, 0, 0, 0, 5, 37),
)
SHAPES = [*(shape(family) for family in FAMILIES), *ODD]
FORMS = [(w, "sequential") for w in SHAPES] + [(w, "chunked") for w in SHAPES if w.family in CHUNKED]
LENGTHS = (0, 1, 19, 5, 16, 11)
LONG, CARRIED = 2, 5
"""Of LENGTHS: one from zero, and one with a state carried in."""
FEW = (0, 17)
"""Lengths for the small presets."""


def tokens(length, seed=0):
    """Ids, placeholders among them."""
    return np.random.default_rng(seed + 1000 * length).integers(-1, 60000, length)


def carried(width, seed):
    """A state that no kernel made."""
    draw = np.random.default_rng(seed)
    sizes = width.components
    if dtype(width) is np.uint64:
        return {name: draw.integers(0, 1 << 64, size, np.uint64) for name, size in sizes.items()}
    return {name: draw.standard_normal(size).astype(np.float32) for name, size in sizes.items()}


def batch(width):
    """Ragged, every second one with a state carried in; states wanted at no, one and several offsets."""
    works = []
    for number, length in enumerate(LENGTHS if width in ODD else FEW):
        offsets = tuple(sorted({0, length // 3, min(length, CHUNK), length}))
        works.append(Work(tokens(length), offsets, carried(width, number) if number % 2 else None))
    return [*works, Work(tokens(9), ())]


def at(width, works, form="sequential"):
    return states_at(width, works, device="cpu", form=form, chunk=CHUNK)


def between_guards(width, works, form, planes_less=0):
    """A launch with each output inside a larger poisoned buffer, run; and the buffers, by component."""
    launch = triton_states.prepare(width, works, device="cpu", form=form, chunk=CHUNK)
    buffers, calls = {}, []
    for (kernel, (x, y, z), (out, *rest)), name in zip(launch.calls, launch.outputs, strict=True):
        buffers[name] = out[:1].repeat(out.shape[0] + 2, *[1] * (out.ndim - 1))
        assert poisoned(buffers[name]).all()
        calls.append((kernel, (x, y - planes_less, z), (buffers[name][1:-1], *rest)))
    triton_states.run(replace(launch, calls=tuple(calls)))
    return buffers


def poisoned(tensor):
    return torch.isnan(tensor) if tensor.is_floating_point() else tensor == triton_states.POISON


@dataclass(frozen=True)
class Ran:
    """The batch of a width, run in one form."""

    works: list
    states: list
    buffers: dict
    untouched: bool


@cache
def ran(width, form):
    works = batch(width)
    before = [(work.tokens.copy(), {n: a.copy() for n, a in (work.state or {}).items()}) for work in works]
    buffers = between_guards(width, works, form)
    arrays = {name: buffer[1:-1].numpy().view(dtype(width)) for name, buffer in buffers.items()}
    wants = iter(range(sum(len(work.offsets) for work in works)))
    states = [[{n: a[want] for n, a in arrays.items()} for want in islice(wants, len(w.offsets))] for w in works]
    untouched = all(
        np.array_equal(ids, work.tokens) and all(np.array_equal(a, work.state[n]) for n, a in state.items())
        for (ids, state), work in zip(before, works, strict=True)
    )
    return Ran(works, states, buffers, untouched)


def distance(found, expected):
    """The largest over the components; NaN is infinite."""
    worst = 0.0
    for name, array in expected.items():
        error = np.linalg.norm(found[name].astype(np.float64) - array) / max(np.linalg.norm(array), 1e-30)
        worst = max(worst, float(np.nan_to_num(error, nan=np.inf)))
    return worst


def same(found, expected):
    """The same bits in every component."""
    return all(found[name].tobytes() == np.ascontiguousarray(array).tobytes() for name, array in expected.items())


def label(value):
    return f"{value.family}-{value.rows}x{value.columns}" if isinstance(value, Shape) else value


each_odd_form = pytest.mark.parametrize(("width", "form"), [case for case in FORMS if case[0] in ODD], ids=label)
each_form = pytest.mark.parametrize(("width", "form"), FORMS, ids=label)
each_width = pytest.mark.parametrize("width", ODD, ids=label)
each_accumulating = pytest.mark.parametrize("width", [w for w in ODD if w.heads], ids=label)
each_chunked = pytest.mark.parametrize("width", [w for w in ODD if w.family in CHUNKED], ids=label)


@each_form
def test_each_wanted_state_is_that_of_the_reference(width, form):
    result = ran(width, form)
    for work, states in zip(result.works, result.states, strict=True):
        for offset, state in zip(work.offsets, states, strict=True):
            truth = reference.absorb(width, work.tokens[:offset], work.state)
            if width.family == "ring":
                assert same(state, truth)
            else:
                assert distance(state, truth) < TOLERANCE
                if "conv" in truth:
                    assert np.array_equal(state["conv"], truth["conv"])  # gathered, so exact


@each_odd_form
def test_what_a_call_returns_is_what_the_launch_wrote_in_the_order_of_the_wants(width, form):
    result = ran(width, form)
    [few, none, one] = at(width, [result.works[3], Work(tokens(9), ()), result.works[1]], form)
    assert none == []
    for found, expected in ((few, result.states[3]), (one, result.states[1])):
        assert len(found) == len(expected)
        assert all(same(a, b) for a, b in zip(found, expected, strict=True))
        assert {name: array.shape for name, array in found[0].items()} == width.components
        assert all(array.dtype == dtype(width) for array in found[0].values())


@each_accumulating
def test_a_state_one_token_off_is_far_beyond_the_tolerance(width):
    result = ran(width, "sequential")
    work, last = result.works[LONG], result.states[LONG][-1]
    for ids in (work.tokens[:-1], work.tokens[1:]):
        assert distance(last, reference.absorb(width, ids)) > 1e3 * TOLERANCE


@each_form
def test_torch_and_triton_agree_on_every_state(width, form):
    if not width.heads:
        return  # conv states are compared with the reference, exactly
    result = ran(width, form)
    twins = [[{n: np.empty(size, dtype(width)) for n, size in width.components.items()} for _ in w.offsets]
             for w in result.works]  # fmt: skip
    if form == "chunked":
        torch_chunked.fill(width, result.works, twins, "cpu", CHUNK)
    else:
        torch_states.fill(width, result.works, twins, "cpu")
    for twin, state in zip(chain(*twins), chain(*result.states), strict=True):
        if width.family == "ring":
            assert same(state, twin)
        else:
            assert distance(state, {"recurrent": twin["recurrent"]}) < TOLERANCE


@each_width
def test_no_split_of_a_run_changes_a_bit(width):
    result = ran(width, "sequential")
    work, whole = result.works[CARRIED], result.states[CARRIED][-1]
    cuts = sorted(np.random.default_rng(width.rows).integers(0, work.tokens.size + 1, 3).tolist())
    state = work.state
    for start, end in zip([0, *cuts], [*cuts, work.tokens.size], strict=True):
        [[state]] = at(width, [Work(work.tokens[start:end], (end - start,), state)])
    assert same(state, whole)


@each_odd_form
def test_a_state_has_the_same_bits_in_any_batch_and_beside_any_other_want(width, form):
    result = ran(width, form)
    last = {index: replace(result.works[index], offsets=result.works[index].offsets[-1:]) for index in (LONG, CARRIED)}
    [second, first] = at(width, [last[CARRIED], last[LONG]], form)
    assert same(second[0], result.states[CARRIED][-1])
    assert same(first[0], result.states[LONG][-1])


@each_chunked
def test_chunks_keep_bits_across_an_aligned_split_and_lose_them_across_another(width):
    result = ran(width, "chunked")
    work, whole = result.works[LONG], result.states[LONG][-1]

    def split(cut):
        [[state]] = at(width, [Work(work.tokens[:cut], (cut,))], "chunked")
        [[state]] = at(width, [Work(work.tokens[cut:], (work.tokens.size - cut,), state)], "chunked")
        return state

    assert same(split(CHUNK), whole)
    unaligned = split(9)
    assert not same(unaligned, whole)  # were it equal, the law above would say nothing of chunks
    assert distance(unaligned, whole) < TOLERANCE


def test_the_longest_chunk_of_the_fastest_decay_stays_within_float32():
    # One id again and again, that of the largest gate: the exponents of a chunk are as large as they can be.
    width = Shape("kda", 1, 1, 1, 16, 16, 0, 0)
    candidates = np.arange(1000)
    gates = draws.half(draws.bits(candidates, draws.key(0, draws.GATE, 0)))
    ids = np.full(256, candidates[gates.argmax()])
    assert 256 * gates.max() / 2 > np.log(np.finfo(np.float32).max)
    [[state]] = states_at(width, [Work(ids, (256,))], device="cpu", form="chunked", chunk=256)
    # An exponent of 64 is itself rounded by 4e-6.
    assert distance(state, reference.absorb(width, ids)) < 10 * TOLERANCE


@pytest.mark.parametrize("family", CHUNKED)
def test_a_chunk_of_several_parts_is_the_same_chunk(family):
    width, ids = shape(family), tokens(45)
    [[early, late]] = states_at(width, [Work(ids, (29, 45))], device="cpu", form="chunked", chunk=64)
    assert distance(early, reference.absorb(width, ids[:29])) < TOLERANCE
    assert distance(late, reference.absorb(width, ids)) < TOLERANCE


TILED = (
    Shape("ring", 1, 1, 1, 6, 20, 0, 0),
    Shape("gated-delta", 1, 1, 1, 6, 37, 0, 0),
    Shape("kda", 1, 1, 1, 6, 37, 0, 0),
    Shape("ssd", 1, 1, 1, 80, 12, 0, 0),
    Shape("selective-scan", 1, 1, 1, 140, 5, 0, 0),
    Shape("short-conv", 1, 0, 0, 0, 0, 3, 1100),
)
"""Wider than one tile on a GPU."""


@pytest.mark.parametrize(
    ("width", "form"),
    [(w, f) for w in TILED for f in ("sequential", "chunked") if f == "sequential" or w.family in CHUNKED],
    ids=label,
)
def test_the_tiles_and_blocks_of_a_gpu_give_the_same_states(width, form, monkeypatch):
    works = [Work(tokens(3), (0, 2, 3), carried(width, 1)), Work(tokens(2), (1,))]
    whole = at(width, works, form)
    monkeypatch.setattr(triton_states, "INTERPRETED", False)
    [(kernel, grid, _)] = triton_states.prepare(width, works, device="cpu", form=form, chunk=CHUNK).calls
    assert kernel.block == 1
    assert grid[0] >= 2 <= grid[2]
    for found, expected in zip(chain(*at(width, works, form)), chain(*whole), strict=True):
        assert same(found, expected) if form == "sequential" else distance(found, expected) < TOLERANCE


@each_form
def test_a_launch_writes_every_output_and_nothing_else(width, form):
    result = ran(width, form)
    for buffer in result.buffers.values():
        assert not poisoned(buffer[1:-1]).any()
        assert poisoned(buffer[0]).all()
        assert poisoned(buffer[-1]).all()
    assert result.untouched


@each_odd_form
def test_a_program_that_does_not_run_leaves_its_outputs_poisoned(width, form):
    buffers = between_guards(width, [Work(tokens(3), (0, 3)), Work(tokens(2), (1,))], form, planes_less=1)
    for name, buffer in buffers.items():
        planes = buffer[1:-1].flatten(1, 2) if name == "recurrent" else buffer[1:-1]
        assert poisoned(planes[:, -1]).all()
        assert not poisoned(planes[:, :-1]).any()


def test_a_launch_gives_the_same_bits_again():
    width = shape("gated-delta")
    for form in ("sequential", "chunked"):
        launch = triton_states.prepare(width, [Work(tokens(18), (3, 18))], device="cpu", form=form, chunk=CHUNK)
        triton_states.run(launch)
        first = {name: tensor.clone() for name, tensor in launch.outputs.items()}
        triton_states.run(launch)
        assert all(torch.equal(first[name], tensor) for name, tensor in launch.outputs.items())


def test_what_a_family_lacks_is_refused_and_nothing_wanted_is_nothing_given():
    with pytest.raises(ValueError, match="no chunked Triton kernel of selective-scan"):
        at(shape("selective-scan"), [Work(tokens(3), (3,))], "chunked")
    with pytest.raises(ValueError, match="no form 'parallel'"):
        at(shape("ssd"), [Work(tokens(3), (3,))], "parallel")
    assert at(shape("ssd"), [Work(tokens(3), ()), Work(tokens(0), ())]) == [[], []]
    assert at(shape("ssd"), []) == []
