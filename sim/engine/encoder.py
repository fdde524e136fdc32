"""Encoded items (images, audio): their budgets, what is kept of them, and where a chunk stops before one.

An item is a span of the prompt whose embeddings an encoder computes as a whole before the first of its tokens is
prefilled. It is kept while a request that refers to it has not passed it, and after that until the room is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateat.sim.engine.items import Item
from stateat.sim.options import Options
from stateat.sim.rules.encoder import Cap, WholeItems

if TYPE_CHECKING:
    from stateat.sim.engine.request import Request


class Encoder:
    """The encoder's budgets, and which items are here; sizes in embeddings, one a token of the span."""

    def __init__(self, options: Options, cap: Cap, whole: WholeItems) -> None:
        self.rule = cap
        self.whole = whole
        self.chunks_items = not options.disable_chunked_mm_input
        self.size = options.encoder_slots
        self.compute = options.encoder_tokens
        self.ahead = options.speculative.prefill_lookahead
        self.kept_for = self.ahead if cap.shifts else 0
        """Tokens behind an item that must be computed before it is let go."""
        self.budget = self.compute
        self._free = self.size
        """Room that nothing takes."""
        self._users: dict[bytes, dict[str, None]] = {}
        """By item: the requests that still need it; without any it may be put out."""
        self._idle: dict[bytes, int] = {}
        """Items that nobody needs, with their lengths, the first to go first."""
        self._planned: list[Item] = []
        """What the chunk that was asked for last would have encoded."""
        self._now: dict[str, int] = {}
        """By request: what was encoded in this step."""

    def new_step(self) -> None:
        """A new compute budget."""
        self.budget = self.compute
        self._now.clear()

    def never(self, request: Request) -> bool:
        """Whether an item of it is larger than all that there is."""
        return any(item.length > min(self.size, self.compute) for item in request.items)

    def cap(self, request: Request, start: int, count: int) -> int:
        """How many of ``count`` tokens from ``start`` on can be prefilled; remembers what to encode for them."""
        self._planned = []
        budget, planned = self.budget, 0
        for item in request.items:
            window = start + count + self.ahead
            if item.end <= start or item.start >= window:
                continue
            if self.whole.if_here and self._cuts(item, start, count):
                return max(item.start - start - self.ahead, 0)
            if any(p.key == item.key for p in self._planned) or self._here(request, item):
                continue
            if self._cuts(item, start, count):
                return max(item.start - start - self.ahead, 0)
            if item.length > budget or not self._make_room(planned + item.length):
                shift = self.ahead if self.rule.shifts else 0
                return min(count, max(item.start - start - shift, 0))
            if item.start >= start + count and not self.rule.reads_ahead:
                continue
            self._planned.append(item)
            planned += item.length
            budget -= item.length
        return count

    def _cuts(self, item: Item, start: int, count: int) -> bool:
        """Whether a chunk that must not would end inside an item, or before one that a drafter reads."""
        before = start < item.start or (self.whole.at_its_start and start == item.start)
        return not self.chunks_items and before and start + count < item.end

    def _here(self, request: Request, item: Item) -> bool:
        """Whether it is encoded already; then the request refers to it."""
        users = self._users.get(item.key)
        if users is None:
            return False
        self._idle.pop(item.key, None)
        users[request.id] = None
        return True

    def _make_room(self, wanted: int) -> bool:
        """Put out what nobody needs, the oldest first, if that makes room for this much."""
        if wanted > self._free + sum(self._idle.values()):
            return False
        while wanted > self._free:
            key = next(iter(self._idle))
            self._free += self._idle.pop(key)
            del self._users[key]
        return True

    def commit(self, request: Request) -> None:
        """The chunk that was asked for last runs: encode what it needs."""
        for item in self._planned:
            self._users[item.key] = {request.id: None}
            self._free -= item.length
            self.budget -= item.length
            self._now[request.id] = self._now.get(request.id, 0) + item.length
        self._planned = []

    def passed(self, request: Request, computed: int) -> None:
        """Let go of items that lie behind what is computed."""
        for item in request.items:
            if item.end + self.kept_for <= computed:
                self._release(request, item)

    def free(self, request: Request) -> None:
        """It is gone, preempted or not admitted: what it encoded in this step is given back to the budget."""
        self._planned = []
        self.budget += self._now.pop(request.id, 0)
        for item in request.items:
            self._release(request, item)

    def holds(self, request: Request) -> bool:
        """Whether it still needs an item."""
        return any(request.id in self._users.get(item.key, ()) for item in request.items)

    def _release(self, request: Request, item: Item) -> None:
        users = self._users.get(item.key)
        if users is not None and users.pop(request.id, 0) is None and not users:
            self._idle[item.key] = item.length
