"""Pictures of frames: what is drawn where, and that they look as they did.

A baseline that is deleted is written anew by its test, which fails once so that somebody looks at it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frames
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image, ImageFilter

from stateat.sim.errors import InputError
from stateat.sim.events import Finding
from stateat.sim.report import plots
from stateat.sim.report.pictures.lanes import Scale
from stateat.sim.report.pictures.style import POISON, canvas, save
from stateat.sim.report.pictures.timeline import from_chunks

BASELINES = Path(__file__).parent / "baselines"
TOLERANCE = 4.5
"""Root mean square of the difference, of 255, between blurred pictures: without hinting, letters move by a pixel, which
comes to 4.3 at most. The other frames below come to 6.8 and more."""
MOST_BYTES = 40_000
CLIENTS, BUDGET = "workload.arrivals.clients", "engine.max_num_batched_tokens"
ROOT = Finding(
    0, "I1", "poison", 1, 1, "a", "gdn", 0, 24, 1600, 364, "wrong offset", None, ("b", "c"), "holds state@364"
)  # fmt: skip


def lives(**more: Any) -> Any:
    return frames.claims(
        frames.claim(0, 1, 24, **{"finding": 0, "restores": 2} | more),
        frames.claim(1, 3, 31, request="b", end_step=9, why="evict", restores=1),
        frames.claim(2, 5, 31, request="c", offset=2000, end_step=9, why="evict"),
        frames.claim(3, 11, 31, request="d", offset=3200),
        frames.claim(4, 6, 40, request="c", offset=2400, end_step=8, why="rekey"),
    )


def spread() -> Any:
    times = (1_000_000, 2_400_000, 2_900_000, 6_000_000)
    rows = [
        frames.finding(i, time_us=t, step=t // 14_000, is_root=i in (0, 3), root=3 if i == 3 else 0)
        for i, t in enumerate(times)
    ]
    return frames.findings(*rows, frames.finding(4, time_us=2_000_000, step=142, invariant="I2", severity="shape"))


def reading(*seconds: float) -> Any:
    """Requests that first read a wrong state then, and one that never does."""
    return frames.requests(*(round(1e6 * second) for second in seconds), None)


def clients(worst: int = 32, seeds: int = 6) -> Any:
    rows = []
    for point, count in enumerate((1, 2, 4, 8, 16, worst)):
        for seed in range(seeds):
            wrong = {
                "tainted_requests": count // 2 + seed % 2 * (count > 1),
                "wrong_restores": count // 2,
                "starts": 0 if count == 1 else 40,
            }
            rows.append(frames.run(len(rows), "old gate", seed, point, **{CLIENTS: count, **wrong}))
            right = {"tainted_requests": 0, "hit_tokens": 79_000 + 100 * seed}
            rows.append(frames.run(len(rows), "fixed gate", seed, point, **{CLIENTS: count, **right}))
    return frames.sweep(*rows)


def grid(worst: int = 40, turned: bool = False) -> Any:
    rows = []
    for i, count in enumerate((1, 8, 32)):
        for j, budget in enumerate((2048, 4096, 8192)):
            tainted = 0 if count == 1 else worst * (33 - count if turned else count) * 2048 // (32 * budget)
            keys = {CLIENTS: count, BUDGET: budget, "starts": 0 if count == 1 else 40}
            rows.append(frames.run(len(rows), "old gate", 0, 3 * i + j, **keys, tainted_requests=tainted))
    return frames.sweep(*rows[:-1])


def gates(more: int = 11_000) -> Any:
    rows = []
    for seed in range(6):
        rows.append(frames.run(2 * seed, "old gate", seed, ttft_p50_us=640_000 + 9_000 * seed))
        rows.append(frames.run(2 * seed + 1, "fixed gate", seed, ttft_p50_us=652_000 + more * seed))
    return frames.sweep(*rows)


PICTURES: dict[str, Callable[[Any], None]] = {
    "timeline": lambda ax: plots.timeline(frames.chunks(), ax, [ROOT], 1600),
    "slot-life": lambda ax: plots.slot_life(lives(), ax, frames.findings(frames.finding())),
    "blast-radius": lambda ax: plots.blast_radius(spread(), ax, 9_000_000, reading(1.5, 2.5, 2.5, 3, 7)),
    "rate": lambda ax: plots.rate(clients(), ax, x=CLIENTS, label="concurrency (clients)"),
    "heat-map": lambda ax: plots.heat_map(grid(), ax, x=CLIENTS, y=BUDGET),
    "before-after": lambda ax: plots.before_after(gates(), ax, metric="ttft_p50_us"),
}
OTHERS: dict[str, Callable[[Any], None]] = {
    "timeline": lambda ax: plots.timeline(frames.chunks(), ax, [], 1600),
    "slot-life": lambda ax: plots.slot_life(lives(finding=None), ax),
    "blast-radius": lambda ax: plots.blast_radius(spread(), ax, 9_000_000, reading(*range(2, 9))),
    "rate": lambda ax: plots.rate(clients(48), ax, x=CLIENTS, label="concurrency (clients)"),
    "heat-map": lambda ax: plots.heat_map(grid(turned=True), ax, x=CLIENTS, y=BUDGET),
    "before-after": lambda ax: plots.before_after(gates(40_000), ax, metric="ttft_p50_us"),
}
"""The same functions on frames that differ a little."""


def picture(draw: Callable[[Any], None], path: Path) -> Path:
    """The axis at a fixed place, so that a label of another width moves nothing else."""
    with mpl.rc_context(mpl.rcParamsDefault):
        figure = Figure(figsize=(8, 4))
        draw(figure.add_axes((0.12, 0.2, 0.84, 0.74)))
        save(figure, path, dpi=75)
    return path


def difference(one: Path, other: Path) -> float:
    blurred = [Image.open(path).convert("RGB").filter(ImageFilter.GaussianBlur(4)) for path in (one, other)]
    pixels = [np.asarray(image, float) for image in blurred]
    return float(((pixels[0] - pixels[1]) ** 2).mean() ** 0.5)


def axis(draw: Callable[[Any], None]) -> Any:
    ax = canvas(8, 4).subplots()
    draw(ax)
    return ax


def words(ax: Any) -> list[str]:
    return [text.get_text() for text in (*ax.texts, *(ax.get_legend().get_texts() if ax.get_legend() else ()))]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_looks_as_it_did(name: str, tmp_path: Path) -> None:
    baseline = BASELINES / f"{name}.png"
    if not baseline.exists():
        picture(PICTURES[name], baseline)
        pytest.fail(f"{baseline} was missing and is written: look at it")
    assert baseline.stat().st_size <= MOST_BYTES
    assert difference(baseline, picture(PICTURES[name], tmp_path / "now.png")) < TOLERANCE


@pytest.mark.parametrize("name", OTHERS)
def test_another_frame_does_not_look_like_it(name: str, tmp_path: Path) -> None:
    assert difference(BASELINES / f"{name}.png", picture(OTHERS[name], tmp_path / "other.png")) > TOLERANCE


def test_no_baseline_is_left_over() -> None:
    assert {path.stem for path in BASELINES.iterdir()} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_axes_name_their_units_and_are_readable_at_800_pixels(name: str) -> None:
    ax = axis(PICTURES[name])
    ax.figure.draw_without_rendering()
    if name != "heat-map":
        assert ax.get_xlim()[0] <= 1
        assert min(ax.get_ylim()) <= 0
    labels = [ax.get_xlabel(), ax.get_ylabel()]
    assert any(unit in " ".join(labels) for unit in ("(ms)", "(%)", "(engine steps)", "(block id)", "clients"))
    sizes = [text.get_fontsize() for text in ax.findobj(mpl.text.Text) if text.get_text() and text.get_visible()]
    # 7 points are ten pixels.
    assert min(sizes) >= 7


def test_a_timeline_of_frames_is_the_one_that_replay_draws(told: Any) -> None:
    from stateat.sim.report.pictures.picture import plot_timeline
    from stateat.sim.report.pictures.timeline import Timeline

    heard = Timeline()
    told.old_gate(heard)
    expected = axis(lambda ax: plot_timeline(heard, [told.finding()], ax))
    rows = [frames.chunk(0, "a", 0, 364, "budget"), frames.chunk(1, "a", 364, 2002, "prompt-end")]
    rows.append(frames.chunk(2, "b", 1600, 2002, "prompt-end"))
    drawn = axis(lambda ax: plots.timeline(frames.chunks(*rows), ax, [told.finding()], 1600))
    assert words(drawn) == words(expected)
    boxes = [
        [patch.get_bbox().bounds for patch in ax.patches if hasattr(patch, "get_bbox")] for ax in (drawn, expected)
    ]
    assert boxes[0] == boxes[1]
    assert len(boxes[0]) == 4


def test_a_fast_forwarded_run_of_steps_is_as_long_as_it_lasted() -> None:
    rows = [
        frames.chunk(0, "a", 0, 100, "prompt-end", time_us=0, duration_us=10_000),
        frames.chunk(1, "a", 100, 109, "decode", steps=9, time_us=10_000, duration_us=72_000),
        frames.chunk(10, "a", 109, 110, "decode", time_us=82_000, duration_us=8_000),
    ]
    ax = axis(lambda ax: plots.timeline(frames.chunks(*rows), ax))
    (decode,) = (line for line in ax.lines if list(line.get_ydata()) == [100, 110])
    assert list(decode.get_xdata()) == [10, 90]
    assert ax.get_xlabel() == "time (ms)"


def test_a_chunk_is_labelled_only_where_its_label_fits() -> None:
    rows = [
        frames.chunk(0, "a", 0, 364, "budget", time_us=0, duration_us=1_000),
        frames.chunk(1, "a", 364, 2002, "prompt-end", time_us=1_000, duration_us=400_000),
    ]
    assert [text for text in words(axis(lambda ax: plots.timeline(frames.chunks(*rows), ax))) if "→" in text] == [
        "364→2,002"
    ]


def test_pictures_beside_each_other_have_the_unit_of_the_longest() -> None:
    short, long = (
        from_chunks(frames.chunks(frames.chunk(0, "a", 0, 8, "prompt-end", time_us=0, duration_us=time)))
        for time in (9_000, 12_000_000)
    )
    for timelines, label in (((short,), "time (ms)"), ((short, long), "time (s)"), ((long, short), "time (s)")):
        assert Scale.of(timelines).label == label


def test_only_a_reader_that_started_at_the_claim_after_it_is_drawn_as_one() -> None:
    for start, step, shown in ((1600, 3, 1), (0, 3, 0), (1600, 1, 0)):
        rows = [frames.chunk(0, "a", 0, 364, "budget"), frames.chunk(step, "b", start, 2002, "prompt-end")]
        ax = axis(lambda ax, rows=rows: plots.timeline(frames.chunks(*rows), ax, [ROOT], 1600))
        marks = [line for line in ax.lines if line.get_marker() == "o" and line.get_markerfacecolor() == POISON]
        assert len(marks) == shown


def test_claims_of_a_slot_at_the_same_time_lie_beside_each_other() -> None:
    ax = axis(PICTURES["slot-life"])
    bars = [bar.get_bbox() for bar in ax.patches]
    assert len(bars) == 5
    for i, one in enumerate(bars):
        for other in bars[:i]:
            assert not (one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1)


def test_a_wrong_claim_is_hatched_and_says_what_it_holds() -> None:
    ax = axis(PICTURES["slot-life"])
    assert [bar.get_hatch() for bar in ax.patches].count("////") == 1
    assert "a: state@1600\nholds state@364, restored 2×" in words(ax)
    assert "claim that is wrong" in words(ax)
    assert "claim that is wrong" not in words(axis(OTHERS["slot-life"]))


def test_a_map_shows_wrong_slots_first_and_says_what_it_leaves_out() -> None:
    many = [frames.claim(i, i, 100 + i, finding=0 if i == 70 else None) for i in range(80)]
    ax = axis(lambda ax: plots.slot_life(frames.claims(*many), ax))
    slots = [tick.get_text() for tick in ax.get_yticklabels()]
    assert slots == [*(str(100 + i) for i in range(23)), "170"]
    assert ax.get_title(loc="right") == "shown: 24 of 80 slots, wrong ones first"


def test_a_blast_radius_counts_slots_once_and_roots_apart() -> None:
    ax = axis(PICTURES["blast-radius"])
    assert words(ax) == ["slots that are wrong: 4", "requests that read them: 5", "root causes: 2"]
    slots, readers, roots = ax.lines
    assert list(slots.get_xdata()) == [0, 1000, 2400, 2900, 6000, 9000]
    assert list(slots.get_ydata()) == [0, 1, 2, 3, 4, 4]
    assert list(roots.get_xdata()) == [0, 1000, 6000, 9000]
    # Each once, when it read, and not when the slot was found wrong.
    assert list(readers.get_xdata()) == [0, 1500, 2500, 2500, 3000, 7000, 9000]
    alone = axis(lambda ax: plots.blast_radius(spread(), ax))
    assert words(alone) == ["slots that are wrong: 4", "root causes: 2"]


@pytest.mark.parametrize("rows", [(), ("shape",)])
def test_a_clean_run_has_no_blast(rows: tuple[str, ...]) -> None:
    made = frames.findings(*(frames.finding(severity=severity) for severity in rows))
    assert "nothing is poisoned" in words(axis(lambda ax: plots.blast_radius(made, ax)))


def test_points_without_hits_are_hollow_and_say_so() -> None:
    ax = axis(PICTURES["rate"])
    assert words(ax)[-1] == "no hits: no conclusion"
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in hollow] == [([1], [0])]
    (old,) = (line for line in ax.lines if line.get_label() == "old gate")
    assert list(old.get_xdata()) == [1, 2, 4, 8, 16, 32]
    assert list(old.get_ydata()) == pytest.approx([np.nan, 1.5, 2.5, 4.5, 8.5, 16.5], nan_ok=True)


def test_neither_line_nor_band_goes_across_a_point_that_says_nothing() -> None:
    sweep = clients()
    sweep.loc[(sweep[CLIENTS] == 8) & (sweep["variant"] == "old gate"), "starts"] = 0
    ax = axis(lambda ax: plots.rate(sweep, ax, x=CLIENTS))
    (old,) = (line for line in ax.lines if line.get_label() == "old gate")
    assert np.isnan(old.get_ydata()).tolist() == [True, False, False, True, False, False]
    spans = [path.vertices[:, 0] for band in ax.collections for path in band.get_paths()]
    assert [(span.min(), span.max()) for span in spans] == [(2, 4), (16, 32)]
    # One without neighbours is a bar.
    sweep.loc[(sweep[CLIENTS] == 4) & (sweep["variant"] == "old gate"), "starts"] = 0
    ax = axis(lambda ax: plots.rate(sweep, ax, x=CLIENTS))
    assert [list(line.get_xdata()) for line in ax.lines if line.get_linewidth() == 9] == [[2, 2]]


def test_a_sweep_without_any_hit_says_so_in_its_middle(tmp_path: Path) -> None:
    sweep = clients().assign(starts=0, hit_tokens=0)
    ax = axis(lambda ax: plots.rate(sweep, ax, x=CLIENTS))
    assert [text.get_text() for text in ax.texts] == ["no hits: no conclusion"]
    assert not axis(PICTURES["rate"]).texts
    plots.sweep_picture(sweep, tmp_path / "sweep.svg")


def test_null_is_a_value_of_its_own(tmp_path: Path) -> None:
    for kind, values in (("Int64", [1, 3, None]), ("object", ["a", None, '{"kind": "none"}'])):
        rows = [frames.run(3 * s + i, "v", s, i, **{"a.b": value}) for s in range(3) for i, value in enumerate(values)]
        sweep = frames.sweep(*rows).astype({"a.b": kind})
        ax = axis(lambda ax, sweep=sweep: plots.rate(sweep, ax, x="a.b"))
        assert "none" in [tick.get_text() for tick in ax.get_xticklabels()]
        assert len(ax.lines[0].get_xdata()) == 3
        plots.sweep_picture(sweep, tmp_path / "sweep.svg")
        two = sweep.assign(**{"a.c": [1, 2, 2] * 3})
        two.insert(5, "a.d", two.pop("a.c"))
        plots.sweep_picture(two, tmp_path / "sweep.svg")


def test_each_case_has_a_series_of_its_own(tmp_path: Path) -> None:
    sweep = clients()
    both = frames.sweep(*(row | {"case": case} for case in ("one", "two") for row in sweep.to_dict("records")))
    ax = axis(lambda ax: plots.rate(both, ax, x=CLIENTS))
    names = [f"{gate}, {case}" for case in ("one", "two") for gate in ("old gate", "fixed gate")]
    assert [line.get_label() for line in ax.lines if "gate" in line.get_label()] == names
    with pytest.raises(InputError, match="of one case: found one, two; choose one"):
        plots.before_after(both, axis(PICTURES["rate"]))
    plots.sweep_picture(both, tmp_path / "sweep.svg")
    plots.sweep_picture(both[both[CLIENTS] == 8], tmp_path / "cases.svg")
    assert (tmp_path / "cases.svg").read_text(encoding="utf-8").count('<g id="axes_') == 4


def test_times_of_a_clock_of_steps_are_steps() -> None:
    def label(sweep: Any) -> str:
        return str(axis(lambda ax: plots.before_after(sweep, ax, metric="ttft_p50_us")).get_ylabel())

    assert label(gates()) == label(gates().assign(clock="us")) == "time to first token, p50 (ms)"
    assert label(gates().assign(clock="steps")) == "time to first token, p50 (engine steps)"
    with pytest.raises(InputError, match=r"found runs of several clocks \(steps, us\), allowed one"):
        label(gates().assign(clock=["us", "steps"] * 6))


def test_a_measure_that_some_runs_lack_is_drawn_of_the_others() -> None:
    sweep = gates().astype({"ttft_p50_us": "Float64"})
    sweep.loc[0, "ttft_p50_us"] = None
    ax = axis(lambda ax: plots.before_after(sweep, ax, metric="ttft_p50_us"))
    assert len(ax.lines[0].get_xdata()) == 5
    sweep["ttft_p50_us"] = None
    with pytest.raises(InputError, match="found no measure 'ttft_p50_us'"):
        axis(lambda ax: plots.before_after(sweep, ax, metric="ttft_p50_us"))
    sweep = sweep.astype({"ttft_p50_us": "Float64"})
    ax = axis(lambda ax: plots.before_after(sweep, ax, metric="ttft_p50_us"))
    assert [text.get_text() for text in ax.texts] == ["no run has one"]


@pytest.mark.parametrize("variants", [1, 4, 9, 24])
@pytest.mark.parametrize("height", [2.5, 4, 8])
def test_a_legend_lies_below_what_the_axis_says_of_x(variants: int, height: float) -> None:
    sweep = frames.sweep(*(frames.run(i, f"v{i % variants}", **{CLIENTS: i // variants}) for i in range(2 * variants)))
    figure = canvas(8, height + variants / 12)
    ax = figure.subplots()
    plots.rate(sweep, ax, x=CLIENTS)
    figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y1 <= ax.xaxis.label.get_window_extent().y0


def test_seeds_of_a_point_are_added_up_and_narrow_its_interval() -> None:
    def length(seeds: int) -> float:
        ax = axis(lambda ax: plots.rate(clients(seeds=seeds), ax, x=CLIENTS))
        low, high = next(line for line in ax.lines if line.get_marker() == "_" and line.get_xdata()[0] == 8).get_ydata()
        return float(high - low)

    assert 0 < length(6) < length(1)


def test_a_band_is_the_interval_over_runs_and_one_run_has_none() -> None:
    def bands(seeds: int) -> int:
        return len(axis(lambda ax: plots.rate(clients(seeds=seeds), ax, x=CLIENTS)).collections)

    assert bands(1) == bands(4) == 0
    assert bands(6) == 1  # the other line is zero throughout


def test_a_difference_is_over_pairs_with_its_interval() -> None:
    ax = axis(PICTURES["before-after"])
    before, after = (tick.get_text() for tick in ax.get_xticklabels())
    assert before == "old gate"
    name, change = after.split("\n")
    assert name == "fixed gate"
    low, high = (float(part) for part in change.partition("[")[2].rstrip("]").split(","))
    assert change.startswith("+17.0 [")
    assert 12 <= low < 17 < high <= 22
    one = axis(lambda ax: plots.before_after(gates().iloc[:2], ax, metric="ttft_p50_us"))
    assert one.get_xticklabels()[1].get_text() == "fixed gate\n+12.0"


def test_a_difference_of_hit_rates_has_the_digits_that_its_interval_needs() -> None:
    rows = []
    for seed in range(6):
        rows.append(frames.run(2 * seed, "old gate", seed, hit_tokens=3_000 + seed, prompt_tokens=10_000))
        rows.append(frames.run(2 * seed + 1, "fixed gate", seed, hit_tokens=2_994 + 2 * seed, prompt_tokens=10_000))
    ax = axis(lambda ax: plots.before_after(frames.sweep(*rows), ax))
    change = ax.get_xticklabels()[1].get_text().partition("\n")[2]
    assert re.fullmatch(r"-0\.0[34] \[-0\.0[3-6], -0\.0[1-3]\]", change), change


@pytest.mark.parametrize(("per", "wrong"), [("claim", 4.0), ("restore", 4.0), ("request", 2.0), ("run", 100.0)])
def test_a_rate_is_of_what_was_asked(per: str, wrong: float) -> None:
    sweep = frames.sweep(frames.run(0, "old gate", **{CLIENTS: 4}), frames.run(1, "old gate", **{CLIENTS: 8}))
    ax = axis(lambda ax: plots.rate(sweep, ax, x=CLIENTS, per=per))
    assert list(ax.lines[0].get_ydata()) == pytest.approx([wrong, wrong])
    with pytest.raises(InputError, match="per: found 'token', allowed: claim, restore, request, run"):
        plots.rate(sweep, ax, x=CLIENTS, per="token")


def test_names_have_places_of_their_own() -> None:
    sweep = frames.sweep(
        *(frames.run(i, "v", **{"engine.preset": f"vllm-0.{n}.0"}) for i, n in enumerate((27, 26, 28)))
    )
    ax = axis(lambda ax: plots.rate(sweep, ax, x="engine.preset"))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["vllm-0.26.0", "vllm-0.27.0", "vllm-0.28.0"]


def test_ticks_do_not_run_into_each_other() -> None:
    lengths = (0.75, 0.999375, 1.125, 1.13, 2.875)
    sweep = frames.sweep(*(frames.run(i, "v", **{"a.b": length}) for i, length in enumerate(lengths)))
    ax = axis(lambda ax: plots.rate(sweep, ax, x="a.b"))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.75", "0.999375", "2.875"]
    assert list(ax.lines[0].get_xdata()) == list(lengths)


def test_a_heat_map_tells_no_hits_and_not_run_from_zero() -> None:
    ax = axis(PICTURES["heat-map"])
    assert [text for text in words(ax) if not text.endswith("%")] == ["no hits"] * 3 + ["not run"]
    assert sorted(text for text in words(ax) if text.endswith("%")) == ["10.0 %", "2.0 %", "20.0 %", "40.0 %", "5.0 %"]


def test_no_two_series_differ_in_colour_alone() -> None:
    def sweep(variants: int) -> Any:
        rows = (frames.run(i, f"v{i % variants}", **{CLIENTS: i // variants}) for i in range(2 * variants))
        return frames.sweep(*rows)

    ax = axis(lambda ax: plots.rate(sweep(24), ax, x=CLIENTS))
    lines = [line for line in ax.lines if line.get_label().startswith("v")]
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == len(lines) == 24
    assert len({(line.get_marker(), line.get_color()) for line in lines[:6]}) == 6
    with pytest.raises(InputError, match=r"found 25 series \(variants and cases\), allowed at most 24"):
        axis(lambda ax: plots.rate(sweep(25), ax, x=CLIENTS))


def test_runs_that_failed_are_not_drawn() -> None:
    sweep = clients()
    sweep.loc[sweep["variant"] == "old gate", "error"] = "InputError: x"
    assert "old gate" not in words(axis(lambda ax: plots.rate(sweep, ax, x=CLIENTS)))
    sweep["error"] = "InputError: x"
    with pytest.raises(InputError, match="of 72 runs none came to an end"):
        plots.rate(sweep, axis(PICTURES["rate"]), x=CLIENTS)


def test_one_picture_is_of_one_run() -> None:
    two = frames.claims(frames.claim(0, 1, 24), frames.claim(0, 1, 24))
    two.loc[1, "variant"] = "fixed gate"
    with pytest.raises(InputError, match=r"found a frame with 2 runs \(old gate, fixed gate\); choose one"):
        plots.slot_life(two, axis(PICTURES["slot-life"]))
    with pytest.raises(InputError, match="found old gate, fixed gate; choose one"):
        plots.heat_map(clients(), axis(PICTURES["rate"]), x=CLIENTS, y="seed")


def test_what_no_single_run_has_is_no_measure_of_before_and_after() -> None:
    for metric in ("claim", "digest"):
        with pytest.raises(InputError, match=f"found no measure '{metric}'"):
            plots.before_after(gates(), axis(PICTURES["rate"]), metric=metric)


def test_a_missing_column_is_named_with_those_there() -> None:
    with pytest.raises(InputError, match="found no column 'clients', allowed: run, point, seed, variant"):
        plots.rate(clients(), axis(PICTURES["rate"]), x="clients")
    with pytest.raises(InputError, match="found no measure 'ttft', allowed: claim, restore, request, run, hit_rate"):
        plots.before_after(clients(), axis(PICTURES["rate"]), metric="ttft")


@pytest.mark.parametrize(("sweep", "panels"), [(clients(), 2), (grid(), 2), (gates(), 2)], ids=["one", "two", "none"])
def test_a_sweep_is_drawn_by_the_number_of_its_keys(sweep: Any, panels: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.sweep_picture(sweep, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert text.count('<g id="axes_') == panels


def test_three_keys_are_too_many(tmp_path: Path) -> None:
    sweep = grid()
    sweep.insert(5, "engine.num_blocks", range(len(sweep)))
    with pytest.raises(InputError, match="found 3 swept keys"):
        plots.sweep_picture(sweep, tmp_path / "sweep.png")
    assert not (tmp_path / "sweep.png").exists()
