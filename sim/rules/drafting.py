"""Drafters: what they take of the budget, how many requests run beside them, and how many modules draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stateat.sim.options import INFILL_METHODS, Options
from stateat.sim.rules.answers import count
from stateat.sim.rules.record import Argument, Lack, Rule, Signature, Value, When

DraftSlots = Callable[[Options], int]
"""Options -> tokens that are taken off each step's budget."""


def per_sequence(options: Options) -> int:
    """The slots that a drafter adds to the batch, for every sequence that could run (vLLM to 0.27)."""
    return options.speculative.draft_slots * options.max_num_seqs


def per_scheduled(options: Options) -> int:
    """No token beforehand: the slots are charged for each request that is scheduled (vLLM 0.28)."""
    return 0


DRAFT_SLOTS: Rule[DraftSlots] = Rule(
    "What does a drafter with `speculative.draft_slots` take off a step's token budget?",
    {
        "max-num-seqs": Value(
            per_sequence, "Its slots for each of `max_num_seqs` requests, taken off beforehand.", "vLLM to 0.27"
        ),
        "scheduled": Value(per_scheduled, "Its slots for each request that is scheduled.", "vLLM 0.28"),
    },
    When("with `speculative.draft_slots`", lambda options, requests: options.speculative.draft_slots > 0),
    Signature(
        (Argument("options", "stateat.sim.options.Options", "the engine's options"),),
        "a number of tokens",
        count,
        "tokens that are taken off each step's budget; 0: the drafter's slots for each request that is scheduled",
    ),
)


@dataclass(frozen=True, slots=True)
class Running:
    """Limit of the requests that run at once."""

    fits_draft_pass: bool = False
    """True if no more run than a drafter that fills in has rows for, in a pass with as many tokens as a batch."""

    def most(self, options: Options) -> int:
        """Return the number of requests that run at once at most."""
        s = options.speculative
        if not (self.fits_draft_pass and s.eagle and s.method in INFILL_METHODS):
            return options.max_num_seqs
        return max(min(options.max_num_seqs, options.max_num_batched_tokens // s.lookahead_tokens), 1)


RUNNING: Rule[Running] = Rule(
    "How many requests run at once?",
    {
        "max-num-seqs": Value(Running(), "At most `max_num_seqs`.", "vLLM to 0.32"),
        "fits-draft-pass": Value(
            Running(fits_draft_pass=True),
            "With a drafter that fills in (`dflash`, `dspark`) at most as many as its own pass has rows for: "
            "`max_num_batched_tokens` over K tokens a request, K + 1 for `dflash`; else at most `max_num_seqs`.",
            "vLLM 0.33",
        ),
    },
    When(
        "with a drafter that fills in (`dflash`, `dspark`)",
        lambda options, requests: options.speculative.method in INFILL_METHODS,
    ),
)


def _one_module(options: Options) -> Iterator[Lack]:
    if options.speculative.multi_module:
        yield Lack(("speculative", "multi_module"), "true", "false")


def _mtp_alone(options: Options) -> Iterator[Lack]:
    s = options.speculative
    if s.multi_module and s.method != "mtp":
        why = ": mtp alone has modules"
        yield Lack(("speculative", "multi_module"), "true", f"false with method {s.method}", why)


MODULES: Rule[bool] = Rule(
    "With how many modules does a multi-token predictor draft?",
    {
        "one": Value(False, "With one module; `multi_module` is refused.", "before vLLM 0.29", lacks=_one_module),
        "one-a-draft": Value(
            True,
            "Under `multi_module` the method `mtp` has a module for each draft, which reads K tokens ahead; no other "
            "method has them.",
            "vLLM 0.29",
            lacks=_mtp_alone,
        ),
    },
    When("with `speculative.multi_module`", lambda options, requests: options.speculative.multi_module),
)
"""True if a module for each draft is known."""
