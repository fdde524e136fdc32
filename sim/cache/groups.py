"""Managers of block tables, one for each group: of attention layers, or of recurrent ones.

A recurrent table (align mode) has a state only in some of its columns: those where a chunk ended on a boundary
(until they are freed), the running column, and K columns behind it for the states after each draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stateat.sim.cache.ledger import FullBlock, Ledger
from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.skipped_states import KeepsServed, SkippedStates
from stateat.sim.events import NULL, Withdrawal
from stateat.sim.rules.state_blocks import Need, the_most
from stateat.sim.rules.tail_copy import TailCopy


@dataclass(slots=True)
class Table:
    """A request's blocks in one group."""

    blocks: list[int] = field(default_factory=list)
    cached: int = 0
    """Leading columns that were offered to be published."""
    started: bool = False
    """Recurrent: blocks were allocated (not only hit) since admission."""
    last_state: int = -1
    """Recurrent: the column of the state before the running one, until it is freed."""
    partial: tuple[int, int] | None = None
    """A shared block, with its column, that must be copied before the request writes on."""
    retired: int = 0
    """Recurrent: columns before this one were freed."""
    checkpoint: tuple[int, int] | None = None
    """Recurrent: the offset that this chunk exports on its way, and the column for it."""
    unpublished: int = 0
    """Recurrent: the tail that is computed and not published yet (rule ``tail_copy``)."""


@dataclass(slots=True)
class CopyOnWrite:
    """Copy of a whole page, to make before anything else in this step."""

    request: str
    group: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Place:
    """A group's manager's place in the cache."""

    group: int
    block_size: int
    """Tokens in a block."""
    hash_unit: int
    """Tokens that a hash covers."""
    pool: BlockPool
    ledger: Ledger
    drops: bool = False
    """A look-ahead drafter makes the group give up the last block (or hash unit) of a hit."""


class GroupCache:
    """The manager of one group's block tables, whose full blocks are published."""

    recurrent = False
    """The layers are recurrent: their slots, not only their blocks, are told to the observer."""

    def __init__(self, place: Place) -> None:
        self.group = place.group
        self.block_size = place.block_size
        self.pool = place.pool
        self.ledger = place.ledger
        self.drops = place.drops
        self.unit = place.hash_unit
        self.scale = place.block_size // place.hash_unit
        """Hash units in a block."""
        self.copies: list[CopyOnWrite] = []
        self.follower_copies = True
        """A request that hits a tail makes a copy of it."""
        self.published_now: set[bytes] = set()
        """Primary hashes that this step published, of states: a hit on one of them waits for the next."""

    def skipped(self, computed: int) -> int:
        """Return how many leading columns a request with so many tokens computed does not need."""
        return 0

    def adopt(self, table: Table, hit: list[int], hit_tokens: int, total: int) -> None:
        """Take over the blocks of a hit; a tail that ends inside a block is shared until it is copied.

        ``total``: tokens of the hit and of what a connector brings behind it.
        """
        skipped = self.skipped(total)
        kept = hit[skipped:]
        self.pool.touch(kept)
        table.blocks.extend([NULL] * skipped + kept)
        table.cached = len(table.blocks)
        if kept and self.shares_tail(hit, hit_tokens):
            column = hit_tokens // self.block_size
            table.partial = (column, kept[-1]) if self.follower_copies else None
            table.cached = column

    def shares_tail(self, hit: list[int], hit_tokens: int) -> bool:
        """Return True if a hit ends inside its last block; a group may have less of it than was agreed on (rule
        ``lookup``)."""
        return hit_tokens % self.block_size > 0 and hit_tokens // self.block_size < len(hit)

    def redirect(self, request: str, table: Table, copy: int) -> None:
        """Put a private copy in the place of a shared tail; both stay pinned until the copy has run."""
        assert table.partial is not None
        column, source = table.partial
        table.blocks[column] = copy
        self.pool.touch((copy,))
        self.copies.append(CopyOnWrite(request, self.group, source, copy))
        table.partial = None

    def drop(self, table: Table, columns: list[int]) -> list[int]:
        """Free the blocks of these columns; return them."""
        blocks = table.blocks
        freed = [blocks[c] for c in columns]
        for column in columns:
            blocks[column] = NULL
        self.pool.free(freed)
        return freed

    def unserved(self, table: Table, columns: list[int]) -> list[int]:
        """Return those of these columns whose blocks are not published."""
        return [column for column in columns if self.pool.primary[table.blocks[column]] is None]

    def evictable(self, hit: list[int]) -> int:
        """Count the blocks of a hit that are in the free queue, and would leave it."""
        refs = self.pool.refs
        return sum(1 for b in hit if b != NULL and refs[b] == 0)

    def publish(
        self, request: str, table: Table, hashes: list[bytes], tokens: int, kept: Callable[[int], bool] | None = None
    ) -> list[bytes]:
        """Publish the full blocks of the first ``tokens`` tokens; return the new primary hashes.

        ``kept``: which ends (tokens) retention lets be published; all of them by default.
        """
        size, scale, primary = self.block_size, self.scale, self.pool.primary
        full = tokens // size
        published = []
        for column in range(table.cached, full):
            block, end = table.blocks[column], (column + 1) * size
            if block == NULL or (kept is not None and not kept(end)):
                continue
            key = hashes[(column + 1) * scale - 1]
            if primary[block] is not None:
                self.pool.remove(block, Withdrawal.REKEY)
            self._insert(request, block, column, end, key, hashes)
            published.append(key)
        table.cached = max(table.cached, full)
        if published and self.recurrent:
            self.published_now.update(published)
        return published

    def publish_tail(self, request: str, table: Table, hashes: list[bytes], column: int, tokens: int) -> bytes | None:
        """Publish a block under a boundary inside it; return the hash, or None for a column without a block."""
        block = table.blocks[column] if column < len(table.blocks) else NULL
        if block == NULL:
            return None
        key = hashes[tokens // self.unit - 1]
        pool = self.pool
        known = pool.primary[block] == key or pool.holds(self.group, key, block)
        if not known and pool.primary[block] is not None and pool.primary_tokens[block] < tokens:
            pool.remove(block, Withdrawal.REKEY)
        self._insert(request, block, column, tokens, key, hashes, copied=not self.recurrent)
        return key

    def _insert(
        self,
        request: str,
        block: int,
        column: int,
        tokens: int,
        key: bytes,
        hashes: Sequence[bytes],
        copied: bool = True,
    ) -> None:
        """Publish a block; ``hashes``: those of the prefixes up to its own, at least."""
        if not self.pool.insert(self.group, key, block, tokens):
            return
        if self.pool.chains is not None and self.recurrent:
            self.pool.chains.insert(self.group, key, block, hashes[: tokens // self.unit - 1])
        ledger = self.ledger
        if ledger.traces:
            ledger.journal.append((request, (self.group, key, block)))
            if ledger.hides:
                self.pool.hide(key, block)
        if self.recurrent:
            ledger.claim(self.group, block, request, column, tokens, key)
        if ledger.stores and (tokens % self.block_size == 0 or ledger.tails[not copied]):
            ledger.full.append(FullBlock(request, self.group, key, block, tokens))


class AttentionCache(GroupCache):
    """Full attention: one block for every ``block_size`` tokens, all kept until the request ends."""

    def needed(
        self, table: Table, hit: list[int], hit_tokens: int, tokens: int, checkpoint: bool = False, computed: int = 0
    ) -> int:
        """Count the blocks to take for ``tokens`` tokens, ``computed`` of them computed, and those of a hit that leave
        the free queue."""
        skipped = self.skipped(computed)
        new = max(-(-tokens // self.block_size) - max(skipped, len(hit) + len(table.blocks)), 0)
        return new + self.evictable(hit[skipped:]) + self.shares_tail(hit, hit_tokens)

    def load(self, table: Table, total: int) -> list[int]:
        """Allocate for tokens that a connector computed; return the blocks."""
        return self._extend(table, total)

    def extend(self, request: str, table: Table, tokens: int) -> list[int]:
        """Allocate up to ``tokens`` tokens; return the new blocks."""
        new: list[int] = []
        if table.partial is not None:
            new = self.pool.take(1)
            self.redirect(request, table, new[0])
        return new + self._extend(table, tokens)

    def _extend(self, table: Table, tokens: int) -> list[int]:
        missing = -(-tokens // self.block_size) - len(table.blocks)
        if missing <= 0:
            return []
        new = self.pool.take(missing)
        table.blocks.extend(new)
        return new

    def publish_prompt_tail(self, request: str, table: Table, hashes: list[bytes], boundary: int, tokens: int) -> None:
        """Publish the prompt's last hash boundary, once computed, if it lies inside a block."""
        if 0 < boundary <= tokens and boundary % self.block_size:
            self.publish_tail(request, table, hashes, boundary // self.block_size, boundary)


class StateCache(GroupCache):
    """The manager of a recurrent group, whatever its cache mode."""

    recurrent = True

    def __init__(self, place: Place, *, spare_blocks: int, retire: SkippedStates) -> None:
        super().__init__(place)
        self.spare = spare_blocks
        """Blocks behind the running one, for the states after each draft."""
        self.retire_rule = retire
        self.keeps_served = isinstance(retire, KeepsServed)

    def skipped(self, computed: int) -> int:
        """Return how many columns lie before the one that holds state@computed."""
        return max(computed - 1, 0) // self.block_size


class AllModeCache(StateCache, AttentionCache):
    """Recurrent layers in ``all`` mode: every boundary has a column, as in attention, and K columns follow."""

    def needed(
        self, table: Table, hit: list[int], hit_tokens: int, tokens: int, checkpoint: bool = False, computed: int = 0
    ) -> int:
        """Count the blocks as for attention, and K more."""
        return super().needed(table, hit, hit_tokens, tokens + self.spare * self.block_size, checkpoint, computed)

    def extend(self, request: str, table: Table, tokens: int) -> list[int]:
        """Allocate up to ``tokens`` tokens and K blocks more; return what is appended to the worker's table."""
        return super().extend(request, table, tokens + self.spare * self.block_size)

    def retire(self, table: Table, computed: int) -> list[int]:
        """Free the states before the one that a request at ``computed`` tokens reads; return them."""
        columns = self.retire_rule(table.blocks, (computed - 1) // self.block_size, 0) if computed > 1 else []
        return self.drop(table, self.unserved(table, columns) if self.keeps_served else columns)


class RecurrentCache(StateCache):
    """Recurrent layers in ``align`` mode."""

    def __init__(
        self,
        place: Place,
        *,
        spare_blocks: int,
        retire: SkippedStates,
        eager: bool = False,
        claims_scratch: bool = False,
        parks_scratch: bool = False,
        need: Callable[[Need], int] = the_most,
        tail_copy: TailCopy | None = None,
    ) -> None:
        super().__init__(place, spare_blocks=spare_blocks, retire=retire)
        self.tail_copy = TailCopy() if tail_copy is None else tail_copy
        self.follower_copies = self.tail_copy.follower_copies
        self.eager = eager
        """A request counts as started once it is scheduled; else once it was given a block."""
        self.claims_scratch = claims_scratch
        """A checkpoint may take the column of a speculative block."""
        self.parks_scratch = parks_scratch
        """Speculative blocks stay in their columns in a step that exports a checkpoint."""
        self.need = need
        """Blocks that a chunk asks for."""

    def room_for_checkpoint(self, table: Table, end: int) -> int:
        """Return the column into which a chunk that ends at ``end`` tokens could export a state; -1: none."""
        column, blocks = -(-end // self.block_size) - 2, table.blocks
        free = column >= len(blocks) or blocks[column] == NULL
        scratch = self.claims_scratch and table.started and column >= len(blocks) - self.spare
        return column if column >= 0 and (free or scratch) else -1

    def needed(
        self, table: Table, hit: list[int], hit_tokens: int, tokens: int, checkpoint: bool = False, computed: int = 0
    ) -> int:
        """Count the blocks as for attention; a started request reuses its speculative blocks and takes one at most."""
        new = -(-tokens // self.block_size) + self.spare - len(hit) - len(table.blocks)
        partial = 1 if table.partial is not None or self.shares_tail(hit, hit_tokens) else 0
        if partial:
            new = max(new, 0) + 1
        if new > 0:
            most = 1 + partial + checkpoint + (0 if table.started else self.spare)
            new = self.need(Need(new, most, table.started, self.spare, checkpoint))
        return new + self.evictable(hit)

    def retire(self, table: Table, computed: int) -> list[int]:
        """Free the states before the one that a request at ``computed`` tokens reads; return them."""
        freed: list[int] = []
        blocks = table.blocks
        if computed > 1:
            before = (computed - 1) // self.block_size
            columns = self.retire_rule(blocks, before, table.retired)
            if columns and self.keeps_served:
                columns = self.unserved(table, columns)
            if columns:
                freed = self.drop(table, columns)
            table.retired = max(table.retired, min(before, len(blocks)))
        last = table.last_state
        unused = 0 <= last < -(-computed // self.block_size) - 1 and blocks[last] != NULL
        if unused and not (self.keeps_served and self.pool.primary[blocks[last]] is not None):
            freed = freed + self.drop(table, [last])
        return freed

    def load(self, table: Table, total: int) -> list[int]:
        """Allocate a block for the state that a connector computed; return it."""
        new = self.pool.take(-(-total // self.block_size) - len(table.blocks))
        table.blocks.extend(new)
        return new

    def extend(self, request: str, table: Table, tokens: int) -> list[int]:
        """Allocate the running column of a chunk that ends at ``tokens``, and K columns behind it.

        Return what is appended to the worker's table: nulls, relocated speculative blocks, new blocks (for a
        request that had none the whole table counts, see the worker).
        """
        blocks, spare = table.blocks, self.spare
        required = -(-tokens // self.block_size) + spare
        checkpoint = table.checkpoint is not None
        stays = required <= len(blocks) and table.partial is None and not (self.claims_scratch and checkpoint)
        if stays:
            table.started = table.started or self.eager
            return []
        before = len(blocks)
        if table.started:
            table.last_state = before - 1 - spare
        elif before:
            table.last_state = before - 1
        running = required - spare - 1
        if before < running:
            blocks.extend([NULL] * (running - checkpoint - before))
        if table.started and not (checkpoint and self.parks_scratch):
            for column in range(before - spare, min(before, running - (checkpoint and self.claims_scratch))):
                blocks.append(blocks[column])
                blocks[column] = NULL
        new = self.pool.take(max(required - len(blocks), 0) + (table.partial is not None))
        appended = blocks[before:]
        if table.partial is not None:
            copy, new = new[0], new[1:]
            if table.started:
                self._move(request, table, copy)
            else:
                self.redirect(request, table, copy)
                # It is handed over too: one column too far, unless the whole table is (vLLM to 0.27).
                appended = [copy, *appended]
        blocks.extend(new)
        table.started = True
        return appended + new

    def _move(self, request: str, table: Table, copy: int) -> None:
        """Move a shared tail's claims to a copy: a started request stays on its block (the worker's table only
        grows)."""
        assert table.partial is not None
        column, source = table.partial
        pool = self.pool
        chains = pool.chains
        before = {key: chains.before(self.group, key, source) for key in pool.keys(source)} if chains else {}
        for key, tokens in pool.remove(source, Withdrawal.MOVE) if self.tail_copy.moves_claims else ():
            self._insert(request, copy, column, tokens, key, before.get(key, ()))
        pool.touch((source,))
        self.copies.append(CopyOnWrite(request, self.group, source, copy))
        moved = pool.primary[copy]
        if moved is not None and self.tail_copy.rearms:
            self.published_now.add(moved)
        table.partial = None

    def publish_end(self, request: str, table: Table, hashes: list[bytes], tokens: int, once: bool = False) -> None:
        """Publish the state at a reusable end where this chunk stops, mostly inside a block.

        ``once``: leave a block alone that is keyed there already.
        """
        column = -(-tokens // self.block_size) - 1
        if once and column < len(table.blocks):
            block = table.blocks[column]
            if self.pool.primary[block] is not None and self.pool.primary_tokens[block] == tokens:
                return
        key = self.publish_tail(request, table, hashes, column, tokens)
        if key is None:
            return
        self.published_now.add(key)
        if tokens % self.block_size:
            table.partial = (column, table.blocks[column]) if self.tail_copy.owner_copies else None
            table.cached = column

    def publish_under_node(self, request: str, table: Table, hashes: list[bytes], tokens: int, hashed: int) -> None:
        """Publish the state that a chunk leaves inside a block under the boundary before it, if that is hashed."""
        node = tokens // self.block_size * self.block_size
        column = node // self.block_size
        block = table.blocks[column] if column < len(table.blocks) else NULL
        if node == tokens or not 0 < node <= hashed or block == NULL:
            return
        key = hashes[node // self.unit - 1]
        if self.pool.find(self.group, key) is None:
            self._insert(request, block, column, node, key, hashes)
            self.published_now.add(key)

    def publish_checkpoint(self, request: str, table: Table, hashes: list[bytes], kept: bool) -> None:
        """Publish the state that this chunk exports under its own offset, or (not ``kept``) under none."""
        assert table.checkpoint is not None
        offset, column = table.checkpoint
        block, pool = table.blocks[column], self.pool
        if block == NULL:
            # A decode whose drafts reach over a hash unit has moved the block away that it would export into.
            return
        if not kept:
            pool.remove(block, Withdrawal.TRANSIENT)
            return
        if pool.primary[block] is not None and pool.primary_tokens[block] == offset:
            return
        pool.remove(block, Withdrawal.REKEY)
        key = hashes[offset // self.unit - 1]
        self._insert(request, block, column, offset, key, hashes)
        self.published_now.add(key)
