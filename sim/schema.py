"""What all parts of a scenario file share: strict models, names, and the bounds of sizes.

The bounds are far above anything real. They are there so that a slip of the keyboard is a message and not an
allocation of a terabyte.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stateat.sim.inputs import shown

MAX_BLOCK_SIZE = 2**20
"""Tokens in a block of a group."""
MAX_NUM_BLOCKS = 2**24
"""Blocks in the pool."""
MAX_STEP_TOKENS = 2**26
"""Tokens in a step, in a request and in one prompt segment."""
MAX_REQUESTS = 1_000_000
"""Requests of a workload, and entries of a list of budgets."""
MAX_PROMPT_TOKENS = 2**31
"""Prompt tokens of all inline requests together."""
MAX_TIME = 2**53
"""Microseconds, or steps under ``clock: steps``."""
MAX_DRAFTS = 1024
"""Draft tokens of one proposal (K)."""


class Strict(BaseModel):
    """A mapping of the file: no unknown key, no conversion of types, never changed afterwards."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _printable(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise ValueError(f"found {shown(name)}, allowed a name of printable characters")
    return name


Name = Annotated[str, AfterValidator(_printable)]
Time = Annotated[int, Field(ge=0, le=MAX_TIME)]
Length = Annotated[int, Field(ge=1, le=MAX_STEP_TOKENS)]
Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
Drafts = Annotated[int, Field(ge=0, le=MAX_DRAFTS)]

Location = tuple[str | int, ...]
"""Keys and indices that lead to a value of the file."""
Complaint = tuple[Location, str]
"""Where, and what was found and is allowed."""
