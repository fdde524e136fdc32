"""A request as the cache sees it: what it asks for, how far it is, and what its worker holds of it."""

from __future__ import annotations

from typing import Protocol


class CacheRequest(Protocol):
    """A request, as far as the cache reads it; its block tables are the cache's own. Lengths in tokens."""

    @property
    def id(self) -> str: ...
    @property
    def num_prompt(self) -> int: ...
    @property
    def num_tokens(self) -> int:
        """The prompt and the outputs so far."""

    @property
    def computed(self) -> int: ...
    @property
    def in_flight(self) -> int:
        """Tokens of ``computed`` that steps in flight have yet to compute."""

    @property
    def prefill_end(self) -> int:
        """End of the prefill, or of its replay after a preemption."""

    @property
    def junction(self) -> int:
        """Length of its prefix that is known to be shared; 0: none is."""

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Positions at which the client asked for a state."""

    @property
    def external(self) -> int:
        """Leading tokens that a connector can bring."""

    def hashes(self, unit: int, ahead: int = 0, every_item: bool = True) -> list[bytes]:
        """Return the chained hashes of its prefixes, one for each hash unit."""

    # The worker's memory.

    @property
    def pages(self) -> list[list[int]]:
        """Block tables as the worker has them, by group: append-only."""

    def appended(self, group: int, blocks: list[int], table: list[int]) -> None:
        """Hand the worker more of a recurrent group's table: ``blocks``, or all of a new ``table``."""

    def state_slot(self, group: int) -> int:
        """Return the slot in which the worker has the state of the last accepted token; -1: none."""
