"""Where a chunk stops before an encoded item (image, audio) that cannot be encoded now, or may not be cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cap:
    """How a release cuts a chunk off before an item that cannot be encoded now."""

    before_split: bool
    """Whether the split then rounds down what the cap left, to nothing if need be (before vLLM PR 51603)."""
    shifts: bool
    """Whether the chunk stays as far from the item as a look-ahead drafter reads, and an item is kept until the drafter
    has passed it too."""
    reads_ahead: bool
    """Whether an item that only the drafter reads is encoded."""


CAPS: dict[str, object] = {
    "before-split": Cap(before_split=True, shifts=True, reads_ahead=False),
    "after-split": Cap(before_split=False, shifts=True, reads_ahead=True),
    "after-split-unshifted": Cap(before_split=False, shifts=False, reads_ahead=True),
}
"""vLLM to 0.27; PR 51603, 0.28 to 0.32; 0.33."""


@dataclass(frozen=True, slots=True)
class WholeItems:
    """What ``disable_chunked_mm_input`` holds back: a chunk that would end inside an item stops before it."""

    if_here: bool
    """Whether that holds for an item that is encoded already (0.32)."""
    at_its_start: bool
    """Whether it holds for a chunk that starts right at the item, which then gets nothing (0.33)."""


WHOLE_ITEMS: dict[str, object] = {
    "not-here": WholeItems(if_here=False, at_its_start=False),
    "before": WholeItems(if_here=True, at_its_start=False),
    "before-and-at": WholeItems(if_here=True, at_its_start=True),
}
"""vLLM to 0.29; 0.32; 0.33."""
