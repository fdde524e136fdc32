"""The table, the summary and the picture of two continuations."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from stateat.oracle.drift import Drift, Token
from stateat.sim.errors import InputError
from stateat.sim.explain.explanation import Subject
from stateat.sim.report.pictures.drift_plot import draw, plot_logits, plot_states
from stateat.sim.report.terminal.drift import heading, number, print_drift, summary, to_json, too_long

SUBJECT = Subject("b", False, np.arange(2002), 1600, ())
SAID = (5, 6, 7, 8, 5, 6, 7, 8, 9, 9)


def token(true: int, held: int, distance: float = 0.25) -> Token:
    return Token(distance, 1.5, 0.0625, true, held, (0.5, distance))


DRIFT = Drift(
    1600,
    2002,
    ("gated-delta", "ssd"),
    ((1600, (1.25, 0.75)), (1601, (1.0, 0.7)), (2002, (0.001, 0.1))),
    tuple(token(true, true + (i in (6, 8))) for i, true in enumerate(SAID)),
    SAID,
    (*SAID[:6], 1, 2, 3, 4),
)
SAME = replace(
    DRIFT,
    approach=((1600, (0.0, 0.0)), (2002, (0.0, 0.0))),
    tokens=tuple(Token(0.0, 0.0, 0.0, t, t, (0.0, 0.0)) for t in SAID),
    held_text=SAID,
)


def printed(drift: Drift) -> list[str]:
    stream = io.StringIO()
    print_drift(drift, SUBJECT, Console(file=stream, width=100))
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def test_the_table_shows_the_first_tokens_those_that_differ_and_the_last() -> None:
    rows = [line.split() for line in printed(DRIFT)]
    shown = [row[0] for row in rows if row[0].isdigit() or row[0] == "…"]
    assert shown == ["0", "1", "2", "3", "…", "6", "…", "8", "9"]
    assert ["6", "7", "8", "differs", "0.25", "1.5", "0.062", "0.5"] in rows
    assert ["at", "the", "restore", "1.2", "0.75"] in rows
    assert ["prompt's", "end", "1.0e-03", "0.1"] in rows
    assert ["after", "10", "more", "0.5", "0.25"] in rows


def test_the_summary_counts_what_is_picked_and_what_is_said() -> None:
    assert list(summary(DRIFT)) == [
        "on the same text greedy decoding picks another token in 2 of 10 places",
        "left to itself it says something else from token 6 on, in 4 of 10 places",
        "repeated 4-grams: 14% from the true state, 0% from the held one",
    ]
    assert list(summary(SAME))[:2] == [
        "on the same text greedy decoding picks another token in 0 of 10 places",
        "left to itself it says the same 10 tokens",
    ]


def test_a_reader_that_there_was_none_of_is_called_so() -> None:
    assert heading(SUBJECT) == "drift: b, restored at 1,600 of 2,002 prompt tokens"
    assert "a request that sends b's prompt again" in heading(replace(SUBJECT, hypothetical=True))
    assert too_long(SUBJECT, 99).endswith("b has 2,002 prompt tokens, the model here reads at most 99")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3.37e-8, "3.4e-08"), (0.0099, "9.9e-03"), (0.25, "0.25"), (1234.5, "1,234")]
)
def test_numbers_have_two_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_the_json_is_plain() -> None:
    tree = to_json(DRIFT, SUBJECT)
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert (tree["first_different"], tree["different"]) == (6, 4)
    assert [t["differs"] for t in tree["tokens"]].count(True) == 2
    assert tree["approach"][0] == {"position": 1600, "states": [1.25, 0.75]}


def test_the_picture_marks_the_tokens_that_differ() -> None:
    left, right = Figure().subplots(1, 2)
    plot_logits(DRIFT, left)
    plot_states(DRIFT, right)
    marks = {line.get_label(): list(map(float, np.asarray(line.get_xdata()))) for line in left.get_lines()}
    assert marks["another token"] == [6, 8]
    assert marks["texts part"] == [6, 6]
    assert left.get_yscale() == right.get_yscale() == "log"
    layers = [line for line in right.get_lines() if len(np.asarray(line.get_xdata())) == 13]
    assert len(layers) == 2
    assert np.asarray(layers[0].get_xdata()).tolist()[:4] == [1, 2, 403, 404]
    assert {line.get_label() for line in right.get_lines()} == {"gated-delta", "ssd", "end of the prompt"}


def test_a_clean_restore_is_drawn_without_marks(tmp_path: Path) -> None:
    ax = Figure().subplots()
    plot_logits(SAME, ax)
    assert len(ax.get_lines()) == 1 and ax.get_yscale() == "linear"
    draw(tmp_path / "same.png", [("same", SAME)], "same")
    assert (tmp_path / "same.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_drift_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for file in files:
        draw(file, [("old gate: b", DRIFT)], "anatomy")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(files[0].read_bytes()) > 1000


def test_of_many_drifts_the_first_are_drawn_and_the_title_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateat.sim.report.pictures.drift_plot.MAX_PANELS", 1)
    draw(tmp_path / "a.svg", [("one", DRIFT), ("two", SAME)], "anatomy")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- anatomy (the first 1 of 2) -->" in text
    assert "<!-- one -->" in text and "<!-- two -->" not in text


def test_a_long_name_is_cut_to_sixty_characters(tmp_path: Path) -> None:
    draw(tmp_path / "a.svg", [("n" * 60, DRIFT), ("m" * 61, SAME)], "anatomy")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f"<!-- {'n' * 60} -->" in text and f"<!-- {'m' * 59}… -->" in text


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw(tmp_path / "a.png", [], "")
    with pytest.raises(InputError, match=r"allowed: \.png"):
        draw(tmp_path / "a.gif", [("", DRIFT)], "")
