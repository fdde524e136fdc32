"""Pictures of runs: who computed which tokens when, and where a cached state is not what its hash says.

Few requests are drawn as lanes of token offset against time, many as one bar each; :func:`draw` puts several runs into
one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.events import Finding
from stateat.sim.printable import plural
from stateat.sim.report.pictures.lanes import Bars, Lanes, Scale, lane_height, last_time, poison_of, stops_of, style_of
from stateat.sim.report.pictures.style import INK, POISON, canvas, check_suffix, frame, plain, save
from stateat.sim.report.pictures.timeline import Timeline
from stateat.sim.run.result import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 4
"""Requests that are drawn as lanes, at most."""
MAX_PANELS = 12
"""A picture holds so many runs: the first ones, and its title says so."""


def draw(path: str | Path, panels: Sequence[tuple[str, Timeline, Outcome]], title: str) -> None:
    """Write a picture of the variants (name, timeline, outcome) as PNG, SVG or PDF, by the path's suffix."""
    check_suffix(path)
    if not panels:
        raise InputError("nothing to draw: no variants")
    if len(panels) > MAX_PANELS:
        title = f"{plain(title, 60)} (the first {MAX_PANELS} of {len(panels)} runs)"
    save(_figure(panels[:MAX_PANELS], title), path)


def _figure(panels: Sequence[tuple[str, Timeline, Outcome]], title: str) -> Figure:
    few = all(len(timeline.tracks) <= FEW for _, timeline, _ in panels)
    lanes = max(len(timeline.tracks) for _, timeline, _ in panels)
    columns = 2 if few and len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    height = max(1.6 * lanes, 2.2) if few else min(max(0.14 * lanes, 1.8), 3.6 if rows <= 3 else 2.4)
    figure = canvas(8, 1.25 + rows * (height + 0.75))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    scale = Scale.of(timeline for _, timeline, _ in panels)
    flat = list(axes.flat)
    for index, ((name, timeline, outcome), ax) in enumerate(zip(panels, flat, strict=False)):
        beside = panels[index - index % columns :][:columns]
        _plot(timeline, poison_of(outcome), ax, scale, max(lane_height(other) for _, other, _ in beside))
        between = "\n" if len(name) > 36 // columns else ": "
        heading = f"{plain(name, 84 // columns)}{between}{_verdict(outcome)}"
        ax.set_title(heading, fontsize=9.5, color=_verdict_color(outcome), loc="left")
        ax.tick_params(labelbottom=True)
    for ax in flat[len(panels) :]:
        ax.set_visible(False)
    if columns == 2:
        for left, right in axes:
            _share_labels(left, right)
    _limit([ax for ax in flat if ax.get_visible()], [timeline for _, timeline, _ in panels], scale)
    figure.suptitle(plain(title, 90), fontsize=11, fontweight="bold")
    handles = _handles([timeline for _, timeline, _ in panels], [f for _, _, o in panels for f in poison_of(o)])
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def plot_timeline(timeline: Timeline, poison: Sequence[Finding], ax: Axes) -> None:
    """Draw a run and its wrong claims on one axis, with its own legend."""
    _plot(timeline, poison, ax, Scale.of([timeline]), lane_height(timeline))
    _limit([ax], [timeline], Scale.of([timeline]))
    handles = _handles([timeline], poison)
    if handles:
        ax.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=4, frameon=False)


def _limit(axes: Sequence[Axes], timelines: Sequence[Timeline], scale: Scale) -> None:
    """The same time on every axis, from 0 to a little after the last chunk."""
    last = max(map(last_time, timelines), default=0.0) * scale.factor
    for ax in axes:
        ax.set_xlim(0, (last or 1) * 1.02)


def _share_labels(left: Axes, right: Axes) -> None:
    """Leave out on the right what the axis beside it says already."""
    right.set_ylabel("")
    ticks = [[(tick.get_text(), *tick.get_position()) for tick in ax.get_yticklabels()] for ax in (left, right)]
    if ticks[0] == ticks[1]:
        right.tick_params(labelleft=False)


def _plot(timeline: Timeline, poison: Sequence[Finding], ax: Axes, scale: Scale, height: float) -> None:
    if len(timeline.tracks) <= FEW:
        Lanes(timeline, poison, ax, scale, height).draw()
    else:
        Bars(timeline, poison, ax, scale).draw()
    frame(ax, scale.label, ax.get_ylabel())
    if scale.label.endswith("steps)"):
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def _verdict(outcome: Outcome) -> str:
    if outcome.poisoned:
        return f"{outcome.poisoned:,} poisoned ({plural(outcome.poisoned_roots, 'root')})"
    if wrong := outcome.wrongs:
        return ", ".join(plural(count, noun) for noun, count in wrong.items())
    if outcome.livelock:
        return "livelock"
    return "clean" if outcome.restores or outcome.loaded_tokens else "clean (no hits)"


def _verdict_color(outcome: Outcome) -> str:
    return POISON if outcome.wrongs else INK


def _handles(timelines: Sequence[Timeline], findings: Sequence[Finding]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for stop in stops_of(timelines):
        color, hatch = style_of(stop)
        label = f"ended by {plain(stop, 30) or '(unnamed)'}" if stop != "decode" else "decode"
        handles.append(Patch(facecolor=color, hatch=hatch, edgecolor="white", label=label))
    marker: dict[str, Any] = {"color": POISON, "linestyle": "none", "markeredgecolor": "white"}
    if findings:
        handles.append(Line2D([], [], marker="X", markersize=8, label="claim that is wrong", **marker))
    if any(finding.readers for finding in findings):
        handles.append(Line2D([], [], marker="o", markersize=6, label="restored from it", **marker))
    return handles
