"""Publishing: when a claim is visible, at which positions, and what its hash names."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value, When


@dataclass(frozen=True, slots=True)
class Publish:
    """Visibility of a claim to lookups."""

    refuses_same_step: bool = True
    """True if a hit on a state of the same step is refused."""
    at_commit: bool = False
    """True if verified tokens are published when their step commits, not when the next one is scheduled (vLLM 0.33)."""
    once: bool = False
    """True if a block that is published at its boundary already is left alone (vLLM 0.33)."""
    under_node: bool = False
    """True if a state that a chunk leaves on the split's grid, but inside a block, is published under the boundary
    before it: the deepest node of the tree that its key can name (SGLang issue 34780)."""
    hides: bool = False
    """True if nobody finds a claim until the step that makes it true has committed."""


PUBLISH: Rule[Publish] = Rule(
    "When is a claim visible to lookups?",
    {
        "at-schedule": Value(
            Publish(),
            "As soon as the chunk is scheduled that makes it true; a hit on a state of the same step is refused.",
            "vLLM to 0.32",
        ),
        "at-schedule-at-once": Value(
            Publish(refuses_same_step=False),
            "As soon as the chunk is scheduled, and a state of the same step can be hit.",
            "the control",
            Standing.FAULT,
        ),
        "at-schedule-and-commit": Value(
            Publish(at_commit=True, once=True),
            "As `at-schedule`; with drafts, verified tokens are published when their step commits, not when the next "
            "one is scheduled; a block that is published at its boundary already is left alone.",
            "vLLM 0.33",
        ),
        "at-schedule-under-node": Value(
            Publish(under_node=True),
            "As `at-schedule`; a state that a chunk leaves on the grid but inside a block is published under the "
            "boundary before it: the deepest node that the tree has.",
            "SGLang issue 34780",
            Standing.FAULT,
        ),
        "at-commit": Value(
            Publish(refuses_same_step=False, hides=True),
            "When the step that makes it true has committed, steps in flight included; no hit is refused.",
            "vLLM issue 56525",
            Standing.PROPOSAL,
        ),
    },
)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Treatment of the positions where a client asks for a state."""

    kept: bool
    """True if the state that lives when a chunk has passed such a position is published under it."""


SNAPSHOTS: Rule[Snapshots] = Rule(
    "What becomes of the positions where a client asks for a state (`snapshots` of a request)?",
    {
        "not-kept": Value(Snapshots(kept=False), "Nothing is published there but at block ends.", "vLLM to 0.33"),
        "kept": Value(
            Snapshots(kept=True),
            "Where hits are finer than a block, and a drafter has not several modules, the state that lives at the end "
            "of the chunk that passes one is published under it, rounded down to a hash unit: right where the split "
            "stops there, wrong where it does not; not under a hash that is not known yet.",
            "TensorRT-LLM PRs 15653, 16427",
            Standing.PROPOSAL,
        ),
    },
    When("with a request that has `snapshots`", lambda options, requests: any(r.snapshots for r in requests)),
)


@dataclass(frozen=True, slots=True)
class ItemHash:
    """Encoded items that the hash of a block names, beside its tokens."""

    names_every_item: bool
    """True: each in the block; False: of the block that a prompt's end and the first outputs fill, the last alone."""


ITEM_HASH: Rule[ItemHash] = Rule(
    "Which encoded items does the hash of a block name, beside its tokens, each with its offset from the block's "
    "start?",
    {
        "last-if-late": Value(
            ItemHash(names_every_item=False),
            "Each item in the block; but of the block that a prompt's end and the first outputs fill, the last item "
            "alone, so that a prompt with these tokens does not find it.",
            "vLLM to 0.30",
        ),
        "every": Value(
            ItemHash(names_every_item=True),
            "Each item in the block, and behind it as far as the hash looks ahead.",
            "vLLM 0.31",
        ),
    },
    When(
        "with a request that has several encoded items",
        lambda options, requests: any(len(r.encoder) > 1 for r in requests),
    ),
)
