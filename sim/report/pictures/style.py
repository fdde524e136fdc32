"""Style of pictures: colours that colour-blind eyes can tell apart, plain frames, and files that repeat."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.files import nearby
from stateat.sim.printable import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""Okabe and Ito's colours."""

POISON = VERMILLION
"""Kept for what is wrong."""
INK = "#333333"
FAINT = "#BBBBBB"

SIZE = 9.5
"""Points of a label that can be read at 800 pixels for 8 inches."""
_CHARACTER_IN = 0.05 / 7
"""Width of a label's character, in inches of an axis before its layout (which widens it by a tenth) a point."""

LEGEND_COLUMNS = 3
_X_LABEL_IN = 0.53
"""Room that ticks and label of x take below an axis, in inches."""

SUFFIXES = (".png", ".svg", ".pdf")


def check_suffix(path: str | Path, what: str = "cannot draw") -> None:
    """Raise InputError, which starts with ``what``, unless the path's suffix is one of :data:`SUFFIXES`."""
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise InputError(f"{what} {nearby(path)}: found {suffix!r}, allowed: {', '.join(SUFFIXES)}")


def canvas(width: float, height: float) -> Figure:
    """An empty figure of so many inches, which makes room for its labels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08, hspace=0.04, wspace=0.04)
    return Figure(figsize=(width, height), layout=layout)


def save(figure: Figure, path: str | Path, dpi: int = 200) -> None:
    """Write a figure as PNG, SVG or PDF, by the path's suffix."""
    # No date and no random ids: the same run gives the same file.
    metadata: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[
        Path(path).suffix.lower()
    ]
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "stateat", "hatch.linewidth": 0.7}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(path, dpi=dpi, metadata=metadata)


def frame(ax: Axes, x: str, y: str, size: float = 8.5) -> None:
    """Labels with their units, in points, and a plain frame."""
    ax.set_xlabel(x, fontsize=size)
    ax.set_ylabel(y, fontsize=size)
    ax.tick_params(which="both", labelsize=size - 0.5, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)


def fits(ax: Axes, label: str, share: float, size: float = 7) -> bool:
    """True if the label's lines, in so many points, fit in this share of the axis's width."""
    figure = ax.get_figure(root=True)
    inches = ax.get_position().width * (figure.get_figwidth() if figure else 0)
    return max(map(len, label.split("\n"))) * _CHARACTER_IN * size <= share * inches


def legend(ax: Axes, **more: Any) -> None:
    """Below the axis and what it says of x, however high the axis is."""
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    below = ax.transAxes + ScaledTranslation(0, -_X_LABEL_IN, figure.dpi_scale_trans)
    ax.legend(
        fontsize=SIZE - 1, frameon=False, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below,
        ncols=LEGEND_COLUMNS, borderaxespad=0, **more,
    )  # fmt: skip


def whole_ticks(ax: Axes, which: str) -> None:
    """No ticks between whole numbers, which are written with commas; ``which``: ``x`` or ``y``."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis = getattr(ax, f"{which}axis")
    axis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def say(ax: Axes, text: str) -> None:
    """Write a text in the middle of an axis that has nothing else to show."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=SIZE + 1, color=INK)


def plain(text: str, most: int = 60) -> str:
    """A name as Matplotlib draws it: one line of so many characters, no mathematics."""
    text = one_line(text)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")
