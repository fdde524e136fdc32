"""A policy: an engine's options with the rules in force, resolved once, and what follows from both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from stateat.sim.errors import PolicyError
from stateat.sim.options import Options
from stateat.sim.releases.async_default import resolved
from stateat.sim.releases.presets import table
from stateat.sim.releases.rules import Rules, resolve
from stateat.sim.rules.restore_column import divisor


@dataclass(frozen=True)
class Policy:
    """Options, and the rules that say how an engine does what they ask for."""

    options: Options
    values: dict[str, str]
    """Names of the rules' values."""
    rules: Rules

    @classmethod
    def of(cls, options: Options) -> Policy:
        """Resolve the preset's table and what the options replace in it.

        Raises InputError for a value that is unknown or cannot be loaded.
        """
        values = table(options.preset, options.rules)
        return cls(resolved(options, values), values, resolve(values))

    @cached_property
    def grid(self) -> int:
        """Tokens of the blocks to which the split aligns. Raises PolicyError for less than one."""
        grid = self.rules.grid(self.options)
        if grid < 1:
            raise PolicyError(f"rule grid={self.values['grid']} gave {grid}, allowed is a block size of 1 or more")
        return grid

    @cached_property
    def step_tokens(self) -> int:
        """Tokens that a step may schedule: the budget less what a drafter takes off it."""
        return self.options.max_num_batched_tokens - self.rules.draft_slots(self.options)

    @property
    def longest_chunk(self) -> int:
        """Tokens that a prefill chunk may have at most."""
        threshold = self.options.long_prefill_token_threshold
        return min(self.step_tokens, threshold) if threshold > 0 else self.step_tokens

    def in_force(self) -> dict[str, Any]:
        """Return what the ``run`` event says of the options: as configured, and what follows from them."""
        options = self.options
        plain = asdict(options)
        del plain["groups"]
        plain["speculative"]["accepted_drafts"] = options.speculative.cycle
        return plain | {
            "rules": self.values,
            "hash_unit": options.hash_unit,
            "scheduler_block_size": options.scheduler_block_size,
            "grid": self.grid,
            "seed_block": divisor(self.rules.restore_column, options, self.grid),
            "longest_chunk": self.longest_chunk,
        }
