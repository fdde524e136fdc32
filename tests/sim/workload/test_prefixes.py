"""Shared prefixes: that they are shared, token by token, and that nothing else is."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.tokens import segment_ids
from stateat.sim.workload import prefixes
from stateat.sim.workload.prefixes import Level, MultiTurn, Repeat, Tree, conversation, repeated_prompts, tree_prompts
from stateat.sim.workload.streams import stream


def tree(*levels: tuple[int, int], zipf: float = 0.0) -> Tree:
    return Tree(kind="tree", levels=[Level(length=n, fanout=f) for n, f in levels], zipf=zipf)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3)), min_size=1, max_size=3),
    st.lists(st.integers(1, 120), min_size=2, max_size=12),
)
def test_prompts_share_exactly_the_nodes_of_their_common_path(
    levels: list[tuple[int, int]], lengths: list[int]
) -> None:
    made = tree_prompts(tree(*levels), lengths, stream(1, "prefixes"))
    depth = len(levels)
    for i, a in enumerate(made):
        for b in made[:i]:
            common = next((d for d in range(depth) if a[d] != b[d]), depth)
            shared = sum(length for length, _ in levels[:common])
            one, other = segment_ids(a), segment_ids(b)
            assert one[:shared].tolist() == other[:shared].tolist()
            # Nodes of different parents differ too: there is no way back together.
            assert not {seed for seed, _ in a[common:]} & {seed for seed, _ in b[common:]}


def test_all_nodes_of_a_tree_are_reached_and_no_other() -> None:
    made = tree_prompts(tree((10, 2), (5, 3)), [20] * 500, stream(1, "prefixes"))
    first = {prompt[0][0] for prompt in made}
    leaves = {prompt[1][0] for prompt in made}
    assert (len(first), len(leaves)) == (2, 6)
    assert first | leaves == set(range(prefixes.TREE_SEED, prefixes.TREE_SEED + 8))
    assert len({prompt[:1] for prompt in made}) == 2 and len({prompt[:2] for prompt in made}) == 6


def test_zipf_prefers_the_first_children() -> None:
    def shares(zipf: float) -> list[float]:
        made = tree_prompts(tree((10, 4), zipf=zipf), [20] * 20_000, stream(1, "prefixes"))
        counts = Counter(prompt[0][0] - prefixes.TREE_SEED for prompt in made)
        return [counts[k] / 20_000 for k in range(4)]

    assert shares(0.0) == pytest.approx([0.25] * 4, abs=0.015)
    total = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert shares(1.0) == pytest.approx([1 / k / total for k in (1, 2, 3, 4)], abs=0.015)


def test_repeats_come_in_turn() -> None:
    made = repeated_prompts(Repeat(kind="repeat", distinct=2), [5, 6, 7, 8, 9])
    assert made[0] == made[2] == made[4] and made[1] == made[3]
    assert [p[0][1] for p in made] == [5, 6, 5, 6, 5]
    assert made[0][0][0] != made[1][0][0]


def test_a_conversation_without_a_system_prompt() -> None:
    made = conversation(MultiTurn(kind="multi-turn", turns=2), 6, [5, 3], [2, 9])
    assert made == [((prefixes.own(6), 5),), ((prefixes.own(6), 5), (-7, 2), (prefixes.own(7), 3))]


def test_ranges_of_seeds_do_not_meet() -> None:
    from stateat.sim.schema import MAX_REQUESTS

    starts = [prefixes.TRACE_SEEDS, prefixes.OWN_SEED, prefixes.TREE_SEED, prefixes.REPEAT_SEED, prefixes.SYSTEM_SEED]
    assert starts[0] <= starts[1]
    assert prefixes.own(MAX_REQUESTS) < prefixes.TREE_SEED
    assert prefixes.TREE_SEED + 2 * prefixes.MAX_LEAVES < prefixes.REPEAT_SEED
    assert prefixes.REPEAT_SEED + MAX_REQUESTS < prefixes.SYSTEM_SEED < 2**31
