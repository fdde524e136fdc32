"""Chunks, whatever they read and write: I2 chunk shape, I6 resume point, I17 honesty.

Verified:

- I2 chunk shape: a prefill chunk that starts inside a block ends at or before its end; one that ends off the grid
  before `prefill_end` has a cause
- I6 resume point: a request restored at n processes token n next, none twice, none skipped
- I17 honesty: the hit tokens reported are the tokens skipped

Not verified:

- I2: runs without prefix caching, where nothing is published; groups in `all` mode, which leave a state at every
  boundary; decode rows
- I6: which tokens a row consumes, of which events tell positions only
- I17: hits of a request that is never given a chunk; what an engine reports elsewhere (its metrics)
"""

from __future__ import annotations

from stateat.oracle.evidence import Evidence
from stateat.oracle.records import Seen
from stateat.sim.events import Severity

CAUSES = ("partial-tail", "junction", "checkpoint", "look-ahead", "encoder", "snapshot-point")
"""Stops off the grid that a chunk may have before the prefill's end (I2)."""


def check_start(evidence: Evidence, request: str, seen: Seen, start: int, end: int, stop: str) -> None:
    """I6 resume point, I17 honesty: no token twice, none skipped, and as many skipped as were reported."""
    told = seen.hit + seen.external
    if seen.fresh and start != told:
        message = f"{request} was told {told} hit tokens, skips {start}"
        evidence.shape("I17", Severity.HONESTY, request, told, start, message)
        if not start and not seen.brought:
            # It starts from nothing, whatever was said.
            return
    if start != seen.next:
        word = "twice" if start < seen.next else "never"
        span = f"[{min(start, seen.next)}, {max(start, seen.next)})"
        message = f"{request} continues at {start} instead of {seen.next}: tokens {span} run {word}"
        evidence.shape("I6", Severity.POISON, request, seen.next, start, message)


def check_shape(evidence: Evidence, request: str, seen: Seen, start: int, end: int, stop: str) -> None:
    """I2 chunk shape: a prefill chunk from inside a block ends within it; an end off the grid has a cause."""
    if not evidence.lookups:
        # Nothing is published: a chunk may end where it likes.
        return
    for index in evidence.recurrent:
        group = evidence.groups[index]
        if not group.aligned:
            # It leaves a state at every boundary that it passes, wherever it starts and ends.
            continue
        block, name = group.block_size, group.name
        boundary = (start // block + 1) * block
        if start % block and end > boundary:
            evidence.counts.mid_block += 1
            message = f"{request} [{start}, {end}) starts inside a block of {name} and runs past {boundary}"
            evidence.shape("I2", Severity.SHAPE, request, boundary, end, message, name, start // block)
        elif end < seen.prefill_end and end % block:
            tail = seen.num_prompt // evidence.hash_unit * evidence.hash_unit
            if end == tail or stop in CAUSES or block > evidence.cap:
                continue
            message = f"{request} [{start}, {end}) ends off the grid of {name} ({block}) before {seen.prefill_end}"
            evidence.shape("I2", Severity.SHAPE, request, None, end, message, name, end // block)
