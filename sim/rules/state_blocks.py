"""Blocks of recurrent groups in align mode: which sizes are allowed, and for which tokens they are reserved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
