"""Rates and differences: known values, intervals that cover, and no conclusion where there is none."""

from __future__ import annotations

import io
import warnings
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_sweep
from hypothesis import given
from hypothesis import strategies as st

import stateat
from stateat.sim.errors import InputError
from stateat.sim.sweeps.stats import (
    ALIKE,
    FEW_PAIRS,
    FEW_SEEDS,
    NO_HITS,
    NO_PAIRS,
    NO_RUNS,
    NO_VALUES,
    PER,
    paired,
    rates,
    wilson,
)

Counts = st.integers(0, 10**6)


def runs(*rows: dict[str, Any], variant: str = "a", point: int = 0) -> pd.DataFrame:
    """A table of runs under seeds 0, 1, ...; of each only what is said differs."""
    usual = {
        "point": point, "variant": variant, "case": "", "poisoned": 0, "claims": 100, "starts": 50, "wrong_restores": 0,
        "tainted_requests": 0, "requests": 80, "hit_tokens": 300, "prompt_tokens": 1000, "steps": 10, "error": "",
    }  # fmt: skip
    return pd.DataFrame([{**usual, "seed": i, "digest": f"{variant}{point}-{i}", **row} for i, row in enumerate(rows)])


# Wilson.


@pytest.mark.parametrize(
    ("successes", "trials", "level", "low", "high"),
    [
        (0, 10, 0.95, 0.0, 0.2775),
        (5, 10, 0.95, 0.2366, 0.7634),
        (10, 10, 0.95, 0.7225, 1.0),
        (1, 1, 0.95, 0.2065, 1.0),
        (1, 100, 0.95, 0.0018, 0.0545),
        (81, 263, 0.95, 0.2553, 0.3662),  # Newcombe, 1998, table I
        (15, 148, 0.95, 0.0624, 0.1605),
        (5, 10, 0.99, 0.1842, 0.8158),
        (0, 0, 0.95, 0.0, 1.0),
    ],
)
def test_wilson_gives_known_values(successes: int, trials: int, level: float, low: float, high: float) -> None:
    assert wilson(successes, trials, level) == pytest.approx((low, high), abs=6e-5)


@given(Counts, Counts, st.floats(0.5, 0.999))
def test_wilson_holds_the_proportion_and_is_symmetric(a: int, b: int, level: float) -> None:
    low, high = wilson(a, a + b, level)
    assert 0 <= low <= high <= 1
    if a + b:
        assert low <= a / (a + b) <= high
    mirrored = wilson(b, a + b, level)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_wilson_narrows_with_trials_and_widens_with_the_level(a: int, b: int) -> None:
    def width(times: int, level: float) -> float:
        low, high = wilson(a * times, (a + b) * times, level)
        return high - low

    assert width(4, 0.95) < width(1, 0.95) < width(1, 0.99)


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5])
def test_wilson_covers(p: float) -> None:
    rng = np.random.default_rng(7)
    trials = 200
    held = [low <= p <= high for low, high in (wilson(int(k), trials) for k in rng.binomial(trials, p, 2000))]
    assert 0.93 <= np.mean(held) <= 0.98


@pytest.mark.parametrize(
    ("a", "b", "level"),
    [
        (-1, 3, 0.9), (4, 3, 0.9), (1, 3, 0.0), (1, 3, 1.0), (1, 3, float("nan")), (1.5, 3, 0.9),
        (0, float("inf"), 0.9), (float("nan"), 3, 0.9),
    ],
)  # fmt: skip
def test_wilson_refuses_what_is_no_proportion(a: Any, b: Any, level: float) -> None:
    with pytest.raises(InputError, match="found"):
        wilson(a, b, level)


# Rates.


def test_a_rate_is_what_was_wrong_out_of_what_there_was() -> None:
    frame = runs(
        {"poisoned": 3, "wrong_restores": 2, "tainted_requests": 4},
        {"poisoned": 1, "starts": 10, "claims": 60},
        {},
        {},
        {},
    )
    wanted = {"claim": (4, 460), "restore": (2, 210), "request": (4, 400), "run": (2, 5)}
    for per in PER:
        (row,) = rates(frame, per=per).to_dict("records")
        wrong, trials = wanted[per]
        assert (row["variant"], row["runs"], row["wrong"], row["trials"]) == ("a", 5, wrong, trials)
        assert row["rate"] == wrong / trials
        assert (row["low"], row["high"]) == wilson(wrong, trials)
        assert row["run_low"] <= row["rate"] <= row["run_high"]
        assert row["hit_rate"] == 0.3
        assert row["conclusion"] == ""


def test_groups_come_in_the_order_of_the_table() -> None:
    frame = pd.concat([runs({}, {}, variant="z"), runs({}, {}, variant="b", point=1)])
    assert rates(frame)["variant"].tolist() == ["z", "b"]
    assert rates(frame, ["point", "variant"])[["point", "variant"]].values.tolist() == [[0, "z"], [1, "b"]]
    assert len(rates(frame, [])) == 1


def test_runs_without_hits_conclude_nothing() -> None:
    """Negative control: a policy that never caches is not one that never poisons."""
    (row,) = rates(runs({"starts": 0}, {"starts": 0})).to_dict("records")
    assert (row["runs"], row["without_hits"], row["trials"], row["conclusion"]) == (2, 2, 0, NO_HITS)
    assert all(isnan(row[name]) for name in ("rate", "low", "high", "run_low", "run_high"))
    # Not even what was poisoned in them, which nobody read; but it is told.
    (row,) = rates(runs({"starts": 0, "poisoned": 7})).to_dict("records")
    assert isnan(row["rate"]) and row["conclusion"] == NO_HITS
    assert row["wrong_without_hits"] == 7
    (row,) = rates(runs({"starts": 0, "claims": 1000}, {"poisoned": 10}, {})).to_dict("records")
    assert (row["without_hits"], row["wrong_without_hits"], row["trials"], row["rate"]) == (1, 0, 200, 0.05)


def test_where_nothing_is_claimed_nothing_can_be_wrong() -> None:
    """A model without recurrent groups has hits and no claims."""
    (row,) = rates(runs({"claims": 0}, {"claims": 0})).to_dict("records")
    assert isnan(row["rate"]) and row["conclusion"] == "no claims: no conclusion"


def test_runs_that_failed_are_counted_and_left_out() -> None:
    missing = {
        "poisoned": pd.NA,
        "claims": pd.NA,
        "starts": pd.NA,
        "hit_tokens": pd.NA,
        "error": "boom",
        "digest": pd.NA,
    }
    frame = runs(missing, {"poisoned": 1}, {}).convert_dtypes()
    (row,) = rates(frame).to_dict("records")
    assert (row["runs"], row["failed"], row["wrong"], row["trials"]) == (2, 1, 1, 200)
    (row,) = rates(runs(missing).convert_dtypes()).to_dict("records")
    assert (row["failed"], row["conclusion"]) == (1, NO_RUNS) and isnan(row["rate"])


@pytest.mark.parametrize("seeds", [1, 2, 4, 5])
def test_few_runs_have_no_interval_over_runs(seeds: int) -> None:
    (row,) = rates(runs(*({"poisoned": 5 + i} for i in range(seeds)))).to_dict("records")
    assert (isnan(row["run_low"]), row["conclusion"]) == ((True, FEW_SEEDS) if seeds < 5 else (False, ""))
    assert (row["low"], row["high"]) == wilson(row["wrong"], 100 * seeds)


def test_seeds_that_change_nothing_are_one_run() -> None:
    (row,) = rates(runs(*[{"poisoned": 5, "digest": "same"}] * 50)).to_dict("records")
    assert (row["runs"], row["trials"], row["conclusion"]) == (1, 100, FEW_SEEDS)
    # Only if they change nothing at all.
    (row,) = rates(runs(*[{"digest": "same"}] * 3, {"digest": "other"})).to_dict("records")
    assert row["runs"] == 4
    (row,) = rates(runs({"digest": "same"}, {"digest": "same", "poisoned": 1})).to_dict("records")
    assert row["runs"] == 2


def swept(points: int, *rows: dict[str, Any], variant: str = "a") -> pd.DataFrame:
    """The same runs at several points."""
    return pd.concat([runs(*rows, variant=variant, point=point) for point in range(points)], ignore_index=True)


def test_points_that_change_nothing_are_one_run() -> None:
    rows = [{"poisoned": i, "steps": 10 + i, "digest": f"d{i}"} for i in range(6)]
    one, many = rates(runs(*rows)), rates(swept(7, *rows))
    pd.testing.assert_frame_equal(many, one)
    # Nor do seeds and points that both change nothing, and each variant is apart.
    (row,) = rates(swept(3, *[{"digest": "same"}] * 4)).to_dict("records")
    assert (row["runs"], row["seeds"]) == (1, 1)
    assert rates(pd.concat([swept(3, *rows), swept(2, *rows, variant="b")]))["runs"].tolist() == [6, 6]
    # Each point by itself has all of its runs.
    assert rates(swept(3, *rows), "point")["runs"].tolist() == [6, 6, 6]
    others = [{**row, "steps": row["steps"] + 1, "digest": f"e{i}"} for i, row in enumerate(rows)]
    frame = pd.concat([swept(4, *rows), swept(4, *others, variant="b")])
    alone = pd.concat([runs(*rows), runs(*others, variant="b")])
    pd.testing.assert_frame_equal(paired(frame, "a", "b", "steps"), paired(alone, "a", "b", "steps"))


def test_runs_of_which_only_the_worker_differs_are_not_one() -> None:
    """A digest is of what the scheduler decides; what is poisoned under it is another matter."""
    frame = pd.concat([runs({"digest": "d"}), runs({"digest": "d", "poisoned": 9}, point=1)])
    (row,) = rates(frame).to_dict("records")
    assert (row["runs"], row["wrong"]) == (2, 9)


def test_seeds_are_resampled_with_all_their_points() -> None:
    """Points of a seed share a workload: however many there are, the interval does not narrow."""
    counts = (0, 3, 8, 1, 12, 5)

    def width(points: int) -> float:
        frame = pd.concat([runs(*({"poisoned": c} for c in counts), point=point) for point in range(points)])
        (row,) = rates(frame).to_dict("records")
        assert (row["runs"], row["seeds"]) == (6 * points, 6)
        return float(row["run_high"] - row["run_low"])

    assert width(1) == width(8)
    frame = pd.concat(
        [
            pairs([{"steps": 0}] * 6, [{"steps": c} for c in counts]).assign(
                point=point, digest=[f"{point}{i}" for i in range(12)]
            )
            for point in range(8)
        ]
    )
    (many,) = paired(frame, "a", "b", "steps").to_dict("records")
    (one,) = paired(frame[frame["point"] == 0], "a", "b", "steps").to_dict("records")
    assert (many["pairs"], many["seeds"], one["pairs"]) == (48, 6, 6)
    assert [many[name] for name in ("difference", "low", "high")] == [
        one[name] for name in ("difference", "low", "high")
    ]


def test_a_table_that_went_through_a_file_says_the_same() -> None:
    frame = pd.concat([swept(2, *[{"digest": "same"}] * 6), runs(*[{}] * 6, variant="b")])
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert again["case"].isna().all()
    names = dict.fromkeys(("variant", "case", "digest", "error"), "category")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (again, frame.astype(names)):
            pd.testing.assert_frame_equal(rates(other, ["variant", "case"]), rates(frame, ["variant", "case"]))
            pd.testing.assert_frame_equal(paired(other, "a", "b", "steps"), paired(frame, "a", "b", "steps"))


def test_a_seed_that_failed_takes_no_other_with_it() -> None:
    frame = pairs([{"digest": "x"}] * 6, [{"digest": "y"}] * 6)
    frame.loc[0, "error"] = "boom"
    assert paired(frame, "a", "b", "steps")["pairs"].tolist() == [1]
    assert paired(frame[1:], "a", "b", "steps")["pairs"].tolist() == [1]


def test_where_nothing_is_wrong_the_interval_over_runs_is_that_of_so_many_runs() -> None:
    (row,) = rates(runs(*[{}] * 20)).to_dict("records")
    assert (row["run_low"], row["run_high"]) == wilson(0, 20)
    (row,) = rates(runs(*[{"poisoned": 100}] * 20)).to_dict("records")
    assert (row["run_low"], row["run_high"]) == wilson(20, 20)


def test_runs_that_all_give_the_same_rate_have_no_interval_of_no_width() -> None:
    (row,) = rates(runs(*[{"poisoned": 7}] * 5)).to_dict("records")
    assert row["conclusion"] == ALIKE and isnan(row["run_low"]) and row["rate"] == 0.07


def test_claims_of_one_run_depend_on_each_other_and_only_the_interval_over_runs_covers() -> None:
    """A run is poisoned much or not at all: the Wilson interval misses the rate most of the time."""
    rng = np.random.default_rng(11)
    wilsons, over_runs = [], []
    for _ in range(120):
        counts = np.where(rng.random(40) < 0.5, 40, 0)
        (row,) = rates(runs(*({"poisoned": int(k)} for k in counts))).to_dict("records")
        wilsons.append(row["low"] <= 0.2 <= row["high"])
        over_runs.append(row["run_low"] <= 0.2 <= row["run_high"])
    assert np.mean(wilsons) < 0.6
    assert np.mean(over_runs) > 0.88


def test_rates_are_the_same_again() -> None:
    frame = runs({"poisoned": 3}, {"poisoned": 9}, {}, {}, {})
    pd.testing.assert_frame_equal(rates(frame), rates(frame))
    pd.testing.assert_frame_equal(rates(frame[::-1]), rates(frame))
    # And the level moves the interval.
    assert rates(frame, level=0.5)["run_high"][0] < rates(frame, level=0.99)["run_high"][0]


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="per: found 'token', allowed claim, restore, request, run"):
        rates(runs({}), per="token")
    with pytest.raises(InputError, match=r"column: found 'varian', allowed .*did you mean variant"):
        rates(runs({}), by="varian")
    with pytest.raises(InputError, match="column: found 'starts'"):
        rates(runs({}).drop(columns="starts"))
    with pytest.raises(InputError, match="by: found 'wrong', which is a column of the answer"):
        rates(runs({}).assign(wrong=1), by="wrong")
    with pytest.raises(InputError, match="level: found 95"):
        rates(runs({}), level=95)


def test_a_run_that_is_there_twice_and_one_that_lacks_a_count_are_refused() -> None:
    twice = pd.concat([runs({}, {}), runs({})])
    with pytest.raises(InputError, match=r"the same run twice \(point 0, seed 0, variant a\)"):
        rates(twice)
    with pytest.raises(InputError, match="the same run twice"):
        paired(pd.concat([twice, runs({}, variant="b")]), "a", "b", "steps")
    assert rates(pd.concat([runs({}).assign(f=1), runs({}).assign(f=2)]), by="f")["runs"].tolist() == [1, 1]
    with pytest.raises(InputError, match=r"column claims: found none of a run that did not fail .*seed 1"):
        rates(runs({}, {"claims": pd.NA}))


# Paired differences.


def pairs(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.concat([runs(*a, variant="a"), runs(*b, variant="b")], ignore_index=True)


def test_a_difference_is_the_mean_over_pairs_of_one_seed() -> None:
    steps = [(10, 11), (20, 22), (30, 36), (15, 18), (25, 28)]
    frame = pairs([{"steps": a} for a, _ in steps], [{"steps": b} for _, b in steps])
    (row,) = paired(frame, "a", "b", "steps").to_dict("records")
    assert (row["metric"], row["pairs"], row["baseline"], row["other"], row["difference"]) == ("steps", 5, 20, 23, 3)
    assert 1 <= row["low"] <= 3 <= row["high"] <= 6
    (turned,) = paired(frame, "b", "a", "steps").to_dict("records")
    assert (turned["difference"], turned["low"], turned["high"]) == (-3, -row["high"], -row["low"])
    shuffled = frame.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(paired(shuffled, "a", "b", "steps"), paired(frame, "a", "b", "steps"))


def test_seeds_are_paired_with_themselves() -> None:
    """What all seeds have in common drops out: the interval is that of the differences alone."""
    rng = np.random.default_rng(2)
    common = rng.integers(0, 10**6, 30)
    frame = pairs([{"steps": int(c)} for c in common], [{"steps": int(c) + 5} for c in common])
    (row,) = paired(frame, "a", "b", "steps").to_dict("records")
    assert (row["difference"], row["low"], row["high"]) == (5, 5, 5)


def test_the_hit_rate_is_a_metric_and_several_are_rows() -> None:
    frame = pairs([{"hit_tokens": 100}, {}], [{"hit_tokens": 200}, {}])
    table = paired(frame, "a", "b", ["hit_rate", "steps"])
    assert table["metric"].tolist() == ["hit_rate", "steps"]
    assert table["difference"].tolist() == [pytest.approx(0.05), 0]


def test_pairs_without_hits_conclude_nothing() -> None:
    """Negative control."""
    none = [{"starts": 0}, {"starts": 0}]
    (row,) = paired(pairs(none, none), "a", "b", "steps").to_dict("records")
    assert (row["pairs"], row["without_hits"], row["conclusion"]) == (0, 2, NO_HITS)
    assert isnan(row["difference"]) and isnan(row["low"])
    # One that never hits against one that does: steps can be compared, poisoning cannot.
    table = paired(pairs([{}, {}], none), "a", "b", ["steps", "poisoned"])
    assert table["pairs"].tolist() == [2, 0]
    assert table["conclusion"].tolist() == [FEW_PAIRS, NO_HITS]


def test_few_pairs_have_no_interval_and_none_has_no_difference() -> None:
    for count in (1, 4):
        frame = pairs([{"steps": 1}] * count, [{"steps": 3 + i} for i in range(count)])
        (row,) = paired(frame, "a", "b", "steps").to_dict("records")
        assert (row["pairs"], row["conclusion"]) == (count, FEW_PAIRS) and isnan(row["low"])
        assert row["difference"] == 2 + (count - 1) / 2
    apart = pd.concat([runs({}, variant="a"), runs({}, variant="b", point=1)])
    assert paired(apart, "a", "b", "steps")["conclusion"].tolist() == [NO_PAIRS]
    none = pairs([{"steps": float("nan")}], [{"steps": 1.0}])
    assert paired(none, "a", "b", "steps")["conclusion"].tolist() == [NO_VALUES]
    failed = pairs([{}, {}], [{"error": "boom"}, {"error": "boom"}])
    assert paired(failed, "a", "b", "steps")["conclusion"].tolist() == [NO_PAIRS]


def test_seeds_that_change_neither_variant_are_one_pair() -> None:
    same = [{"digest": "x"}] * 5
    assert paired(pairs(same, same), "a", "b", "steps")["pairs"].tolist() == [1]
    other = [{"digest": f"y{i}"} for i in range(5)]
    assert paired(pairs(same, other), "a", "b", "steps")["pairs"].tolist() == [5]


def test_a_paired_interval_covers() -> None:
    rng = np.random.default_rng(5)
    held = []
    for _ in range(150):
        noise = rng.normal(3, 10, 30)
        frame = pairs([{"steps": 0.0}] * 30, [{"steps": float(x)} for x in noise])
        (row,) = paired(frame, "a", "b", "steps").to_dict("records")
        held.append(row["low"] <= 3 <= row["high"])
    assert np.mean(held) > 0.88


def test_variants_and_metrics_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="variant: found 'c', allowed a, b"):
        paired(pairs([{}], [{}]), "a", "c", "steps")
    with pytest.raises(InputError, match=r"column: found 'step', allowed .*did you mean steps"):
        paired(pairs([{}], [{}]), "a", "b", "step")
    for name in ("seed", "point", "case", "digest", "variant", "error", "text"):
        with pytest.raises(InputError, match=f"metric: found '{name}', allowed hit_rate or a column of numbers"):
            paired(pairs([{}], [{}]).assign(text="x"), "a", "b", name)
    with pytest.raises(InputError, match="by: found 'variant', in which the runs of a pair differ"):
        paired(pairs([{}], [{}]), "a", "b", "steps", by="variant")


def test_the_table_of_a_sweep_is_what_they_take() -> None:
    table = stateat.sweep(small_sweep.sweep(seeds="0:4"))
    found = rates(table, ["engine.max_num_batched_tokens", "variant"])
    assert len(found) == 4
    poisoned = found[found["wrong"] > 0]
    assert set(poisoned["variant"]) == {"old"} and (poisoned["low"] > 0).all()
    differences = paired(table, "old", "new", ["poisoned", "hit_rate", "ttft_p50_us", "steps", "deferred"], "point")
    assert len(differences) == 10
    assert differences["difference"].notna().all()
