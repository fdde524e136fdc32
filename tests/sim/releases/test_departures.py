"""What a preset is known to decide otherwise than its release is told once, by the option that does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_sweep
import yaml
from click.testing import CliRunner

import stateat
from stateat.sim.cli.main import main
from stateat.sim.errors import DepartureWarning
from stateat.sim.events import Group
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.releases.departures import DEPARTURES, Departure, departures
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.support import lacks
from stateat.sim.workload import Arrival

ATTENTION = Group("attention", "full-attention", 16)
STATES = Group("states", "recurrent", 64)
PLAIN: dict[str, Any] = {"groups": (ATTENTION, STATES), "preset": "vllm-0.26.0"}
EXTERNAL: dict[str, Any] = {"requests": [Arrival("a", 0, 0, ((1, 40),), external=16)]}
PARALLEL: dict[str, Any] = {"decode_context_parallel_size": 2}
# By the text's beginning: a configuration that is told so, and how the same is not.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "without prefix caching": (
        {"enable_prefix_caching": False},
        {"groups": (ATTENTION,), "enable_prefix_caching": False},
    ),
    "a server of any release has one mamba_cache_mode": (
        {"groups": (STATES, Group("all", "recurrent", 64, mamba_cache_mode="all"))},
        {"groups": (STATES, Group("two", "recurrent", 64))},
    ),
    "any release stops with an assertion": (
        {"groups": (STATES,), "prefix_match_unit": 16},
        {"groups": (STATES,), "prefix_match_unit": 64},
    ),
    "releases to vLLM 0.28 stop with an assertion where all groups": (
        {"groups": (STATES, Group("two", "recurrent", 64))},
        {"groups": (STATES, Group("two", "recurrent", 64)), "preset": "vllm-0.29.0"},
    ),
    "releases to vLLM 0.27 stop": (
        {"groups": (ATTENTION, STATES, Group("window", "full-attention", 64, sliding_window=9))},
        {"groups": (ATTENTION, STATES, Group("window", "full-attention", 16, sliding_window=9))},
    ),
    "with attention blocks of several sizes": (
        {"groups": (ATTENTION, STATES, Group("draft", "full-attention", 32))},
        {"groups": (ATTENTION, STATES, Group("draft", "full-attention", 32)), "preset": "vllm-0.29.0"},
    ),
    "releases refuse a drafter of several modules": (
        {
            "groups": (Group("states", "recurrent", 4),),
            "preset": "vllm-0.29.0",
            "speculative": Speculative("mtp", 5, multi_module=True),
        },
        {
            "groups": (Group("states", "recurrent", 4),),
            "preset": "vllm-0.29.0",
            "speculative": Speculative("mtp", 4, multi_module=True),
        },
    ),
    "vLLM 0.33 stops with an error where a sliding window": (
        {
            "groups": (STATES, Group("window", "full-attention", 64, sliding_window=9)),
            "preset": "vllm-0.33.0",
            "speculative": Speculative("mtp", 2, multi_module=True),
        },
        {
            "groups": (STATES, Group("window", "full-attention", 64, sliding_window=9)),
            "preset": "vllm-0.33.0",
            "speculative": Speculative("mtp", 2, multi_module=True, hash_lookahead=False),
        },
    ),
    "where a drafter gives up a block of each hit": (
        {"preset": "vllm-0.29.0", "speculative": Speculative("mtp", 2, multi_module=True)},
        {"preset": "vllm-0.29.0", "speculative": Speculative("mtp", 1, multi_module=True)},
    ),
    "releases from vLLM 0.30 on take a decode": (
        {
            "groups": (Group("states", "recurrent", 4),),
            "preset": "vllm-0.32.0",
            "num_prefill_checkpoint_blocks": 1,
            "speculative": Speculative("ngram", 4),
        },
        {
            "groups": (Group("states", "recurrent", 4),),
            "preset": "vllm-0.32.0",
            "num_prefill_checkpoint_blocks": 1,
            "speculative": Speculative("ngram", 3),
        },
    ),
    "releases from vLLM 0.29 on stop": (
        {
            "groups": (ATTENTION,),
            "preset": "vllm-0.29.0",
            "long_prefill_token_threshold": 3,
            "speculative": Speculative("mtp", 3),
        },
        {"preset": "vllm-0.29.0", "long_prefill_token_threshold": 3, "speculative": Speculative("mtp", 3)},
    ),
    "releases to vLLM 0.28 cut the placeholders": (
        {"long_prefill_token_threshold": 3, "speculative": Speculative("mtp", 3)},
        {"long_prefill_token_threshold": 3, "speculative": Speculative("mtp", 2)},
    ),
    "releases refuse one that leaves no token": (
        {"max_num_batched_tokens": 64, "max_num_seqs": 32, "speculative": Speculative("ngram", 2, draft_slots=2)},
        {"max_num_batched_tokens": 65, "max_num_seqs": 32, "speculative": Speculative("ngram", 2, draft_slots=2)},
    ),
    "releases refuse a sliding window on several ranks": (
        {"groups": (ATTENTION, Group("window", "full-attention", 16, sliding_window=9)), **PARALLEL},
        {"groups": (ATTENTION, STATES), **PARALLEL},
    ),
    "releases to vLLM 0.28 stop with an assertion where a recurrent group is alone": (
        {"groups": (STATES,), **PARALLEL},
        {"groups": (STATES,), **PARALLEL, "preset": "vllm-0.29.0"},
    ),
    "releases to vLLM 0.27 look attention up": ({**EXTERNAL, **PARALLEL}, PARALLEL),
    "vLLM 0.26 drops as many outputs": (
        {"async_scheduling": True, "speculative": Speculative("mtp", 2)},
        {"async_scheduling": True, "speculative": Speculative("mtp", 2), "preset": "vllm-0.27.0"},
    ),
    "vLLM 0.26 counts what comes late": (
        {"async_scheduling": True, "max_concurrent_batches": 3},
        {"async_scheduling": True, "max_concurrent_batches": 2},
    ),
    "a release loads and stores beside its steps": ({"offload": Offload(8)}, {}),
    "any release counts a block too few": (EXTERNAL, {}),
    "with a connector a server of vLLM 0.33": (
        {**EXTERNAL, "preset": "vllm-0.33.0", "speculative": Speculative("mtp", 3)},
        {**EXTERNAL, "preset": "vllm-0.33.0", "speculative": Speculative("mtp", 3, hash_lookahead=False)},
    ),
    "any release ends such a request": ({"requests": [Arrival("a", 0, 0, ((1, 40),), load_error=True)]}, EXTERNAL),
}


def told(requests: Sequence[Arrival] = (), **changes: Any) -> list[str]:
    return departures(Options(**{**PLAIN, **changes}), requests)


def test_a_plain_hybrid_departs_from_no_release() -> None:
    assert [told(preset=preset) for preset in ("vllm-0.26.0", "vllm-0.29.0", "vllm-0.33.0")] == [[], [], []]
    assert len(CASES) == len(DEPARTURES)


@pytest.mark.parametrize(("departure", "text"), list(zip(DEPARTURES, CASES, strict=True)), ids=list(CASES))
def test_each_is_told_by_its_option_where_it_is_and_nowhere_else(departure: Any, text: str) -> None:
    with_it, without = CASES[text]
    assert departure.text.startswith(text)
    assert f"{departure.place}: {departure.text}" in told(**with_it)
    assert not any(departure.text in said for said in told(**without))


@pytest.mark.parametrize(
    ("preset", "refused"),
    [
        # The least budget that each release starts with, for 3 slots, 5 drafts and 2 requests at a time, is one more.
        ("vllm-0.26.0", (6, 6)),
        ("vllm-0.27.0", (6, 6)),
        ("vllm-0.28.0", (3, 3)),
        ("vllm-0.29.0", (3, 3)),
        ("vllm-0.32.0", (3, 3)),
        ("vllm-0.33.0", (5, 6)),
    ],
)
def test_a_budget_is_too_small_where_the_release_refuses_to_start(preset: str, refused: tuple[int, int]) -> None:
    for method, least in zip(("mtp", "dflash"), refused, strict=True):
        drafter = Speculative(method, 5, draft_slots=3)
        for budget in (least, least + 1):
            said = told(preset=preset, speculative=drafter, max_num_seqs=2, max_num_batched_tokens=budget)
            assert any("engine.max_num_batched_tokens: " in text for text in said) == (budget == least)
    alone = told(preset=preset, max_num_batched_tokens=1)
    assert not any("engine.max_num_batched_tokens: " in text for text in alone)


@pytest.mark.parametrize(
    ("preset", "speculative", "stops"),
    [
        # A prompt of 16 tokens in states of 8 and attention of 4: which of these servers have stopped.
        ("vllm-0.29.0", {}, True),
        ("vllm-0.32.0", {}, True),
        ("vllm-0.33.0", {}, False),
        ("vllm-0.33.0", {"hash_lookahead": False}, True),
        ("vllm-0.33.0", {"hash_lookahead": False, "block_drop": False}, False),
    ],
)
def test_a_tail_is_published_late_where_a_drafter_gives_up_a_block(
    preset: str, speculative: dict[str, Any], stops: bool
) -> None:
    drafter = Speculative("mtp", 6, multi_module=True, **speculative)
    said = told(
        preset=preset, groups=(replace(ATTENTION, block_size=4), replace(STATES, block_size=8)), speculative=drafter
    )
    assert any("publish a prompt's tail behind its prefill" in text for text in said) == stops


@pytest.mark.parametrize(
    ("groups", "changes", "stops"),
    [
        # Prompts of 21 tokens and two modules: which of these servers have stopped.
        ((replace(STATES, block_size=4),), {}, True),
        ((replace(STATES, block_size=4), ATTENTION), {}, False),
        ((replace(STATES, block_size=4), Group("all", "recurrent", 8, mamba_cache_mode="all")), {}, True),
        ((replace(STATES, block_size=4), replace(STATES, block_size=4, name="two")), {"prefix_match_unit": 2}, False),
    ],
)
def test_states_alone_are_looked_up_past_the_last_hash(
    groups: tuple[Group, ...], changes: dict[str, Any], stops: bool
) -> None:
    drafter = Speculative("mtp", 2, multi_module=True)
    said = told(preset="vllm-0.33.0", groups=groups, speculative=drafter, **changes)
    assert any("states without attention beside them" in text for text in said) == stops


@pytest.mark.parametrize("departure", DEPARTURES, ids=list(CASES))
def test_no_preset_is_told_so_but_those_that_the_docs_name(departure: Departure) -> None:
    with_it = {**PLAIN, **CASES[next(text for text in CASES if departure.text.startswith(text))][0]}
    requests = with_it.pop("requests", ())
    for preset in PRESETS:
        options = Options(**{**with_it, "preset": preset})
        refused = any(lacks(options, table(preset, {})))
        said = f"{departure.place}: {departure.text}" in departures(options, requests)
        assert not said or refused or preset in departure.presets


SCENARIO: dict[str, Any] = {
    "schema": "stateat/1",
    "name": "departs",
    "engine": {
        "enable_prefix_caching": False,
        "clock": "steps",
        "groups": [{"name": "states", "kind": "recurrent", "block_size": 16}],
    },
    "workload": {"requests": [{"id": "a", "prompt": [[1, 40]]}]},
    "expect": {"ends": {"a": [40]}},
}
TEXT = "engine.enable_prefix_caching: without prefix caching a server of any release"


def scenario(folder: Path) -> list[str]:
    file = folder / "departs.json"
    file.write_text(json.dumps(SCENARIO))
    file = file.rename(folder / "departs.yaml")
    return [str(file)]


def swept(folder: Path) -> list[str]:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(small_sweep.sweep(grid={"engine.enable_prefix_caching": [False]}, seeds="0:2")))
    return [str(file)]


@pytest.mark.parametrize(
    ("command", "written"), [("check", scenario), ("replay", scenario), ("explain", scenario), ("sweep", swept)]
)
def test_each_command_tells_it_once_a_variant(
    command: str, written: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, [command, *written(tmp_path)])
    assert "Traceback" not in result.output and result.exit_code in (0, 1), result.output
    lines = [line for line in result.stderr.splitlines() if TEXT in line]
    assert lines and len(lines) == len(set(lines)) and all(line.startswith("warning: ") for line in lines)
    assert TEXT not in result.stdout


def test_python_warns_too() -> None:
    with pytest.warns(DepartureWarning, match=TEXT):
        assert stateat.replay(SCENARIO).variants
    with pytest.warns(DepartureWarning, match=TEXT):
        stateat.sweep(small_sweep.sweep(grid={"engine.enable_prefix_caching": [False]}, seeds="0:1"))


@pytest.mark.parametrize(
    ("preset", "option"), [("vllm-0.32.0", {}), ("vllm-0.33.0", {}), ("vllm-0.33.0", {"hash_lookahead": False})]
)
def test_a_connector_beside_hashes_that_look_ahead_is_told(preset: str, option: dict[str, bool]) -> None:
    speculative = {"method": "mtp", "num_speculative_tokens": 1, **option}
    engine = {"preset": preset, "clock": "steps", "groups": SCENARIO["engine"]["groups"], "speculative": speculative}
    requests = [{"id": "a", "prompt": [[1, 40]], "external": 16}]
    with pytest.warns(DepartureWarning, match="workload.requests.external") as found:
        stateat.replay({**SCENARIO, "engine": engine, "workload": {"requests": requests}, "expect": None})
    ahead = [str(each.message) for each in found if "hashes that look ahead" in str(each.message)]
    assert len(ahead) == (preset == "vllm-0.33.0" and not option)
    assert all("engine.speculative.hash_lookahead: false" in text for text in ahead)


@pytest.mark.parametrize("key", ["external", "load_error"])
def test_what_a_request_brings_is_told_too(key: str) -> None:
    engine = {**SCENARIO["engine"], "enable_prefix_caching": True}
    request = {"id": "a", "prompt": [[1, 40]], "external": 16, "load_error": True}
    kept = ("id", "prompt", "external", key)
    workload = {"requests": [{name: value for name, value in request.items() if name in kept}]}
    with pytest.warns(DepartureWarning, match=f"workload.requests.{key}: "):
        assert stateat.replay({**SCENARIO, "engine": engine, "workload": workload, "expect": None}).variants
