"""Scheduling of a request: when it counts as started, when its chunks are limited, how it is padded."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Value, When


@dataclass(frozen=True, slots=True)
class Started:
    """Start of a request, from which on it is charged no more for its speculative blocks."""

    when_scheduled: bool
    """True: once it is scheduled; False: once it was given a block of the group."""


STARTED: Rule[Started] = Rule(
    "When does a request count as started, so that it is no longer charged for its K speculative blocks?",
    {
        "when-given-a-block": Value(
            Started(when_scheduled=False),
            "Once it was given a block of the group; blocks of a hit do not count.",
            "vLLM to 0.27",
        ),
        "when-scheduled": Value(Started(when_scheduled=True), "Once it is scheduled.", "vLLM 0.28"),
    },
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Steps in which ``long_prefill_token_threshold`` applies."""

    beside_others_only: bool
    """True: only while another request runs or waits; False: always."""


THRESHOLD: Rule[Threshold] = Rule(
    "When does `long_prefill_token_threshold` apply?",
    {
        "always": Value(Threshold(beside_others_only=False), "In every step.", "vLLM to 0.30"),
        "beside-others": Value(
            Threshold(beside_others_only=True), "Only while another request runs or waits.", "vLLM 0.31"
        ),
    },
    When("with `long_prefill_token_threshold`", lambda options, requests: options.long_prefill_token_threshold > 0),
)


@dataclass(frozen=True, slots=True)
class Padding:
    """Padding of a waiting request with one token left, with placeholders, to a decode row."""

    drops_clipped: bool
    """True if placeholders that the split clips are dropped (vLLM 0.29)."""
    waits: bool = True
    """True if such a request waits where max_model_len has no room for its placeholders; False if it goes on unpadded
    (vLLM 0.29), also where there is no room for the token that is sampled behind them."""
    alone: bool = False
    """True if a request that continues is padded even if nothing runs beside it (vLLM 0.30)."""


PADDING: Rule[Padding] = Rule(
    "When is a waiting request with one token left padded to a decode row, and what becomes of placeholders that the "
    "split clips?",
    {
        "kept": Value(
            Padding(drops_clipped=False),
            "Such a request is padded beside decodes; clipped placeholders stay, and verification judges them.",
            "vLLM to 0.28",
        ),
        "dropped": Value(
            Padding(drops_clipped=True, waits=False),
            "Such a request is padded beside decodes, where `max_model_len` has room for the placeholders and for a "
            "token behind them; clipped placeholders are dropped.",
            "vLLM 0.29",
        ),
        "dropped-and-alone": Value(
            Padding(drops_clipped=True, waits=False, alone=True),
            "As `dropped`; a request that continues is padded without decodes beside it too, unless the step has a "
            "prefill.",
            "vLLM 0.30",
        ),
    },
)
