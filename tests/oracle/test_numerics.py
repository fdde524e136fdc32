"""What is held, in numbers: the fingerprint decides, the numbers measure, and neither is taken for the other."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.kernels.families import FAMILIES
from stateat.oracle import numerics
from stateat.oracle.audit import Auditor
from stateat.oracle.numerics import ClaimedSlot, Numerics, TooLarge, relative_error
from stateat.oracle.states import Arithmetic, Numeric, family
from stateat.oracle.states.lazy import LazyState
from stateat.sim.events import SCHEMA, Group
from stateat.sim.tokens import Tokens

LENGTH = 96
TOKENS = Tokens.generate(((3, LENGTH),), 0, 8)
GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))
FLOATS = [name for name in FAMILIES if name != "ring"]
CUTS = st.lists(st.integers(1, LENGTH - 1), unique=True, max_size=5).map(sorted)


def numeric(state: str, **how: Any) -> Numeric:
    made = family(state, Arithmetic(backend="numpy", **how))
    assert isinstance(made, Numeric)
    return made


def through(made: Numeric, cuts: list[int], end: int = LENGTH) -> LazyState:
    """The state after [0, end) in chunks."""
    state = made.zero()
    for start, stop in pairwise([0, *(c for c in cuts if c < end), end]):
        state = made.advance(state, TOKENS, start, stop, ())
    return state


def measured(made: Numeric, *pairs: tuple[LazyState, int]) -> numerics.Measured:
    """Each held state against the truth at the offset that it is claimed for."""
    ledger = Numerics(made)
    for i, (held, claimed) in enumerate(pairs):
        truth = made.state_at(TOKENS, claimed)
        finding = None if made.equal(held, truth) else i
        ledger.note(ClaimedSlot(held, truth, "a", "gdn", 0, i, claimed, 0, 0, finding))
    ledger.flush()
    return ledger.measured


@pytest.mark.parametrize("state", FAMILIES)
@settings(max_examples=10)
@given(cuts=CUTS)
def test_in_float32_any_chunks_leave_the_bits_of_the_truth(state: str, cuts: list[int]) -> None:
    made = numeric(state)
    done = measured(made, *((through(made, cuts, end), end) for end in (*cuts, LENGTH)))
    assert (done.exact, done.noise, done.errors) == (len(cuts) + 1, 0, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("state", ["gated-delta", "kda", "ssd", "selective-scan"])
def test_a_narrow_state_that_was_rounded_on_its_way_is_noise_and_no_finding(state: str, dtype: str) -> None:
    made = numeric(state, dtype=dtype)
    done = measured(made, (through(made, [LENGTH - 3]), LENGTH), (through(made, []), LENGTH))
    assert (done.exact, done.noise, done.errors) == (1, 1, {})
    assert 0 < done.worst[0].error < 2e-2


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("state", ["gated-delta", "kda", "ssd", "selective-scan", "short-conv"])
def test_a_boundary_fault_is_never_noise(state: str, rounding: str) -> None:
    made = numeric(state, dtype="bfloat16", rounding=rounding)
    done = measured(made, (through(made, [40], LENGTH - 1), LENGTH))
    assert (done.exact, done.noise, list(done.errors)) == (0, 0, [0])
    assert done.nearest_wrong == done.errors[0] > 2e-2


def test_of_a_ring_the_error_is_the_share_of_entries_that_differ() -> None:
    made = numeric("ring")
    done = measured(made, (through(made, [], LENGTH - 1), LENGTH), (through(made, [5]), LENGTH))
    assert done.exact == 1 and done.errors[0] > 0.99


def test_the_shape_of_chunks_is_noise_of_a_chunked_kernel_and_of_no_other() -> None:
    pytest.importorskip("torch")
    chunked = family("gated-delta", Arithmetic(backend="torch", form="chunked"))
    sequential = family("gated-delta", Arithmetic(backend="torch"))
    assert isinstance(chunked, Numeric) and isinstance(sequential, Numeric)
    assert measured(sequential, (through(sequential, [37]), LENGTH)).exact == 1
    done = measured(chunked, (through(chunked, [37]), LENGTH))
    assert (done.exact, done.noise) == (0, 1) and done.worst[0].error < 1e-5
    # On its own grid it has no noise either.
    assert measured(chunked, (through(chunked, [64]), LENGTH)).exact == 1


def test_a_chunked_truth_is_computed_in_one_go_even_where_a_shorter_prefix_is_known() -> None:
    """Whoever continues off the kernel's grid has other bits; the truth never does."""
    pytest.importorskip("torch")
    made = family("gated-delta", Arithmetic(backend="torch", form="chunked"))
    assert isinstance(made, Numeric)
    ledger = Numerics(made)
    for end in (37, LENGTH):
        truth = made.state_at(TOKENS, end)
        ledger.note(ClaimedSlot(through(made, [], end), truth, "a", "gdn", 0, end, end, 0, 0, None))
        ledger.flush()
    assert (ledger.measured.exact, ledger.measured.noise) == (2, 0)
    # The control: what continues from 37 is noise.
    assert measured(made, (through(made, [37]), LENGTH)).noise == 1


def test_a_seeded_rounding_is_the_same_for_the_same_seed_and_only_then() -> None:
    def held(seed: int) -> Any:
        made = numeric("gated-delta", dtype="bfloat16", rounding="stochastic", seed=seed)
        state = through(made, [50])
        measured(made, (state, LENGTH))
        assert state.recipe is not None and state.recipe.value is not None
        return state.recipe.value["recurrent"]

    assert np.array_equal(held(1), held(1)) and not np.array_equal(held(1), held(2))


def test_checks_wait_and_are_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numerics, "PENDING", 3)
    made = numeric("ring")
    states = [(through(made, [n], n + 1), n + 1) for n in range(1, 40)]
    assert measured(made, *states).exact == 39


def test_states_that_share_a_history_are_computed_once() -> None:
    made = numeric("gated-delta")
    launched: list[int] = []
    launch = made.launch

    class Counting(type(made)):  # type: ignore[misc]
        def launch(self, works: Any) -> Any:
            launched.extend(work.tokens.size for work in works)
            return launch(works)

    counting = Counting(made.family, Arithmetic(backend="numpy"))
    base = counting.advance(counting.zero(), TOKENS, 0, 64, ())
    leaves = [counting.advance(base, TOKENS, 64, 64 + n, ()) for n in range(1, 9)]
    ledger = Numerics(counting)
    for i, leaf in enumerate(leaves):
        ledger.note(ClaimedSlot(leaf, counting.state_at(TOKENS, 65 + i), "a", "gdn", 0, i, 65 + i, 0, 0, None))
    ledger.flush()
    assert ledger.measured.exact == 8
    # The truth in one go, what is held from one base.
    assert sorted(launched) == [*range(1, 9), 64, 72]


def test_nan_and_infinity_are_findings_of_their_own_and_never_noise() -> None:
    class Bursting(Numeric):
        def stored(self, state: Any, mark: int) -> Any:
            value = np.inf if mark == TOKENS.fingerprint(16)[0] and self.bursts else 1.0
            self.bursts = True
            return {**state, "recurrent": state["recurrent"] * np.float32(value)}

        bursts = False

    made = Bursting(FAMILIES["gated-delta"], Arithmetic(backend="numpy"))
    auditor = Auditor(made)
    options = {"hash_unit": 4, "max_num_batched_tokens": 99, "long_prefill_token_threshold": 0}
    auditor.run(SCHEMA, "hand", GROUPS, 0, options | {"enable_prefix_caching": True})
    auditor.arrive("a", 0, 0, ((3, LENGTH),), None, 8)
    auditor.step(0, 0, 99)
    auditor.admit("a", 0, 0, False)
    auditor.claim(1, 7, "a", 0, 16, b"hash")
    auditor.chunk("a", 0, 16, 0, "", 0, ())
    auditor.advance("a", 1, 0, 16, (), -1, [(16, 7)], 0)
    auditor.commit(1)
    (found,) = auditor.findings()
    assert (found.invariant, found.severity, found.verdict, found.slot) == ("I18", "numerics", "not finite", 7)
    assert auditor.numerics is not None
    done = auditor.numerics.measured
    assert (done.exact, done.noise, done.not_finite) == (0, 0, 1)
    # Asked again, it is not found again.
    assert len(auditor.findings()) == 1


def test_a_state_that_does_not_fit_is_refused_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = numeric("gated-delta")
    monkeypatch.setattr(numerics, "available_bytes", lambda: 2 * made.state_bytes)
    with pytest.raises(TooLarge, match=rf"one state is {made.state_bytes:,} bytes, three are needed"):
        Numerics(made)
    monkeypatch.setattr(numerics, "available_bytes", lambda: 5 * made.state_bytes)
    ledger = Numerics(made)
    for n in range(1, 9):
        ledger.note(ClaimedSlot(through(made, [], n), made.state_at(TOKENS, n), "a", "gdn", 0, n, n, 0, 0, None))
    with pytest.raises(TooLarge, match=rf"8 states of {made.state_bytes:,} bytes are"):
        ledger.flush()


def test_memory_that_is_free_is_known_here() -> None:
    free = numerics.available_bytes()
    assert free is None or free > 1 << 20


@given(st.floats(1e-3, 1e3), st.integers(0, 3))
def test_the_relative_error_is_a_distance(scale: float, place: int) -> None:
    truth = {"recurrent": np.full(4, scale, np.float32)}
    held = {"recurrent": truth["recurrent"].copy()}
    assert relative_error(held, truth) == 0
    held["recurrent"][place] *= 2
    assert relative_error(held, truth) == pytest.approx(0.5, rel=1e-5)
    zero = {"recurrent": np.zeros(4, np.float32)}
    assert relative_error(zero, zero) == 0 and relative_error(held, zero) == np.inf


@pytest.mark.parametrize("state", FLOATS)
def test_equal_means_the_same_tokens_whatever_the_arithmetic(state: str) -> None:
    made, wide = numeric(state, dtype="bfloat16"), numeric(state)
    assert made.equal(through(made, [7, 50]), wide.state_at(TOKENS, LENGTH))
    assert not made.equal(through(made, [], LENGTH - 1), made.state_at(TOKENS, LENGTH))
    assert made.find(through(made, [9], 33), TOKENS) == 33
    assert len({through(made, [5]), made.state_at(TOKENS, LENGTH)}) == 1


def test_values_are_the_true_states() -> None:
    made = numeric("ssd", dtype="float16")
    once, twice = made.values(TOKENS, [10, 20]), made.values(TOKENS, [20])
    assert np.array_equal(once[1]["recurrent"], twice[0]["recurrent"])
    assert not np.array_equal(once[0]["recurrent"], once[1]["recurrent"])
    assert replace(made.how, dtype="float32") == Arithmetic(backend="numpy")
