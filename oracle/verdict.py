"""The words of a verdict: what a slot really holds, where it is not what it should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stateat.oracle.slots import Content
from stateat.oracle.states import StateFamily
from stateat.sim.events import Holding
from stateat.sim.tokens import Tokens

TokensOf = Callable[[str], Tokens | None]
"""The tokens of a request; None where nobody has heard of it."""


class Verdict(NamedTuple):
    """Verdict: what a slot holds."""

    held: int | None
    """The offset, or how many tokens went into it."""
    name: str
    words: str


def judge(family: StateFamily, content: Content | None, request: str, tokens_of: TokensOf) -> Verdict:
    """Judge what a slot holds that should hold a state of this request."""
    if content is None:
        return Verdict(None, Holding.NEVER_WRITTEN, "was never written")
    if content.state is None:
        return Verdict(None, Holding.UNKNOWN, "holds a state made from a slot that was never written")
    held = content.absorbed
    if family.equal(content.state, family.zero()):
        return Verdict(0, Holding.ZERO, "holds a zero state")
    offset = _offset(family, content.state, tokens_of(request))
    if offset is not None:
        return Verdict(offset, Holding.WRONG_OFFSET, f"holds state@{offset}")
    if content.ancestor is not None:
        return Verdict(held, Holding.TAINTED, f"holds {held} tokens counted from a wrong state")
    offset = _offset(family, content.state, tokens_of(content.origin))
    if offset is not None:
        return Verdict(offset, Holding.FOREIGN, f"holds state@{offset} of request {content.origin}")
    return Verdict(held, Holding.UNKNOWN, f"holds {held} tokens of no known prefix")


def _offset(family: StateFamily, state: Any, tokens: Tokens | None) -> int | None:
    """The offset at which this is the stream's state."""
    return None if tokens is None else family.find(state, tokens)
