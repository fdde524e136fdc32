"""How far rounding on its way takes a state from the truth, beside one missing token (docs/states.md)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from stateat.kernels.work import State, Work
from stateat.oracle.numerics import relative_error
from stateat.oracle.states import Arithmetic, Numeric, family
from stateat.oracle.states.lazy import LazyState
from stateat.sim.tokens import Tokens

LENGTH = 2048
TOKENS = Tokens.generate(((3, LENGTH),), 0, 8)


def stored_at(made: Numeric, cuts: Iterable[int]) -> float:
    """The relative error at the end of a state that was stored, and so rounded, at each of these offsets."""
    value: State | None = None
    state: LazyState = made.zero()
    for start, end in pairwise([0, *cuts, LENGTH]):
        state = made.advance(state, TOKENS, start, end, ())
        ((value,),) = made.launch([Work(TOKENS.ids[start:end], (end - start,), value)])
        value = made.stored(value, state.print[0])
    assert value is not None
    (truth,) = made.values(TOKENS, [LENGTH])
    return relative_error(value, truth)


def one_token_off(made: Numeric) -> float:
    """The relative error of the state that lacks the last token."""
    short, truth = made.values(TOKENS, [LENGTH - 1, LENGTH])
    return relative_error(short, truth)


def main() -> None:
    print(f"| relative error, {LENGTH:,} tokens | every 256 | every 16 | every token, the last 512 | one off |")
    print("|---|---|---|---|---|")
    for name in ("gated-delta", "kda", "ssd", "selective-scan"):
        for dtype in ("bfloat16", "float16"):
            made = family(name, Arithmetic(dtype=dtype))
            assert isinstance(made, Numeric)
            cuts = (range(256, LENGTH, 256), range(16, LENGTH, 16), range(LENGTH - 512, LENGTH))
            cells = [f"{stored_at(made, cut):.1e}" for cut in cuts]
            print(f"| `{name}`, {dtype} | {' | '.join(cells)} | {one_token_off(made):.2f} |")


if __name__ == "__main__":
    main()
