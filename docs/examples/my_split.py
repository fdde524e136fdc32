"""A split of one's own: README.md and docs/rules.md show what stateat says of it."""


class RealignOnly:
    """Takes what it is offered, but never runs past the end of a block that it starts inside."""

    def __call__(self, chunk):
        end = chunk.start + chunk.offered
        if chunk.start % chunk.block:
            end = min(end, (chunk.start // chunk.block + 1) * chunk.block)
        return end - chunk.start


class TooMuch:
    """Breaks the contract: more tokens than were offered."""

    def __call__(self, chunk):
        return chunk.offered + 1
