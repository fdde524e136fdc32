"""The two pictures of a run on an axis: lanes of token offset against time, or a bar for each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from stateat.sim.events import Finding, Severity, Stop
from stateat.sim.report.pictures.style import BLUE, FAINT, GREEN, INK, ORANGE, POISON, PURPLE, SKY, YELLOW, fits, plain
from stateat.sim.report.pictures.timeline import DrawnChunk, State, Timeline, Track
from stateat.sim.report.words.findings import findings_of
from stateat.sim.run.result import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STOPS: dict[str, tuple[str, str]] = {
    Stop.BUDGET: (ORANGE, ""),
    Stop.THRESHOLD: (YELLOW, ""),
    Stop.BLOCK_BOUNDARY: (GREEN, ""),
    Stop.MID_BLOCK: (GREEN, "////"),
    Stop.EVERY_BOUNDARY: (GREEN, "...."),
    Stop.RETAINED: (GREEN, "++"),
    Stop.LAST_CACHE_POSITION: (SKY, ""),
    Stop.PARTIAL_TAIL: (PURPLE, ""),
    Stop.JUNCTION: (PURPLE, "////"),
    Stop.PROMPT_END: (BLUE, ""),
    Stop.DECODE: ("#999999", ""),
    Stop.MAX_MODEL_LEN: ("#999999", "////"),
}
"""Colour and hatch of a rule."""
_DARK = (GREEN, BLUE)
"""Colours that a label is white on."""
_OTHER_HATCHES = ("\\\\\\\\", "xxxx", "++++", "oooo")
_OTHER_COLOR = SKY

_MAX_LABELLED_CHUNKS = 12
_MAX_ANNOTATED = 3
_MAX_ARROWS = 60
_SPARSE = 60
"""Bars up to which edges and arrows are drawn."""
_LANE_GAP = 0.30
"""Gap between lanes, as a share of a lane's height."""


class _Point(NamedTuple):
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Mapping from the timeline's times to the axis."""

    factor: float
    label: str

    @classmethod
    def of(cls, timelines: Iterable[Timeline]) -> Scale:
        timelines = list(timelines)
        if any(timeline.steps.counts_steps for timeline in timelines):
            return cls(1.0, "time (engine steps)")
        longest = max((last_time(timeline) for timeline in timelines), default=0.0)
        return cls(1e-6, "time (s)") if longest >= 1e7 else cls(1e-3, "time (ms)")


class _Picture:
    """Base of both styles: times, and where claims and restores lie."""

    def __init__(self, timeline: Timeline, poison: Sequence[Finding], ax: Axes, scale: Scale) -> None:
        self.timeline, self.poison, self.ax, self.scale = timeline, poison, ax, scale
        self.tracks = list(timeline.tracks.values())
        self.lane = {track.request: index for index, track in enumerate(self.tracks)}

    def begin(self, step: int) -> float:
        return self.timeline.steps.begin(step) * self.scale.factor

    def finish(self, step: int) -> float:
        return self.timeline.steps.finish(step) * self.scale.factor

    def span(self, piece: DrawnChunk) -> tuple[float, float]:
        begin, finish = self.timeline.span(piece)
        return begin * self.scale.factor, finish * self.scale.factor

    def restores_of(self, finding: Finding) -> Iterator[tuple[Track, State]]:
        """The restores from a poisoned slot, while it claimed what the finding says."""
        for reader in finding.readers:
            track = self.timeline.tracks.get(reader)
            for state in track.restores if track else ():
                if (state.slot, state.offset) == (finding.slot, finding.claimed) and state.step >= finding.step:
                    assert track is not None
                    yield track, state


class Lanes(_Picture):
    """Few requests: token offset against time, a lane for each request, the first on top."""

    def __init__(self, timeline: Timeline, poison: Sequence[Finding], ax: Axes, scale: Scale, height: float) -> None:
        super().__init__(timeline, poison, ax, scale)
        self.height = height
        self.pitch = height * (1 + _LANE_GAP)
        self.span_of_axis = scale.factor * last_time(timeline)

    def y(self, request: str, offset: float) -> float:
        return (len(self.tracks) - 1 - self.lane[request]) * self.pitch + offset

    def draw(self) -> None:
        self._frame()
        labelled = sum(len(track.chunks) for track in self.tracks) <= _MAX_LABELLED_CHUNKS
        for track in self.tracks:
            self._cached(track)
            for piece in _merged(track.chunks):
                self._piece(track, piece, labelled)
            self._turns(track)
        roots = [finding for finding in self.poison if finding.root is None]
        for finding in self.poison:
            if finding.request in self.lane and finding.claimed is not None:
                self._claim(finding, annotated=finding in roots[:_MAX_ANNOTATED])

    def _frame(self) -> None:
        """Lanes, the grid of the recurrent group, and token offsets as ticks."""
        ax, block = self.ax, self.timeline.block_size
        ticks: list[tuple[float, str]] = []
        for track in self.tracks:
            top = max([track.prompt, *(piece.end for piece in track.chunks)])
            boundaries = _thinned(range(block, top + 1, block) if block else (), 5)
            offsets = [0, *(b for b in boundaries if top - b > 0.07 * self.height), top]
            ticks += [(self.y(track.request, offset), f"{offset:,}") for offset in offsets]
            base = self.y(track.request, 0)
            ax.axhline(base, color=INK, linewidth=0.8, zorder=2.5)
            for boundary in range(block, top + 1, block) if block and top // block <= 40 else boundaries:
                ax.axhline(base + boundary, color=FAINT, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0.5)
            label = f" request {plain(track.request, 30)}"
            ax.text(
                0, base + self.height * 1.06, label, fontsize=8.5, fontweight="bold", color=INK, va="bottom",
                transform=ax.get_yaxis_transform(),
            )  # fmt: skip
        ax.set_yticks([y for y, _ in ticks], [text for _, text in ticks])
        ax.set_ylim(-0.06 * self.height, max(len(self.tracks), 1) * self.pitch - 0.06 * self.height)
        ax.set_ylabel("token offset (tokens)", fontsize=8.5)

    def _cached(self, track: Track) -> None:
        """Draw what a request did not compute, because it started from a hit."""
        for step, hit, _ in track.admits:
            if hit:
                x, y = self.begin(step), self.y(track.request, 0)
                width = self.finish(step) - x
                wrong = any(track.request in finding.readers for finding in self.poison)
                face, edge = ("#FCEBE0", POISON) if wrong else ("#F2F2F2", FAINT)
                self._rectangle(x, y, width, hit, facecolor=face, edgecolor=edge, linestyle=":", zorder=1)
                label = f"{hit:,}\nfrom the\ncache"
                if hit > 0.3 * self.height and self._fits(label, width):
                    self._text(x + width / 2, y + hit / 2, label, color="#666666", fontsize=7)

    def _piece(self, track: Track, piece: DrawnChunk, labelled: bool) -> None:
        left, right = self.span(piece)
        bottom, top = self.y(track.request, piece.start), self.y(track.request, piece.end)
        color, hatch = style_of(piece.stop)
        if piece.steps > 1:
            self.ax.plot([left, right], [bottom, top], color=color, linewidth=2.5, solid_capstyle="butt", zorder=2)
            return
        style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "alpha": 0.85, "zorder": 2}
        self._rectangle(left, bottom, right - left, top - bottom, linewidth=0.8, **style)
        if piece.drafts:
            drafted = piece.drafts
            self._rectangle(
                left, top - drafted, right - left, drafted, facecolor="none", edgecolor="white", hatch="....", zorder=3
            )
        label = f"{piece.start:,}→{piece.end:,}"
        if top - bottom > 0.25 * self.height and not self._fits(label, right - left):
            label = f"{piece.start:,}\n→{piece.end:,}"
        if labelled and top - bottom > 0.09 * self.height and self._fits(label, right - left):
            ink = "white" if color in _DARK else "black"
            box = {"boxstyle": "round,pad=0.15", "facecolor": color, "edgecolor": "none"} if hatch else None
            self._text((left + right) / 2, (bottom + top) / 2, label, color=ink, fontsize=7, bbox=box)

    def _turns(self, track: Track) -> None:
        """Deferrals and preemptions."""
        for step, offered, _ in track.defers:
            left, right = self.begin(step), self.finish(step)
            y = self.y(track.request, 0)
            self._rectangle(
                left, y, right - left, 0.05 * self.height, facecolor="white", edgecolor=INK, hatch="//////",
                linewidth=0.6, zorder=2,
            )  # fmt: skip
            for label in (f"deferred\n{offered:,} offered", "deferred"):
                if self._fits(label, right - left):
                    self._text((left + right) / 2, y + 0.07 * self.height, label, fontsize=7, va="bottom")
                    break
        for step in track.preempts:
            x = self.begin(step)
            self.ax.plot([x], [self.y(track.request, 0)], marker="v", color="black", markersize=6, zorder=5)

    def _fits(self, label: str, width: float) -> bool:
        """True if the label's lines fit in this much of the time axis."""
        return fits(self.ax, label, width / (self.span_of_axis or 1))

    def _claim(self, finding: Finding, annotated: bool) -> None:
        """A slot that does not hold what it claims: what it holds, the claim, and who restored from it."""
        assert finding.claimed is not None
        x = self.finish(finding.step)
        claim = _Point(x, self.y(finding.request, finding.claimed))
        self.ax.plot(
            [claim.x], [claim.y], marker="X", markersize=9, color=POISON, markeredgecolor="white", zorder=7,
            clip_on=False,
        )  # fmt: skip
        if annotated:
            self._held(finding, claim)
        for track, state in list(self.restores_of(finding))[:_MAX_ARROWS]:
            target = _Point(self.begin(state.step), self.y(track.request, state.offset))
            self._arrow(claim, target, "arc3,rad=-0.14")
            self.ax.plot([target.x], [target.y], marker="o", markersize=6, color=POISON, zorder=7)

    def _held(self, finding: Finding, claim: _Point) -> None:
        """The content's way: from its write to the claim at its true offset, then up to what the hash says."""
        held, claimed = finding.held, f"claims state@{finding.claimed}"
        if held is None:
            self._note(finding, claim, f"{claimed},\nholds: {finding.verdict or 'nothing known'}")
            return
        y = self.y(finding.request, held)
        written = self.finish(finding.write.step) if finding.write is not None else claim.x
        line: dict[str, Any] = {"color": POISON, "linewidth": 1.6, "zorder": 6}
        self.ax.plot([written, claim.x], [y, y], linestyle=(0, (2, 1.5)), **line)
        self.ax.plot([written], [y], marker="o", markersize=6, markerfacecolor="white", markeredgewidth=1.6, **line)
        self._arrow(_Point(claim.x, y), claim, "arc3,rad=0")
        self._note(finding, claim, f"slot {finding.slot}\n{claimed},\nholds state@{held}")

    def _note(self, finding: Finding, at: _Point, text: str) -> None:
        """Beside the claim and above it, on the side where there is room."""
        relative = at.x / (self.span_of_axis or 1)
        left = relative > 0.7 or (
            relative > 0.4 and self._is_busy(finding, at.x) and not self._is_busy(finding, 0, at.x)
        )
        note = self.ax.annotate(
            text, at, (-7 if left else 7, 4), textcoords="offset points", fontsize=7.5, fontweight="bold",
            color=POISON, ha="right" if left else "left", va="bottom", zorder=9, linespacing=1.25,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.9},
        )  # fmt: skip
        note.set_in_layout(False)

    def _is_busy(self, finding: Finding, begin: float, finish: float = inf) -> bool:
        """True if the request computes tokens past the claimed offset in this time."""
        spans = [(self.span(piece), piece) for piece in self.timeline.tracks[finding.request].chunks]
        return any(begin <= left and right <= finish and p.end > (finding.claimed or 0) for (left, right), p in spans)

    def _arrow(self, start: _Point, end: _Point, connection: str) -> None:
        style = {"arrowstyle": "-|>", "color": POISON, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 5}
        self.ax.annotate("", end, start, arrowprops={**style, "connectionstyle": connection}, zorder=6)

    def _rectangle(self, x: float, y: float, width: float, height: float, **style: Any) -> None:
        from matplotlib.patches import Rectangle

        self.ax.add_patch(Rectangle((x, y), width, height, **style))

    def _text(self, x: float, y: float, text: str, **style: Any) -> None:
        self.ax.text(
            x, y, text, **{"ha": "center", "va": "center", "color": INK, "zorder": 4, "clip_on": True, **style}
        )


class Bars(_Picture):
    """Many requests: one bar each, in the order of arrival, the first on top."""

    def draw(self) -> None:
        ax = self.ax
        self._waiting()
        for stop in stops_of([self.timeline]):
            self._chunks(stop)
        self._poisoned()
        ax.set_ylim(len(self.tracks) - 0.4, -0.6)
        ax.set_ylabel("request (order of arrival)", fontsize=8.5)
        if len(self.tracks) <= 24:
            ax.set_yticks(range(len(self.tracks)), [plain(track.request, 16) for track in self.tracks])
        outside = sum(finding.request not in self.lane for finding in self.poison)
        missing = f"; {outside} of {len(self.poison)} poisoned claims lie outside" if outside else ""
        if note := self.timeline.note:
            ax.set_title(f"shown: {note}{missing}", fontsize=7, color="#777777", loc="right")

    def _waiting(self) -> None:
        """Thin lines from arrival to the first chunk."""
        waits = [
            (self.lane[track.request], track.time_us * self.scale.factor, self.span(track.chunks[0])[0])
            for track in self.tracks
            if track.chunks
        ]
        if waits:
            self.ax.hlines(*zip(*waits, strict=True), color=FAINT, linewidth=0.7, zorder=1)

    def _chunks(self, stop: str) -> None:
        from matplotlib.collections import PolyCollection

        corners = []
        for track in self.tracks:
            low, high = self.lane[track.request] - 0.4, self.lane[track.request] + 0.4
            for piece in _merged(track.chunks):
                if piece.stop == stop:
                    left, right = self.span(piece)
                    corners.append([(left, low), (left, high), (right, high), (right, low)])
        color, hatch = style_of(stop)
        edges = "white" if len(self.tracks) <= _SPARSE else "none"
        bars = PolyCollection(corners, facecolor=color, hatch=hatch, edgecolor=edges, linewidth=0.4, zorder=2)
        self.ax.add_collection(bars)

    def _poisoned(self) -> None:
        """Claims that are wrong, requests that restored from them, and which from which."""
        sparse = len(self.tracks) <= _SPARSE
        size = 7.0 if sparse else 4.0
        claims = [
            (_Point(self.finish(finding.step), self.lane[finding.request]), finding)
            for finding in self.poison
            if finding.request in self.lane
        ]
        arrows = [
            (claim, _Point(self.begin(state.step), self.lane[track.request]))
            for claim, finding in claims
            for track, state in self.restores_of(finding)
        ]
        for reader in {self.lane[name] for finding in self.poison for name in finding.readers if name in self.lane}:
            self.ax.axhspan(reader - 0.5, reader + 0.5, color=POISON, alpha=0.16, linewidth=0, zorder=0.5)
        for claim, start in arrows[:_MAX_ARROWS] if sparse else ():
            self.ax.plot([claim.x, start.x], [claim.y, start.y], color=POISON, linewidth=0.8, alpha=0.5, zorder=1.5)
        style: dict[str, Any] = {"linestyle": "none", "color": POISON, "markeredgecolor": "white", "zorder": 6}
        style["markeredgewidth"] = 0.5 if sparse else 0.0
        self.ax.plot([p.x for p, _ in claims], [p.y for p, _ in claims], marker="X", markersize=size, **style)
        starts = [reader_at for _, reader_at in arrows]
        self.ax.plot([p.x for p in starts], [p.y for p in starts], marker="o", markersize=size - 1.5, **style)


def style_of(stop: str) -> tuple[str, str]:
    """Colour and hatch of the rule that ended a chunk; the same in every picture."""
    if stop in _STOPS:
        return _STOPS[stop]
    return _OTHER_COLOR, _OTHER_HATCHES[sum(stop.encode()) % len(_OTHER_HATCHES)]


def poison_of(outcome: Outcome) -> list[Finding]:
    return [f for _, f in findings_of(outcome) if f.severity == Severity.POISON and f.claimed is not None]


def _merged(chunks: Sequence[DrawnChunk]) -> Iterator[DrawnChunk]:
    """Decode steps in a row as one piece."""
    run: DrawnChunk | None = None
    for piece in chunks:
        if run and run.stop == piece.stop == "decode" and run.step + run.steps == piece.step:
            run = DrawnChunk(run.step, run.steps + piece.steps, run.time_us, run.start, piece.end, 0, "decode")
            continue
        if run:
            yield run
        run = piece
    if run:
        yield run


def stops_of(timelines: Iterable[Timeline]) -> list[str]:
    """The rules that ended a chunk, known ones first and in a fixed order."""
    found = {piece.stop for timeline in timelines for track in timeline.tracks.values() for piece in track.chunks}
    return [stop for stop in _STOPS if stop in found] + sorted(found - set(_STOPS))


def _thinned(offsets: Sequence[int], most: int) -> Sequence[int]:
    return offsets[:: -(-len(offsets) // most)] if len(offsets) > most else offsets


def lane_height(timeline: Timeline) -> float:
    """The largest token offset of any request."""
    ends = [max([track.prompt, *(piece.end for piece in track.chunks)]) for track in timeline.tracks.values()]
    return float(max(ends, default=0) or 1)


def last_time(timeline: Timeline) -> float:
    """End of the last chunk."""
    ends = [timeline.span(track.chunks[-1])[1] for track in timeline.tracks.values() if track.chunks]
    return max(ends, default=0.0)
