"""Changes of the prefix cache that a scenario asks for by name, made at the beginning of a step."""

from __future__ import annotations

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.request import Request
from stateat.sim.errors import ChangeError
from stateat.sim.options import Options
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


class NamedStates:
    """The changes that wait for the next step."""

    def __init__(self, cache: Cache, options: Options, seed: int) -> None:
        self.cache = cache
        self.options = options
        self.seed = seed
        self._asked: list[tuple[StateChange, Arrival]] = []

    @property
    def asked(self) -> bool:
        """True if a change is still to be made."""
        return bool(self._asked)

    def ask(self, change: StateChange, arrival: Arrival) -> None:
        """Make a change in the next step; ``arrival``: the request that it names."""
        self._asked.append((change, arrival))

    def change(self) -> None:
        """Make the changes, in order. Raises ChangeError for one that cannot be made."""
        for change, arrival in self._asked:
            # Made anew: the one that came may have ended.
            request = Request(arrival, self.options, self.seed)
            make = self.cache.place if change.places else self.cache.evict
            wrong = make(request, change.group, change.offset)
            if wrong:
                raise ChangeError(f"{change.where}: {wrong}")
        self._asked.clear()
