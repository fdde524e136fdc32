"""Generated workloads: laws of arrival lists, and what the file may not ask for."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stateat.sim.errors import InputError
from stateat.sim.scenario.load import Run, load, runs
from stateat.sim.tokens import Tokens, segment_ids
from stateat.sim.workload import Arrival
from stateat.sim.workload.generate import Workload, requests

HERE = Path(".")


def made(seed: int = 0, clock: str = "us", **keys: Any) -> list[Arrival]:
    return requests(Workload.model_validate(keys), seed, clock, HERE, "s.yaml:1: workload")


def fixed(length: int) -> dict[str, Any]:
    return {"kind": "fixed", "length": length}


def run_of(tmp_path: Path, workload: str, engine: str = "") -> Run:
    file = tmp_path / "s.yaml"
    file.write_text(
        "schema: stateat/1\nname: s\nseed: 7\n"
        f"engine: {{groups: [{{name: g, kind: recurrent, block_size: 64}}]{engine}}}\nworkload: {workload}\n"
    )
    return runs(load(file))[0]


ARRIVALS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("poisson"), "rate": st.floats(0.01, 1000)}),
    st.fixed_dictionaries({"kind": st.just("gamma"), "rate": st.floats(0.01, 1000), "burstiness": st.floats(0.1, 9)}),
    st.fixed_dictionaries(
        {"kind": st.just("closed-loop"), "clients": st.integers(1, 9), "think_us": st.integers(0, 9)}
    ),
    st.fixed_dictionaries({"kind": st.just("steps"), "every": st.integers(0, 5)}),
)
LENGTHS = st.one_of(
    st.builds(fixed, st.integers(1, 5000)),
    st.builds(
        lambda a, b: {"kind": "uniform", "low": min(a, b), "high": max(a, b)}, st.integers(1, 99), st.integers(1, 99)
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("lognormal"),
            "mean": st.floats(1, 1e4),
            "sigma": st.floats(0, 3),
            "high": st.integers(1, 9999),
        }
    ),
)
PREFIXES = st.one_of(
    st.just({"kind": "none"}),
    st.fixed_dictionaries({"kind": st.just("repeat"), "distinct": st.integers(1, 4)}),
    st.fixed_dictionaries({"kind": st.just("multi-turn"), "turns": st.integers(1, 4)}),
    st.fixed_dictionaries({"kind": st.just("multi-turn"), "turns": st.integers(1, 4), "system": st.integers(1, 99)}),
    st.fixed_dictionaries(
        {
            "kind": st.just("tree"),
            "levels": st.lists(
                st.fixed_dictionaries({"length": st.integers(1, 50), "fanout": st.integers(1, 3)}),
                min_size=1,
                max_size=3,
            ),
            "zipf": st.floats(0, 2),
        }
    ),
)
WORKLOADS = st.fixed_dictionaries(
    {"arrivals": ARRIVALS, "count": st.integers(1, 25), "prompt": LENGTHS, "output": LENGTHS, "prefixes": PREFIXES}
)


@given(WORKLOADS, st.integers(0, 2**63 - 1), st.sampled_from(["us", "steps"]))
def test_any_workload_is_the_same_again_numbered_named_and_ordered(keys: Any, seed: int, clock: str) -> None:
    first = made(seed, clock, **keys)
    assert first == made(seed, clock, **keys)
    assert [a.index for a in first] == list(range(len(first)))
    assert len({a.id for a in first}) == len(first)
    free = [a.time for a in first if a.after is None]
    assert free == sorted(free) and free[0] >= 0
    known = {a.id: a.index for a in first}
    assert all(known[a.after] < a.index for a in first if a.after is not None)
    assert all(a.num_prompt_tokens >= 1 and a.max_tokens >= 1 for a in first)
    assert all(-len(first) <= seed < 2**31 for a in first for seed, _ in a.segments)
    turns = keys["prefixes"].get("turns", 1)
    assert len(first) == keys["count"] * turns


@given(WORKLOADS)
def test_a_prompt_is_as_long_as_asked_its_prefix_included(keys: Any) -> None:
    if keys["prefixes"]["kind"] == "multi-turn":
        return
    asked = [a.num_prompt_tokens for a in made(**{**keys, "prefixes": {"kind": "none"}})]
    got = [a.num_prompt_tokens for a in made(**keys)]
    distinct = keys["prefixes"].get("distinct", len(asked))
    shared = sum(level["length"] for level in keys["prefixes"].get("levels", []))
    floor = shared + 1 if shared else 1
    assert got == [max(asked[i % distinct], floor) for i in range(len(asked))]


@given(WORKLOADS, st.integers(0, 99))
def test_streams_do_not_disturb_each_other(keys: Any, seed: int) -> None:
    one = made(seed, **keys)
    other_outputs = made(seed, **{**keys, "output": {"kind": "uniform", "low": 1, "high": 77}})
    assert [a.time for a in one] == [a.time for a in other_outputs]
    if keys["prefixes"]["kind"] != "multi-turn":
        assert [a.segments for a in one] == [a.segments for a in other_outputs]
    other_prompts = made(seed, **{**keys, "prompt": {"kind": "uniform", "low": 1, "high": 77}})
    assert [a.max_tokens for a in one] == [a.max_tokens for a in other_prompts]


@given(st.integers(1, 6), st.integers(1, 40), PREFIXES, st.integers(0, 9))
def test_a_closed_loop_has_at_most_its_clients_in_flight(clients: int, count: int, prefixes: Any, think: int) -> None:
    flight = made(
        arrivals={"kind": "closed-loop", "clients": clients, "think_us": think},
        count=count,
        prompt=fixed(200),
        prefixes=prefixes,
    )
    # Whatever the engine does, a request starts only after another has ended: follow the chains.
    waiting = {a.after: a for a in flight if a.after is not None}
    assert len(waiting) == sum(a.after is not None for a in flight)  # nobody is waited for twice
    running = [a for a in flight if a.after is None]
    assert len(running) == min(clients, count)
    seen = 0
    while running:
        assert len(running) <= clients
        done = running.pop(0)
        seen += 1
        if done.id in waiting:
            running.append(waiting[done.id])
    assert seen == len(flight)


def test_a_turn_repeats_all_that_was_said(tmp_path: Path) -> None:
    turns = made(
        arrivals={"kind": "steps", "at": [0, 5]},
        prompt={"kind": "uniform", "low": 5, "high": 50},
        output={"kind": "uniform", "low": 2, "high": 9},
        prefixes={"kind": "multi-turn", "turns": 3, "system": 40, "think_us": 11},
    )
    assert [a.id for a in turns] == ["c0t0", "c0t1", "c0t2", "c1t0", "c1t1", "c1t2"]
    assert [(a.time, a.after) for a in turns] == [
        (0, None), (11, "c0t0"), (11, "c0t1"), (5, None), (11, "c1t0"), (11, "c1t1"),
    ]  # fmt: skip
    for before, now in ((0, 1), (1, 2), (3, 4), (4, 5)):
        said = Tokens.generate(turns[before].segments, before, turns[before].max_tokens).ids
        prompt = segment_ids(turns[now].segments)
        assert prompt[: said.size].tolist() == said.tolist()
        assert prompt.size > said.size
    a, b = (segment_ids(turns[i].segments) for i in (0, 3))
    assert a[:40].tolist() == b[:40].tolist() and a[40:45].tolist() != b[40:45].tolist()


def test_arrivals_are_ordered_and_those_that_wait_come_last(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "{requests: [{id: late, arrive: 9, prompt: [[1, 5]]}, {id: then, after: late, prompt: [[1, 5]]}, "
        "{id: early, arrive: 3, prompt: [[2, 5]]}, {id: also, arrive: 3, prompt: [[3, 5]]}]}",
    )
    assert [(a.id, a.index) for a in run.arrivals()] == [("early", 2), ("also", 3), ("late", 0), ("then", 1)]


def test_an_inline_request_says_all(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "{requests: [{id: a, arrive: 4, prompt: [[1, 5], [2, 6]], max_tokens: 3, accepted_drafts: [1, 0], external: 7, "
        "abort: 60}]}",
        engine=", speculative: {num_speculative_tokens: 1}",
    )
    assert run.arrivals() == (
        Arrival("a", 0, 4, ((1, 5), (2, 6)), max_tokens=3, accepted_drafts=(1, 0), external=7, abort=60),
    )


def test_the_seed_changes_what_is_drawn(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"arrivals": {"kind": "poisson", "rate": 3}, "count": 9, "prompt": fixed(9)}
    assert [a.time for a in made(1, **keys)] != [a.time for a in made(2, **keys)]


def test_a_generated_prompt_that_is_too_long_is_named(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        "{arrivals: {kind: closed-loop, clients: 1}, count: 1, prompt: {kind: fixed, length: 60}, "
        "prefixes: {kind: multi-turn, turns: 3}}",
        engine=", max_model_len: 100",
    )
    with pytest.raises(
        InputError, match=r"s\.yaml:5: workload: found a prompt of 121 tokens in 'c0t1', allowed at most 99"
    ):
        run.arrivals()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "workload is empty"),
        ({"budgets": [3]}, "workload is empty"),
        ({"count": 3}, "no arrivals and no prompt"),
        ({"arrivals": {"kind": "steps", "every": 1}, "prompt": fixed(3)}, "no count"),
        ({"arrivals": {"kind": "steps", "at": [1, 2]}, "prompt": fixed(3), "count": 3}, "count 3 and 2 times"),
        ({"arrivals": {"kind": "steps"}, "prompt": fixed(3), "count": 3}, "either at or every"),
        ({"arrivals": {"kind": "steps", "at": [1], "every": 1}, "prompt": fixed(3), "count": 3}, "either at or every"),
        ({"requests": [], "count": 3}, "requests and count"),
        (
            {
                "arrivals": {"kind": "steps", "every": 1},
                "prompt": fixed(3),
                "count": 10**6,
                "prefixes": {"kind": "multi-turn", "turns": 2},
            },
            "2000000 turns",
        ),
        (
            {
                "arrivals": {"kind": "steps", "every": 1},
                "prompt": fixed(3),
                "count": 1000,
                "prefixes": {"kind": "multi-turn", "turns": 1000},
            },
            r"turns\*\*2",
        ),
        (
            {
                "arrivals": {"kind": "steps", "every": 1},
                "prompt": fixed(3),
                "count": 1,
                "prefixes": {
                    "kind": "tree",
                    "levels": [{"length": 1, "fanout": 2**13}, {"length": 1, "fanout": 2**13}],
                },
            },
            "leaves",
        ),
    ],
)
def test_what_the_file_may_not_ask_for(keys: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Workload.model_validate(keys)


def test_a_pinned_workload_never_changes() -> None:
    """These numbers reach digests that scenario files expect: whoever changes them changes all of those."""
    got = made(
        seed=1,
        arrivals={"kind": "gamma", "rate": 5.0, "burstiness": 0.5},
        count=4,
        prompt={"kind": "lognormal", "mean": 2000.0, "sigma": 1.0, "high": 9000},
        output={"kind": "uniform", "low": 1, "high": 100},
        prefixes={"kind": "tree", "levels": [{"length": 512, "fanout": 3}], "zipf": 1.0},
    )
    assert [(a.time, a.segments, a.max_tokens) for a in got] == PINNED


PINNED = [
    (316543, ((1610612736, 512), (1073741824, 3193)), 6),
    (519326, ((1610612737, 512), (1073741825, 1)), 42),
    (566993, ((1610612738, 512), (1073741826, 66)), 8),
    (2599792, ((1610612737, 512), (1073741827, 1379)), 88),
]
