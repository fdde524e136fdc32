"""States in numbers: what all families but ``digest`` share.

The fingerprint of the tokens absorbed travels with every state and decides whether it is the right one. The numbers
say how far apart two states are: a bfloat16 state that was rounded at every decode token can be as far from the truth
as one wrong token is, so that no tolerance could decide (``docs/states.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateat.kernels.backends import INSTALL, Unavailable, choose, states_at
from stateat.kernels.families import Family, shape
from stateat.kernels.rounding import round_state
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work
from stateat.oracle.states.digest import DigestFamily
from stateat.oracle.states.lazy import LazyState, Recipe
from stateat.sim.tokens import EMPTY, MASK, Tokens

_DIGEST = DigestFamily()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Arithmetic: how a family is computed and stored."""

    preset: str = "small"
    """A model's widths (:data:`stateat.kernels.families.FAMILIES`), ``*N`` for N layers."""
    dtype: str = "float32"
    """Dtype in which a state is stored between chunks: ``float32``, ``bfloat16`` or ``float16``; ``ring`` has none."""
    form: str = "sequential"
    """``sequential``: float32 bits do not depend on the split; ``chunked``, as prefill kernels: they do."""
    rounding: str = "nearest"
    """``nearest``, or ``stochastic`` from the scenario's seed."""
    backend: str = "auto"
    device: str = "auto"
    seed: int = 0


class Numeric:
    """State family whose states are arrays."""

    def __init__(self, family: Family, how: Arithmetic) -> None:
        self.family = family
        self.how = how
        self.shape: Shape = shape(self.name, how.preset)
        self.backend, self.device = choose(how.backend, how.device, self.name)
        if how.form == "chunked" and self.backend == "numpy":
            raise Unavailable(
                f"kernel chunked of {self.name} needs torch or Triton, found numpy (backend {how.backend}); "
                f"torch comes with {INSTALL}"
            )

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.family.name

    # What the auditor asks.

    def zero(self) -> LazyState:
        """No tokens absorbed."""
        return LazyState(EMPTY, None)

    def advance(self, state: LazyState, tokens: Tokens, start: int, end: int, drafts: Sequence[int]) -> LazyState:
        """State after tokens [start, end) of the stream, and then ``drafts``."""
        print = _DIGEST.advance(state.print, tokens, start, end, drafts)
        if end <= start and not drafts:
            return LazyState(print, state.recipe)
        return LazyState(print, Recipe(state.recipe, tokens, start, end, tuple(drafts), print[0]))

    def state_at(self, tokens: Tokens, offset: int) -> LazyState:
        """The state of the first ``offset`` tokens, absorbed in one go."""
        print = tokens.fingerprint(offset)
        return LazyState(print, Recipe(None, tokens, 0, offset, (), print[0]) if offset else None)

    def equal(self, one: LazyState, other: LazyState) -> bool:
        """True if both absorbed the same tokens."""
        return one.print == other.print

    def find(self, state: LazyState, tokens: Tokens) -> int | None:
        """The offset whose prefix this state absorbed."""
        return tokens.find(state.print)

    def values(self, tokens: Tokens, offsets: Sequence[int]) -> list[State]:
        """The true states at increasing ``offsets``, as arrays and as they are stored."""
        (states,) = self.launch([Work(tokens.ids[: offsets[-1]], tuple(offsets), None)])
        marks = [tokens.fingerprint(n)[0] for n in offsets]
        return [self.stored(state, mark) for state, mark in zip(states, marks, strict=True)]

    # What the ledger asks.

    @property
    def state_bytes(self) -> int:
        """Bytes of one request's state, as it is computed."""
        return self.shape.bytes(self.family.dtype)

    @property
    def merges(self) -> bool:
        """True if a run of writes has the bits of one write of all their tokens."""
        return self.family.exact or (self.how.dtype == "float32" and self.how.form == "sequential")

    def launch(self, works: Sequence[Work]) -> list[list[State]]:
        """The states of many requests at once, not yet rounded."""
        how = {"backend": self.backend, "device": self.device, "form": self.how.form}
        return states_at(self.shape, works, chunk=self.family.chunk_tokens or 1, **how) if works else []

    def stored(self, state: State, mark: int) -> State:
        """A state as a slot keeps it."""
        if self.family.exact or self.how.dtype == "float32":
            return state
        seed = (self.how.seed ^ mark ^ mark >> 32) & (MASK >> 32) if self.how.rounding == "stochastic" else None
        return round_state(state, self.how.dtype, seed)
