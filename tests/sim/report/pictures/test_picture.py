"""Pictures of runs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stateat.sim.errors import InputError
from stateat.sim.events import SCHEMA, Finding
from stateat.sim.report.pictures.lanes import poison_of, style_of
from stateat.sim.report.pictures.picture import _handles, _verdict, draw, plot_timeline
from stateat.sim.report.pictures.style import POISON
from stateat.sim.report.pictures.timeline import Timeline

NOTE = ("slot 17", "claims state@1600,", "holds state@364")


@pytest.fixture
def panels(told: SimpleNamespace) -> list[tuple[str, Timeline, Any]]:
    old, fixed = Timeline(), Timeline()
    told.old_gate(old)
    told.fixed_gate(fixed)
    return [("old gate", old, told.outcome()), ("fixed gate", fixed, told.clean())]


def crowd(told: SimpleNamespace, requests: int, limit: int = 400, name: str = "r{}") -> Timeline:
    """Requests one after the other, a step each."""
    timeline = Timeline(limit)
    timeline.run(SCHEMA, "reference", told.groups, 0, {"clock": "steps"})
    for i in range(requests):
        timeline.arrive(name.format(i), i, i, ((1, 2002),), None, 1)
        timeline.step(i, i, 8192)
        timeline.chunk(name.format(i), 0, 2002, 0, "prompt-end", 0, ())
    return timeline


def axis() -> Any:
    return Figure().add_subplot()


def boxes(ax: Any, stop: str) -> list[tuple[float, float, float, float]]:
    from matplotlib.colors import to_hex

    color = style_of(stop)[0].lower()
    found = [p for p in ax.patches if isinstance(p, Rectangle) and to_hex(p.get_facecolor()) == color]
    return [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in found]


def test_a_chunk_is_drawn_where_it_ran_over_the_tokens_that_it_took(panels: Any) -> None:
    ax = axis()
    plot_timeline(panels[0][1], poison_of(panels[0][2]), ax)
    lane = 2002 * 1.3
    assert boxes(ax, "budget") == [pytest.approx((0, lane, 1, 364))]
    expected = [(1, lane + 364, 1, 2002 - 364), (2, 1600, 1, 402)]
    found = boxes(ax, "prompt-end")
    assert len(found) == len(expected)
    assert all(box == pytest.approx(other) for box, other in zip(found, expected, strict=True))


def test_the_poisoned_slot_says_what_it_claims_and_what_it_holds(panels: Any) -> None:
    ax = axis()
    plot_timeline(panels[0][1], poison_of(panels[0][2]), ax)
    assert "\n".join(NOTE) in [text.get_text() for text in ax.texts]
    marks = [line for line in ax.lines if line.get_marker() == "X"]
    assert [(list(m.get_xdata()), list(m.get_ydata())) for m in marks] == [([2.0], [pytest.approx(2002 * 1.3 + 1600)])]
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    assert [(arrow.xy, arrow.xyann) for arrow in arrows][-1] == ((2.0, 1600), (2.0, pytest.approx(2002 * 1.3 + 1600)))


def test_the_content_is_followed_from_its_write_to_the_claim_at_the_offset_it_holds(panels: Any) -> None:
    ax = axis()
    plot_timeline(panels[0][1], poison_of(panels[0][2]), ax)
    ways = [line for line in ax.lines if line.get_color() == POISON and len(line.get_xdata()) == 2]
    held = pytest.approx(2002 * 1.3 + 364)
    assert [(list(way.get_xdata()), list(way.get_ydata())) for way in ways] == [([1.0, 2.0], [held, held])]


def test_a_clean_run_shows_no_poison(panels: Any) -> None:
    ax = axis()
    plot_timeline(panels[1][1], poison_of(panels[1][2]), ax)
    assert not [text for text in ax.texts if text.get_color() == POISON]
    assert not [line for line in ax.lines if line.get_color() == POISON]
    assert "deferred\n364 offered" in [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"restores": 1}, "clean"),
        ({}, "clean (no hits)"),
        ({"restores": 1, "wrong_reads": 2}, "2 wrong reads"),
        ({"wrong_restores": 1, "wrong_reads": 2}, "1 wrong restore, 2 wrong reads"),
        ({"livelock": True}, "livelock"),
        ({"poisoned": 2, "poisoned_roots": 1, "wrong_reads": 2}, "2 poisoned (1 root)"),
    ],
)
def test_a_panel_is_called_clean_only_where_nothing_is_grave(
    told: SimpleNamespace, changes: dict[str, Any], said: str
) -> None:
    assert _verdict(told.clean(**changes)) == said


def test_the_legend_names_what_is_drawn(panels: Any, told: SimpleNamespace) -> None:
    def legend(*findings: Finding) -> list[str]:
        return [handle.get_label() for handle in _handles([panels[0][1]], findings)]

    chunks = ["ended by budget", "ended by prompt-end"]
    assert legend() == chunks
    assert legend(told.finding(readers=())) == [*chunks, "claim that is wrong"]
    assert legend(told.finding()) == [*chunks, "claim that is wrong", "restored from it"]


def test_a_finding_that_is_no_read_is_named(told: SimpleNamespace) -> None:
    assert _verdict(told.clean(findings=(told.finding(invariant="I5"),))) == "1 I5 finding"


def test_axes_name_their_units(panels: Any, told: SimpleNamespace) -> None:
    ax = axis()
    plot_timeline(panels[0][1], poison_of(panels[0][2]), ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (engine steps)", "token offset (tokens)")
    timeline = Timeline()
    timeline.run(SCHEMA, "reference", told.groups, 0, {})
    timeline.arrive("a", 0, 0, ((1, 10),), None, 1)
    timeline.step(0, 0, 10)
    timeline.chunk("a", 0, 10, 0, "prompt-end", 0, ())
    timeline.end(1, 9000, False)
    ax = axis()
    plot_timeline(timeline, [], ax)
    assert ax.get_xlabel() == "time (ms)"
    assert boxes(ax, "prompt-end") == [(0, 0, 9, 10)]


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_the_suffix_picks_the_format(panels: Any, tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"s2{suffix}"
    draw(path, panels, "anatomy")
    assert path.read_bytes().startswith(magic)


def test_the_same_run_gives_the_same_picture(panels: Any, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw(tmp_path / name, panels, "anatomy")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_an_unknown_suffix_is_named_with_those_allowed(panels: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found '\.gif', allowed: \.png, \.svg, \.pdf"):
        draw(tmp_path / "x.gif", panels, "")


def test_many_requests_are_a_bar_each_with_wrong_claims_and_readers_marked(told: SimpleNamespace) -> None:
    finding = told.finding(request="r3", step=3, readers=("r7",))
    timeline = crowd(told, 9)
    timeline.restore("r7", 1, 17, 0, 1600, ())
    ax = axis()
    plot_timeline(timeline, [finding], ax)
    claim, reader = (next(line for line in ax.lines if line.get_marker() == marker) for marker in "Xo")
    assert (list(claim.get_xdata()), list(claim.get_ydata())) == ([4.0], [3])
    assert list(reader.get_ydata()) == [7]
    bars = [path for collection in ax.collections for path in collection.get_paths()]
    assert len([bar for bar in bars if len(bar.vertices) == 5]) == 9


def test_a_picture_says_what_it_leaves_out(told: SimpleNamespace) -> None:
    findings = (told.finding(request="r3"), told.finding(request="r99"))
    ax = axis()
    plot_timeline(crowd(told, 100, limit=50), findings, ax)
    note = "shown: the first 50 of 100 requests; 1 of 2 poisoned claims lie outside"
    assert ax.get_title(loc="right") == note


@pytest.mark.parametrize("stop", ["", "my $rule$ \\frac", "_hidden", "停", "a\nb\x00"])
@pytest.mark.parametrize("requests", [1, 6])
def test_any_name_of_a_rule_or_request_can_be_drawn(
    told: SimpleNamespace, tmp_path: Path, stop: str, requests: int
) -> None:
    timeline = crowd(told, requests, name=stop + "{}")
    timeline.chunk(stop + "0", 2002, 2005, 0, stop, 0, ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(tmp_path / "x.svg", [(stop, timeline, told.outcome())], stop)
    assert (tmp_path / "x.svg").stat().st_size > 1000


def test_more_runs_than_a_picture_holds_are_counted_in_its_title(panels: Any, tmp_path: Path) -> None:
    for count in (12, 13):
        draw(tmp_path / f"{count}.svg", panels[:1] * count, "many")
    shown = [(tmp_path / f"{count}.svg").read_text(encoding="utf-8").count("<!-- old gate") for count in (12, 13)]
    assert shown == [12, 12]
    assert "<!-- many (the first 12 of 13 runs) -->" in (tmp_path / "13.svg").read_text(encoding="utf-8")


def test_a_run_of_nothing_can_be_drawn(told: SimpleNamespace, tmp_path: Path) -> None:
    draw(tmp_path / "x.png", [("v", Timeline(), told.clean())], "")
    assert (tmp_path / "x.png").exists()


def test_importing_reports_loads_no_matplotlib_and_drawing_no_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys; import stateat.sim.report.pictures.picture, stateat.sim.report.plots\n"
        "import stateat.sim.report.terminal.table\n"
        "import stateat.sim.report.machine.perfetto, stateat.sim.report.machine.junit\n"
        "assert not {'matplotlib', 'pandas', 'torch'} & set(sys.modules), 'imported early'\n"
        "from stateat.sim.report.pictures.timeline import Timeline; from stateat.sim.run.result import Outcome\n"
        "from stateat.sim.report.pictures.picture import draw\n"
        f"draw({str(tmp_path / 'x.png')!r}, [('v', Timeline(), Outcome('v', '', (), {{}}))], '')\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules, 'pyplot'\n"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
