"""Pictures of one run's frames: ``Result.chunks``, ``.claims`` and ``.findings``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.events import Finding, Severity
from stateat.sim.report.pictures.picture import plot_timeline
from stateat.sim.report.pictures.style import (
    INK,
    POISON,
    PURPLE,
    SIZE,
    SKY,
    fits,
    frame,
    legend,
    plain,
    say,
    whole_ticks,
)
from stateat.sim.report.pictures.timeline import State, from_chunks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

MAX_SLOTS = 24
"""Slots on a map: those with a wrong claim first, then the earliest; its title says what is left out."""


def timeline(chunks: DataFrame, ax: Axes, findings: Sequence[Finding] = (), block: int = 0) -> None:
    """The chunks of one run over time, as ``stateat replay --plot`` draws them.

    With the run's ``findings`` (``Outcome.findings``) also the claims that are wrong and who restored from them;
    ``block``: tokens in a recurrent block, for the lines of its grid.
    """
    _one_run(chunks)
    drawn = from_chunks(chunks, block)
    poison = [finding for finding in findings if finding.severity == Severity.POISON and finding.claimed is not None]
    for finding in poison:
        for track in filter(None, map(drawn.tracks.get, finding.readers)):
            first = track.chunks[0]
            if first.start == finding.claimed and first.step > finding.step:
                track.restores.append(State(first.step, 0, finding.slot, finding.column, first.start))
    plot_timeline(drawn, poison, ax)


def _optional(value: Any) -> int | None:
    import pandas as pd

    return None if pd.isna(value) else int(value)


def _poison(findings: DataFrame) -> DataFrame:
    """The slots that are not what they claim, each once."""
    return findings[(findings["severity"] == "poison") & findings["claimed"].notna()]


def slot_life(claims: DataFrame, ax: Axes, findings: DataFrame | None = None, last_step: int = 0) -> None:
    """Draw what each slot was advertised as, from step to step: a bar for each claim, hatched where it is wrong.

    A bar says who claimed which state; what ended it stands behind it, and an arrow stands for a claim that nothing
    ended. With ``findings``, a wrong one says what its slot holds; ``last_step``: when the run ended, by default with
    the last claim.
    """
    _one_run(claims)
    held = {}
    if findings is not None:
        held = {row.finding: _holds(row) for row in _rows(findings)}
    shown = _slots_of(claims)
    end = float(max([last_step, *claims["step"], *claims["end_step"].dropna()])) + 1
    for row, slot in enumerate(shown):
        mine = claims[claims["slot"] == slot].sort_values(["step", "claim"], kind="stable")
        lanes = _side_by_side(mine, end)
        height = 0.76 / (max(lanes, default=0) + 1)
        for claim, lane in zip(_rows(mine), lanes, strict=True):
            _life(ax, claim, held.get(claim.finding), row - 0.38 + (lane + 0.5) * height, height, end)
    ax.set_xlim(0, end * 1.06)
    ax.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    ax.set_yticks(range(len(shown)), [str(slot) for slot in shown])
    frame(ax, "time (engine steps)", "slot (block id)", SIZE)
    whole_ticks(ax, "x")
    if len(shown) < (slots := claims["slot"].nunique()):
        ax.set_title(f"shown: {len(shown)} of {slots:,} slots, wrong ones first", fontsize=SIZE - 1.5, loc="right")
    _legend_of_claims(ax, claims)


def _holds(finding: Any) -> str:
    held = _optional(finding.held)
    return f"holds {finding.verdict}" if held is None else f"holds state@{held}"


def _slots_of(claims: DataFrame) -> list[int]:
    """The slots that are shown: wrong ones before others, then in the order of their first claim."""
    wrong = claims[claims["finding"].notna()]["slot"]
    chosen = list(dict.fromkeys([*wrong, *claims["slot"]]))[:MAX_SLOTS]
    return [slot for slot in dict.fromkeys(claims["slot"]) if slot in set(chosen)]


def _side_by_side(claims: DataFrame, end: float) -> list[int]:
    """A lane for each claim of a slot, so that those that stand at a time lie beside each other."""
    free: list[float] = []
    lanes = []
    for claim in _rows(claims):
        until = _optional(claim.end_step)
        lane = next((i for i, since in enumerate(free) if since <= claim.step), len(free))
        free[lane : lane + 1] = [end if until is None else max(until, claim.step + 1)]
        lanes.append(lane)
    return lanes


def _life(ax: Axes, claim: Any, held: str | None, y: float, height: float, end: float) -> None:
    """One claim."""
    until = _optional(claim.end_step)
    wrong = _optional(claim.finding) is not None
    stop = end if until is None else max(float(until), claim.step + 0.5)
    ax.barh(
        y, stop - claim.step, left=claim.step, height=0.86 * height, color=POISON if wrong else SKY,
        hatch="////" if wrong else "", edgecolor="white", linewidth=0.8, zorder=2,
    )  # fmt: skip
    if until is None:
        ax.plot([stop], [y], marker=">", color=POISON if wrong else SKY, markersize=9, zorder=2)
    elif claim.why and fits(ax, f" {claim.why}", (end - stop) / end, SIZE - 1):
        ax.text(stop, y, f" {plain(claim.why, 20)}", fontsize=SIZE - 1, color=INK, va="center", zorder=3)
    what = f"{plain(claim.request, 20)}: state@{claim.offset}"
    read = f", restored {claim.restores}×" if claim.restores else ""
    for label in (f"{what}\n{held}{read}" if held else "", f"{what}{read}", what):
        if label and fits(ax, label, (stop - claim.step) / end, SIZE - 1):
            ax.text(
                claim.step + 0.015 * end, y, label, fontsize=SIZE - 1, color="black", va="center", zorder=3,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"} if wrong else None,
            )  # fmt: skip
            break


def _legend_of_claims(ax: Axes, claims: DataFrame) -> None:
    from matplotlib.patches import Patch

    handles = []
    if claims["finding"].isna().any():
        handles.append(Patch(facecolor=SKY, label="claim that is right"))
    if claims["finding"].notna().any():
        handles.append(Patch(facecolor=POISON, hatch="////", edgecolor="white", label="claim that is wrong"))
    legend(ax, handles=handles)


def blast_radius(findings: DataFrame, ax: Axes, end_us: int | None = None, requests: DataFrame | None = None) -> None:
    """Draw how one root cause spreads: wrong slots and roots among them, over time.

    ``end_us``: when the run ended, by default the last finding. With the run's ``requests`` also those that read a
    wrong state, each once, when it first did.
    """
    _one_run(findings)
    rows = _poison(findings)
    curves = [("slots that are wrong", rows["time_us"], POISON, "-")]
    if requests is not None:
        _one_run(requests)
        curves.append(("requests that read them", requests["tainted_us"].dropna(), PURPLE, "-."))
    curves.append(("root causes", rows["time_us"][rows["is_root"].astype(bool)], INK, "--"))
    counts_steps = bool((rows["time_us"] == rows["step"]).all())
    last = max([0, end_us or 0, *(int(times.max()) for _, times, *_ in curves if len(times))])
    unit, scale = ("engine steps", 1.0) if counts_steps else ("s", 1e-6) if last >= 1e7 else ("ms", 1e-3)
    end = max(last * scale, 1e-9)
    for label, at, color, line in curves:
        times = [0.0, *(scale * time for time in sorted(at.tolist())), end]
        heights = [*range(len(at) + 1), len(at)]
        text = f"{label}: {len(at):,}"
        ax.step(times, heights, where="post", color=color, linestyle=line, linewidth=2, label=text, zorder=3)
        if label == curves[0][0]:
            ax.fill_between(times, heights, step="post", color=color, alpha=0.12, linewidth=0)
    if rows.empty:
        say(ax, "nothing is poisoned")
    ax.set_xlim(0, end * 1.02)
    ax.set_ylim(bottom=0)
    frame(ax, f"time ({unit})", "count since the start", SIZE)
    whole_ticks(ax, "x")
    whole_ticks(ax, "y")
    legend(ax)


def _one_run(rows: DataFrame) -> None:
    """A picture of one run cannot show two."""
    found = list(dict.fromkeys(zip(rows["variant"], rows["case"].fillna(""), strict=True)))
    if len(found) > 1:
        names = ", ".join(" / ".join(filter(None, pair)) for pair in found[:6])
        raise InputError(f"a picture of one run: found a frame with {len(found)} runs ({names}); choose one of them")


def _rows(table: DataFrame) -> Iterator[Any]:
    return table.itertuples(index=False)
