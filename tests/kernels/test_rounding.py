"""Rounded states are on the grid of the stored dtype, near enough, and repeatable when stochastic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_cases import at, distance, tokens

from stateat.kernels.families import shape
from stateat.kernels.rounding import round_state
from stateat.kernels.work import State

BOUNDS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
LOSSY = sorted(BOUNDS)
STATE = at(shape("gated-delta", "small*2"), tokens(130), backend="numpy")
FLOATS = st.floats(width=32, allow_nan=False)


def of(values: object) -> State:
    return {"recurrent": np.array([[values]], np.float32)}


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    torch = pytest.importorskip("torch")
    return torch.from_numpy(array).to(torch.bfloat16).float().numpy()


@pytest.mark.parametrize("dtype", LOSSY)
@given(values=st.lists(FLOATS, min_size=1, max_size=20))
def test_rounding_to_nearest_is_the_cast(dtype: str, values: list[float]) -> None:
    rounded = round_state(of(values), dtype)["recurrent"]
    assert rounded.tobytes() == cast(of(values)["recurrent"], dtype).tobytes()


@pytest.mark.parametrize("dtype", LOSSY)
def test_a_nan_stays_one(dtype: str) -> None:
    payload = np.array([[[0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001]]], np.uint32).view(np.float32)
    assert np.isnan(round_state({"recurrent": payload}, dtype)["recurrent"]).all()


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("seed", [None, 0, 12345])
def test_the_error_of_one_rounding_has_the_size_of_the_dtype(dtype: str, seed: int | None) -> None:
    """To nearest, measured: 1.7e-3 (bfloat16), 2.1e-4 (float16), a bit under half the bound; stochastic more."""
    rounded = round_state(STATE, dtype, seed)
    assert {name: array.dtype for name, array in rounded.items()} == dict.fromkeys(STATE, np.float32)
    bound = BOUNDS[dtype] * (1 if seed is None else 2)
    for name, array in rounded.items():
        assert bound / 8 < distance(array, STATE[name]) < bound
        normal = np.abs(STATE[name]) > 2.0**-14
        assert (np.abs(array - STATE[name])[normal] <= bound * np.abs(STATE[name])[normal]).all()


@pytest.mark.parametrize("dtype", LOSSY)
@given(values=st.lists(FLOATS, min_size=1, max_size=20), seed=st.integers(0, 2**40))
def test_stochastic_rounding_takes_a_neighbour_on_the_grid(dtype: str, values: list[float], seed: int) -> None:
    exact = of(values)["recurrent"]
    rounded = round_state(of(values), dtype, seed)["recurrent"]
    assert cast(rounded, dtype).tobytes() == rounded.tobytes()
    on_grid = cast(exact, dtype) == exact
    assert (rounded[on_grid] == exact[on_grid]).all()
    least = 2.0**-133 if dtype == "bfloat16" else 2.0**-24
    finite = np.isfinite(rounded) & np.isfinite(exact)
    spacing = np.maximum(2 * BOUNDS[dtype] * np.abs(exact[finite].astype(np.float64)), least)
    assert (np.abs(rounded[finite].astype(np.float64) - exact[finite]) <= spacing).all()


@pytest.mark.parametrize("dtype", LOSSY)
def test_stochastic_rounding_is_a_function_of_its_seed(dtype: str) -> None:
    one, again, other = (round_state(STATE, dtype, seed) for seed in (5, 5, 6))
    for name in STATE:
        assert one[name].tobytes() == again[name].tobytes()
        assert (one[name] != other[name]).mean() > 0.2
        assert (one[name][0] - STATE[name][0] != one[name][1] - STATE[name][1]).any()


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.875])
def test_stochastic_rounding_has_no_bias(dtype: str, part: float) -> None:
    """A number that is ``part`` of the way to the next one is rounded up in that part of 200,000 draws."""
    count, spacing = 200_000, 2 * BOUNDS[dtype]
    for base in (1.0, -1.0):
        exact = np.full((2, count // 20), base * (1 + part * spacing), np.float32)
        away = [(np.abs(round_state({"recurrent": exact}, dtype, seed)["recurrent"]) > 1).mean() for seed in range(10)]
        assert abs(np.mean(away) - part) < 5 * np.sqrt(part * (1 - part) / count)


def test_float32_is_a_copy() -> None:
    copied = round_state(STATE, "float32")
    for name, array in copied.items():
        assert array.tobytes() == STATE[name].tobytes() and not np.shares_memory(array, STATE[name])


@pytest.mark.parametrize("dtype", LOSSY)
@pytest.mark.parametrize("seed", [None, 3])
def test_the_state_given_is_not_written_to(dtype: str, seed: int | None) -> None:
    kept = {name: array.copy() for name, array in STATE.items()}
    round_state(STATE, dtype, seed)
    assert all(kept[name].tobytes() == STATE[name].tobytes() for name in kept)


def test_what_cannot_be_rounded_is_refused() -> None:
    with pytest.raises(ValueError, match="no state dtype 'int8'; there are float32, bfloat16, float16"):
        round_state(STATE, "int8")
    with pytest.raises(ValueError, match="component recurrent is uint64; only float32 is rounded"):
        round_state(at(shape("ring"), tokens(3), backend="numpy"), "bfloat16")
