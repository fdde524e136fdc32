"""Encoded items of a prompt (images, audio): spans whose embeddings an encoder computes as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.tokens import Spans, Tokens, item_key


@dataclass(frozen=True, slots=True)
class Item:
    """A span of a prompt; equal text and length is the same item, whoever sends it, and wherever in a prompt."""

    start: int
    length: int
    key: bytes

    @property
    def end(self) -> int:
        return self.start + self.length


def items_of(spans: Spans, tokens: Tokens) -> tuple[Item, ...]:
    """Return the items of a prompt, in order."""
    return tuple(Item(start, length, item_key(tokens.ids[start : start + length])) for start, length in spans)
