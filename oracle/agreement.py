"""I5 agreement: a hit is published in every recurrent group, and covered by every attention group.

Verified:

- I5 agreement: a joint hit is published in every recurrent group and covered by every attention group

Not verified:

- I5: loads from a tier or a connector, which no claim stands for; what attention's blocks hold, of which events tell
  only how many tokens were found; slots published before anybody listened
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.oracle.claims import Claims
from stateat.oracle.evidence import Evidence
from stateat.sim.events import Severity


def check_agreement(
    evidence: Evidence,
    claims: Claims,
    request: str,
    group: int,
    slot: int,
    column: int,
    offset: int,
    group_hits: Sequence[int],
) -> None:
    """I5 agreement: one recurrent group's part in a hit; attention is asked once a hit, with the first of them."""
    groups = evidence.groups
    truth = evidence.family.state_at(evidence.requests[request].tokens, offset)
    found = list(claims.found(slot))
    if not found and not evidence.heard(slot):
        # It may have been published before anybody listened.
        evidence.counts.not_judged.add((request, group))
    elif all(c.group != group or c.truth != truth for c in found):
        name = groups[group].name
        message = f"{request} was given a hit of {offset} tokens, and {name} has no state@{offset} (slot {slot})"
        evidence.shape("I5", Severity.POISON, request, offset, group_hits[group], message, name, column)
    if group != evidence.recurrent[0]:
        return
    for other, hit in zip(groups, group_hits, strict=False):
        if hit < offset and not other.recurrent and other.prefix_cacheable:
            message = f"{request} was given a hit of {offset} tokens, and {other.name} has {hit} of them"
            evidence.shape("I5", Severity.POISON, request, offset, hit, message, other.name)
