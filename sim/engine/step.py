"""The outcome of one step, as a clock hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Step:
    """Tokens and ends of one step."""

    prefill_tokens: int = 0
    decode_tokens: int = 0
    filled: bool = False
    """The step only put a batch into a queue that has room for more: nobody waits for an outcome."""
    finished: list[str] = field(default_factory=list)
    """Requests that ended, by themselves or by an abort."""

    @property
    def tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens
