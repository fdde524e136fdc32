"""A picture of how wrong an output gets: logits token by token, and states from the restore on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stateat.sim.errors import InputError
from stateat.sim.report.pictures.style import BLUE, FAINT, INK, ORANGE, POISON, canvas, check_suffix, frame, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stateat.sim.explain.drift import Drift

MAX_PANELS = 6
COLORS = {"gated-delta": BLUE, "ssd": ORANGE}


def draw(path: str | Path, panels: Sequence[tuple[str, Drift]], title: str) -> None:
    """Write a picture of drifts (name, drift), a row each, as PNG, SVG or PDF, by the path's suffix."""
    check_suffix(path)
    if not panels:
        raise InputError("nothing to draw: no drift")
    shown = panels[:MAX_PANELS]
    figure = canvas(8, 0.7 + 2.6 * len(shown))
    axes = figure.subplots(len(shown), 2, squeeze=False)
    for (name, drift), (left, right) in zip(shown, axes, strict=True):
        plot_logits(drift, left)
        plot_states(drift, right)
        left.set_title(plain(name, 60), fontsize=9, loc="left", color=INK)
    more = f" (the first {MAX_PANELS} of {len(panels)})" if len(panels) > MAX_PANELS else ""
    figure.suptitle(plain(title, 80) + more, fontsize=11, fontweight="bold")
    save(figure, path)


def plot_logits(drift: Drift, ax: Axes) -> None:
    """Distance of the logits of each generated token, both states having heard the same text; log scale."""
    distances = [_positive(token.logit_distance) for token in drift.tokens]
    differ = [i for i, token in enumerate(drift.tokens) if token.differs]
    ax.plot(range(len(distances)), distances, color=INK, linewidth=1.2, label="|held - true| / |true|")
    if differ:
        ax.plot(
            differ,
            [distances[i] for i in differ],
            color=POISON,
            marker="X",
            markersize=7,
            markeredgecolor="white",
            linestyle="none",
            label="another token",
        )
    if drift.first is not None:
        ax.axvline(drift.first, color=POISON, linewidth=1, linestyle=":", label="texts part")
    _dress(ax, "generated token", "distance of the logits", any(token.logit_distance > 0 for token in drift.tokens))


def plot_states(drift: Drift, ax: Axes) -> None:
    """Distance of each recurrent layer's state against tokens since the restore; log scales."""
    end = drift.approach[-1][0]
    points = [*drift.approach, *((end + i + 1, token.states) for i, token in enumerate(drift.tokens))]
    named: set[str] = set()
    for layer, kind in enumerate(drift.layers):
        label = kind if kind not in named else None
        named.add(kind)
        # One more, so that the restore itself has a place on the scale.
        x = [position - drift.offset + 1 for position, _ in points]
        y = [_positive(states[layer]) for _, states in points]
        ax.plot(x, y, color=COLORS.get(kind, FAINT), linewidth=1.1, label=label)
    ax.axvline(end - drift.offset + 1, color=INK, linewidth=1, linestyle=":", label="end of the prompt")
    ax.set_xscale("log")
    _dress(ax, "tokens since the restore (+1)", "distance of the states", any(max(states) > 0 for _, states in points))


def _positive(value: float) -> float:
    """No distance has no place on a log scale."""
    return value if value > 0 else float("nan")


def _dress(ax: Axes, x: str, y: str, wide: bool) -> None:
    """Labels and a plain frame; ``wide``: something is above zero, and a log scale has something to show."""
    if wide:
        ax.set_yscale("log")
    frame(ax, x, y)
    ax.legend(fontsize=7, frameon=False)
