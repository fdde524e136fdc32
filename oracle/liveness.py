"""I14 liveness: a request that could run gets a token, or is rejected with a reason.

Verified:

- I14 liveness: while nothing is left to arrive, 200 steps do not pass without a token

Not verified:

- I14: a request that starves while others get tokens, since no bound on its waiting is promised; requests that are
  refused for good (they count in `rejected`)
"""

from __future__ import annotations

from collections.abc import Container

from stateat.oracle.evidence import Evidence
from stateat.sim.events import Severity


def check_progress(evidence: Evidence, ended: Container[str], steps: int, time_us: int) -> None:
    """I14 liveness: a run ended because nothing moved; say which request waits first, and what it was last denied."""
    stuck = [request for request in evidence.requests if request not in ended]
    if not stuck:
        return
    request = stuck[0]
    others = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
    evidence.now.index, evidence.now.time_us = steps, time_us
    why = evidence.requests[request].waits
    last = f"; last {why}" if why else ""
    message = f"{request}{others}: no token in 200 steps, and nothing left to arrive{last}"
    evidence.shape("I14", Severity.LIVENESS, request, None, None, message)
