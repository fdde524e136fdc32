"""The encoder of items (images, audio): its budgets, what it keeps, and where a chunk stops before an item.

An item is encoded as a whole before the first of its tokens is prefilled. It is kept while a request that refers to it
has not passed it, and after that until the room is needed.
"""

from __future__ import annotations

from stateat.sim.engine.items import Item
from stateat.sim.engine.request import Request
from stateat.sim.releases.policy import Policy


class Encoder:
    """Budgets, and the items that are kept; sizes in embeddings, one a token of the span."""

    def __init__(self, policy: Policy) -> None:
        options = policy.options
        self.rule = policy.rules.encoder_cap
        self.whole = policy.rules.whole_items
        self.chunks_items = not options.disable_chunked_mm_input
        self.size = options.encoder_slots
        self.compute = options.encoder_tokens
        self.ahead = options.speculative.prefill_lookahead
        self.kept_for = self.ahead if self.rule.shifts else 0
        """Tokens behind an item that must be computed before it is freed."""
        self.budget = self.compute
        self._free = self.size
        """Room that no item takes."""
        self._users: dict[bytes, dict[str, None]] = {}
        """Requests that still need an item, by its key; without any it may be evicted."""
        self._idle: dict[bytes, int] = {}
        """Items that nobody needs, with their lengths; the first is evicted first."""
        self._planned: list[Item] = []
        """Items that the chunk which was asked for last would have encoded."""
        self._now: dict[str, int] = {}
        """Embeddings encoded in this step, by request."""

    def new_step(self) -> None:
        """Start a step with a new compute budget."""
        self.budget = self.compute
        self._now.clear()

    def never(self, request: Request) -> bool:
        """Return True if an item of the request is larger than all that there is."""
        return any(item.length > min(self.size, self.compute) for item in request.items)

    def cap(self, request: Request, start: int, count: int) -> int:
        """Return how many of ``count`` tokens from ``start`` on can be prefilled; remember what to encode for them."""
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
        """Return True if a chunk that must not would end inside an item, or before one that a drafter reads."""
        before = start < item.start or (self.whole.at_its_start and start == item.start)
        return not self.chunks_items and before and start + count < item.end

    def _here(self, request: Request, item: Item) -> bool:
        """Return True if an item is encoded already; the request then refers to it."""
        users = self._users.get(item.key)
        if users is None:
            return False
        self._idle.pop(item.key, None)
        users[request.id] = None
        return True

    def _make_room(self, wanted: int) -> bool:
        """Evict items that nobody needs, the oldest first, if that makes room for this much."""
        if wanted > self._free + sum(self._idle.values()):
            return False
        while wanted > self._free:
            key = next(iter(self._idle))
            self._free += self._idle.pop(key)
            del self._users[key]
        return True

    def commit(self, request: Request) -> None:
        """Encode what the chunk that was asked for last needs: it runs."""
        for item in self._planned:
            self._users[item.key] = {request.id: None}
            self._free -= item.length
            self.budget -= item.length
            self._now[request.id] = self._now.get(request.id, 0) + item.length
        self._planned = []

    def passed(self, request: Request, computed: int) -> None:
        """Free a request's items that lie behind what is computed."""
        for item in request.items:
            if item.end + self.kept_for <= computed:
                self._release(request, item)

    def free(self, request: Request) -> None:
        """Free all items of a request that is gone, preempted or not admitted; give what it encoded in this step back
        to the budget."""
        self.budget += self._now.pop(request.id, 0)
        for item in request.items:
            self._release(request, item)

    def holds(self, request: Request) -> bool:
        """Return True if a request still needs an item."""
        return any(request.id in self._users.get(item.key, ()) for item in request.items)

    def _release(self, request: Request, item: Item) -> None:
        users = self._users.get(item.key)
        if users is not None and users.pop(request.id, 0) is None and not users:
            self._idle[item.key] = item.length
