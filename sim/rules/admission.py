"""Admission of waiting requests: one that can never fit, and those behind one that cannot be scheduled now."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value


@dataclass(frozen=True, slots=True)
class Admission:
    """Treatment of a request that can never fit."""

    rejects: bool
    """True: it is refused for good, with a reason; False: it waits for ever."""
    piecemeal: bool = False
    """True: a refusal for want of blocks comes when some were taken, which then are nobody's (SGLang issue 36770)."""


ADMISSION: Rule[Admission] = Rule(
    "What happens to a request that can never fit: it needs more blocks than the pool has, even if nobody else is "
    "there, or has an encoded item larger than the encoder's budgets?",
    {
        "wait": Value(Admission(rejects=False), "It waits for ever.", "vLLM to 0.33 (issues 52520, 52530)"),
        "reject": Value(
            Admission(rejects=True),
            "It is refused for good when its turn comes, before anything of it runs, with a reason (`never_blocks`, "
            "`never_encoder`), and taken away; so is one that finds no block later while nobody else runs.",
            "asked for in vLLM issues 52520, 52530",
            Standing.PROPOSAL,
        ),
        "piecemeal": Value(
            Admission(rejects=False, piecemeal=True),
            "It waits for ever; and any request that is refused for want of blocks leaves those that it had been given "
            "to nobody.",
            "SGLang issues 36770, 39787",
            Standing.FAULT,
        ),
    },
)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Cases in which a waiting request that gets nothing in a step lets those behind it be tried."""

    capped: bool = False
    """True: where the encoder's cap, or what a look-ahead drafter holds back, left it no token (vLLM 0.33)."""
    deferred: bool = False
    """True: where the split left it no token: the rest of a budget that is less than a block (vLLM issue 45414)."""
    refused: bool = False
    """True: where it was refused: blocks, watermark, a hit of the same step."""

    def steps_aside(self, deferred_by: str) -> bool:
        """Return True if those behind it are tried.

        ``deferred_by``: the stop that left it no token; '': it was refused.
        """
        if not deferred_by:
            return self.refused
        return self.deferred or (self.capped and deferred_by in ("encoder", "look-ahead"))


BLOCKED: Rule[Blocked] = Rule(
    "If the first waiting request cannot be scheduled in a step, are later ones tried?",
    {
        "stop": Value(Blocked(), "No: they wait.", "vLLM to 0.32"),
        "skip-capped": Value(
            Blocked(capped=True),
            "Yes, if the encoder's cap or what a look-ahead drafter holds back left it no token.",
            "vLLM 0.33",
        ),
        "skip-deferred": Value(
            Blocked(capped=True, deferred=True),
            "As `skip-capped`; also if the split left it no token: the rest of the budget is less than a block.",
            "vLLM issue 45414",
            Standing.PROPOSAL,
        ),
        "skip": Value(
            Blocked(capped=True, deferred=True, refused=True),
            "As `skip-deferred`; also if it was refused blocks; not behind one whose padding does not fit.",
            "the control",
            Standing.PROPOSAL,
        ),
    },
)
