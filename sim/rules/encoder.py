"""Encoded items (images, audio): where a chunk stops before one that cannot be encoded now, or may not be cut."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Value, When

WITH_ITEMS = When("with a request that has encoded items", lambda options, requests: any(r.encoder for r in requests))


@dataclass(frozen=True, slots=True)
class Cap:
    """Cut of a chunk before an item that cannot be encoded now."""

    before_split: bool
    """True if the split then rounds down what the cap left, to nothing if need be (before vLLM PR 51603)."""
    shifts: bool
    """True if the chunk stays as far from the item as a look-ahead drafter reads, and an item is kept until the drafter
    has passed it too."""
    reads_ahead: bool
    """True if an item that only the drafter reads is encoded."""


ENCODER: Rule[Cap] = Rule(
    "Where does a chunk stop before an item (image, audio) that cannot be encoded now?",
    {
        "before-split": Value(
            Cap(before_split=True, shifts=True, reads_ahead=False),
            "Before the item, less what a look-ahead drafter reads; the split then rounds that down, to nothing if "
            "need be.",
            "vLLM to 0.27",
        ),
        "after-split": Value(
            Cap(before_split=False, shifts=True, reads_ahead=True),
            "Before the item, less what a look-ahead drafter reads, after the split: the chunk may end inside a block.",
            "PR 51603, vLLM 0.28",
        ),
        "after-split-unshifted": Value(
            Cap(before_split=False, shifts=False, reads_ahead=True),
            "Right before the item, after the split; an item is freed once its last token is computed, whatever a "
            "drafter reads.",
            "vLLM 0.33",
        ),
    },
    WITH_ITEMS,
)


@dataclass(frozen=True, slots=True)
class WholeItems:
    """Chunks that ``disable_chunked_mm_input`` holds back: one that would end inside an item stops before it."""

    if_here: bool
    """True if that holds for an item that is encoded already too (vLLM 0.32)."""
    at_its_start: bool
    """True if it holds for a chunk that starts right at the item too, which then gets nothing (vLLM 0.33)."""


WHOLE_ITEMS: Rule[WholeItems] = Rule(
    "Which chunks does `disable_chunked_mm_input` hold back?",
    {
        "not-here": Value(
            WholeItems(if_here=False, at_its_start=False),
            "Those that start before an item that is not encoded yet, and would end inside it: they stop before it.",
            "vLLM to 0.31",
        ),
        "before": Value(
            WholeItems(if_here=True, at_its_start=False),
            "Those that start before an item, encoded already or not, and would end inside it: they stop before it.",
            "vLLM 0.32",
        ),
        "before-and-at": Value(
            WholeItems(if_here=True, at_its_start=True),
            "As `before`; also those that start right at the item: they get nothing.",
            "vLLM 0.33",
        ),
    },
    WITH_ITEMS,
)
