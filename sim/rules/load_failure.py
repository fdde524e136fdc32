"""Failed loads: what a request does whose states do not arrive from a tier or a connector."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value, When


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Conduct of a request whose load failed."""

    ignored: bool = False
    """True if it goes on as if its states had arrived, and its blocks are published (SGLang issue 30986)."""
    retries: bool = False
    """True if it takes the longest shorter prefix of which the tier has all groups, or computes it all (vLLM issue
    50388)."""
    reports_first: bool = False
    """True if the tokens that it skips are counted when the load is asked for, and not again when it has failed."""


LOAD_FAILURE: Rule[LoadFailure] = Rule(
    "How does a request go on if the states that it was promised do not arrive (`load_error`)?",
    {
        "recompute": Value(
            LoadFailure(), "It goes on without them: the pool's hit alone counts.", "vLLM to 0.33, simplified"
        ),
        "shorter-prefix": Value(
            LoadFailure(retries=True),
            "It takes the longest shorter prefix of which the tier has all groups, if a connector was to bring them "
            "too.",
            "vLLM issues 50388, 50687",
            Standing.PROPOSAL,
        ),
        "ignored": Value(
            LoadFailure(ignored=True),
            "It goes on as if they had arrived, and its blocks are published.",
            "SGLang issue 30986",
            Standing.FAULT,
        ),
        "reported-first": Value(
            LoadFailure(reports_first=True),
            "As `recompute`, but what is reported of the request is what was promised before the load failed.",
            "vLLM to 0.33, with one group only: read in 0.26 and 0.33",
        ),
    },
    When("with a request that has `load_error`", lambda options, requests: any(r.load_error for r in requests)),
)
