"""Blocks of recurrent groups in align mode: which sizes are allowed, for which tokens they are reserved, how many are
asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value, When


def _of_several_sizes(options: Options) -> Iterator[Lack]:
    aligned = [(i, group) for i, group in enumerate(options.groups) if group.aligned]
    for i, group in aligned:
        first = aligned[0][1]
        if group.block_size != first.block_size:
            yield Lack(
                ("groups", i, "block_size"),
                f"{group.block_size} in group {group.name!r} beside {first.block_size} in {first.name!r}",
                "one block size for all recurrent groups in align mode",
                " (rule state_blocks=one; state_blocks=any runs it)",
            )


STATE_BLOCKS: Rule[bool] = Rule(
    "May recurrent groups in `align` mode have blocks of different sizes?",
    {
        "one": Value(
            False,
            "No: such groups are refused, with both sizes named.",
            "the worker of vLLM to 0.33 asserts it; PR 54076",
            lacks=_of_several_sizes,
        ),
        "any": Value(True, "Yes: nobody compares them.", "the scheduler and cache manager of vLLM to 0.33"),
    },
    When(
        "with recurrent groups in `align` mode of several block sizes",
        lambda options, requests: len({group.block_size for group in options.groups if group.aligned}) > 1,
    ),
)
"""True if they may."""


@dataclass(frozen=True, slots=True)
class StateSlots:
    """Tokens for which a recurrent group in align mode reserves blocks."""

    with_look_ahead: bool
    """True: also for the slots behind the scheduled tokens that a drafter needs in attention."""


STATE_SLOTS: Rule[StateSlots] = Rule(
    "For which tokens does a recurrent group in `align` mode reserve blocks?",
    {
        "scheduled": Value(StateSlots(with_look_ahead=False), "For the tokens that are scheduled.", "vLLM to 0.33"),
        "with-look-ahead": Value(
            StateSlots(with_look_ahead=True),
            "Also for the slots behind them that a drafter needs in attention, so that the running column moves; a "
            "checkpoint whose column is then not the one before it gets no block.",
            "vLLM issue 57605",
            Standing.FAULT,
        ),
    },
)


class Need(NamedTuple):
    """Blocks that a chunk may take in a recurrent group, if its table is too short."""

    missing: int
    """Columns that its table lacks, with one for a copy."""
    most: int
    """The most that are taken: the running one, one for a copy, one for a checkpoint, K if the request starts."""
    started: bool
    spare: int
    """K, for the states after each draft."""
    checkpoint: bool
    """The chunk exports a state on its way."""


def the_most(need: Need) -> int:
    """Ask for the most, even if fewer are missing (vLLM to 0.29)."""
    return need.most


def the_most_or_a_checkpoints(need: Need) -> int:
    """Ask for the most; for all that are missing where a started request exports a checkpoint (vLLM 0.30)."""
    return need.missing if need.checkpoint and need.started else need.most


def missing_and_spare(need: Need) -> int:
    """Ask for those that are missing, at most the most, with K more for a checkpoint of a started one (vLLM 0.31)."""
    return min(need.missing, need.most + (need.spare if need.checkpoint and need.started else 0))


def missing(need: Need) -> int:
    """Ask for those that are missing, at most the most (vLLM 0.32)."""
    return min(need.missing, need.most)


@dataclass(frozen=True, slots=True)
class StateNeed:
    """Blocks that have to be free for a chunk."""

    blocks: Callable[[Need], int]


STATE_NEED: Rule[StateNeed] = Rule(
    "How many blocks does a chunk ask for in a recurrent group in `align` mode whose table is too short?",
    {
        "most": Value(
            StateNeed(the_most),
            "The most that it may take: the running one, one for a copy of a tail, one for a checkpoint, and K if the "
            "request starts; one too many where a hit ends inside the block that the chunk ends in.",
            "vLLM to 0.29",
        ),
        "most-or-checkpoint": Value(
            StateNeed(the_most_or_a_checkpoints),
            "As `most`; all that are missing where a request that has started exports a checkpoint.",
            "vLLM 0.30",
        ),
        "missing-and-spare": Value(
            StateNeed(missing_and_spare),
            "Those that are missing, as `most` at most, with K more where a request that has started exports a "
            "checkpoint.",
            "vLLM 0.31",
        ),
        "missing": Value(StateNeed(missing), "Those that are missing, as `most` at most.", "vLLM 0.32"),
    },
    When(
        "with a recurrent group in `align` mode",
        lambda options, requests: any(group.aligned for group in options.groups),
    ),
)
