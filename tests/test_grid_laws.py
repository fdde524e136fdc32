"""Laws of grids and seeds that hold for any sizes, and what breaks them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

CLOCK = "steps"


def pair(attention: int, state: int, eagle: bool = False) -> tuple[Group, Group]:
    return Group("attention", "full-attention", attention, eagle), Group("gdn", "recurrent", state)


def twice(prompt: int, longer: int = 0, **options: object) -> Outcome:
    rest = ((2, longer),) if longer else ()
    arrivals = [Arrival("a", 0, 0, ((1, prompt),)), Arrival("b", 1, 0, ((1, prompt), *rest), after="a")]
    return drive(Options(clock=CLOCK, **options), arrivals)  # type: ignore[arg-type]


@given(st.integers(2, 40), st.integers(1, 400), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_repeat_hits_all_whole_blocks_but_a_token(block: int, prompt: int, wider: int) -> None:
    """S10: floor((P - 1) / b) * b, as long as a chunk is narrower than two blocks."""
    budget = min(block * 2 - 1, block + wider)
    grid = {"groups": pair(block, block), "cache_config_block_size": 1, "max_num_batched_tokens": budget}
    outcome = twice(prompt, rules={"grid": "recurrent-group"}, **grid)
    assert outcome.hits["b"] == (prompt - 1) // block * block
    assert outcome.poisoned == outcome.wrong_restores == outcome.null_boundaries == 0


@given(st.integers(2, 40), st.integers(1, 300), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_every_boundary_leaves_no_null_column_at_any_budget(block: int, prompt: int, budget: int) -> None:
    """S11."""
    rules = {"split": "every-boundary"}
    outcome = twice(prompt, rules=rules, groups=pair(block, block), max_num_batched_tokens=budget)
    assert outcome.null_boundaries == outcome.poisoned == 0


@given(st.integers(2, 40), st.integers(1, 300), st.integers(0, 80))
@settings(max_examples=60, deadline=None)
def test_alone_the_fixed_gate_costs_no_step_and_no_snapshot(block: int, prompt: int, more: int) -> None:
    """S7: while a block fits the budget, and the budget is the prompt's alone."""

    def run(preset: str) -> Outcome:
        options = Options(
            pair(1, block, True),
            preset=preset,
            max_num_batched_tokens=block + more,
            partial_hits=False,
            speculative=Speculative("mtp", 3),
            clock=CLOCK,
        )
        return drive(options, [Arrival("a", 0, 0, ((1, prompt),))])

    old, new = run("vllm-0.26.0"), run("vllm-0.27.0")
    assert new.steps == old.steps
    assert new.materialized_boundaries >= old.materialized_boundaries
    assert new.poisoned == 0


def test_under_a_leftover_it_does_cost_a_step() -> None:
    """The negative control of the law above."""

    def steps(preset: str) -> int:
        options = Options(
            pair(16, 1600, True), preset=preset, partial_hits=False, speculative=Speculative("mtp", 3), clock=CLOCK
        )
        return drive(options, [Arrival("a", 0, 0, ((1, 2002),))], [364, 1638]).steps

    assert (steps("vllm-0.26.0"), steps("vllm-0.27.0")) == (2, 3)


@given(st.integers(2, 30), st.integers(1, 30), st.integers(1, 8), st.integers(1, 60))
@settings(max_examples=80, deadline=None)
def test_a_seed_does_harm_exactly_where_its_column_is_another(block: int, other: int, blocks: int, more: int) -> None:
    """S14; where the column is that in which the chunk ends, nothing is carried there either."""
    prompt = block * blocks
    options = {"groups": pair(block, block), "cache_config_block_size": other, "max_num_batched_tokens": block}
    outcome = twice(prompt, more, rules={"grid": "recurrent-group", "restore_column": "scheduler-block"}, **options)
    assert outcome.hits["b"] == prompt
    right, seeded = (prompt - 1) // block, (prompt - 1) // other
    assert outcome.wrong_restores == (right != seeded)
    named = [(f.column, f.claimed) for f in outcome.findings if f.invariant == "I10"]
    assert named == ([(seeded, prompt)] if right != seeded else [])


@given(st.integers(2, 30), st.integers(1, 8), st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_a_column_past_the_row_is_out_of_range(block: int, blocks: int, more: int) -> None:
    prompt = block * blocks
    options = {"groups": pair(block, block), "initial_block_size": 1, "max_model_len": prompt + more + 1}
    outcome = twice(prompt, more, rules={"restore_column": "stale-config"}, max_num_batched_tokens=block, **options)
    width = -(-(prompt + more + 1) // block)
    found = [f.verdict for f in outcome.findings if f.invariant == "I10"]
    assert (found == ["out of range"]) == (prompt - 1 >= width)


@given(st.integers(2, 8), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_prefills_behind_a_decode_keep_their_slots(requests: int, drafts: int, blocks: int) -> None:
    """G7: rows of a batch of prefills alone do not, from the second on."""

    def run(rule: str, decoding: bool) -> Outcome:
        options = Options(
            pair(8, 8),
            rules={"worker": rule},
            speculative=Speculative("ngram", drafts),
            clock=CLOCK,
        )
        first = [Arrival("d", 0, 0, ((99, 9),), 60)] if decoding else []
        arrivals = [Arrival(f"r{i}", len(first) + i, 4, ((i + 1, 8 * blocks),)) for i in range(requests)]
        return drive(options, [*first, *arrivals])

    assert run("contiguous-view", True).poisoned == run("v2", False).poisoned == 0
    assert run("contiguous-view", False).poisoned == requests - 1
