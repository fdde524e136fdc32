"""Rules: presets are full tables of known values, and what a user plugs in is held to its contract."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import InputError, PolicyError
from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.releases import presets
from stateat.sim.releases.rules import RULES, Rules, check, resolve
from stateat.sim.rules.restore_column import state_block_column
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))
MODULE = "a_policy_of_a_test"
Plug = Callable[[str], str]


@pytest.fixture
def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plug]:
    """Writes a module that can be imported; returns ``module:Class``."""

    def write(source: str) -> str:
        (tmp_path / f"{MODULE}.py").write_text(source)
        return f"{MODULE}:Policy"

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    sys.modules.pop(MODULE, None)


def run(split: str) -> None:
    drive(Options(GROUPS, rules={"split": split}, clock="steps"), [Arrival("a", 0, 0, ((1, 40),))])


def policy(body: str) -> str:
    return f"class Policy:\n    def __call__(self, chunk):\n        {body}\n"


# Tables.


@pytest.mark.parametrize("preset", presets.PRESETS)
def test_a_preset_names_a_known_value_of_every_rule(preset: str) -> None:
    table = presets.table(preset, {})
    assert list(table) == list(RULES) == [f.name for f in fields(Rules)]
    for name, value in table.items():
        assert value in RULES[name]
    assert resolve(table)


def test_a_rule_of_the_file_replaces_the_presets() -> None:
    changed = {"split": "prefill-end", "connector": "divergent", "eviction": "lru-uncached-last"}
    table = presets.table("vllm-0.26.0", changed | {"stale_output": "delivered-late-in-turn"})
    assert table == presets.table("vllm-0.27.0", {})
    assert presets.table("vllm-0.26.0", {}) == presets.VLLM_0_26_0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("splt", "x", "unknown rule 'splt': did you mean split"),
        ("nonsense", "x", "unknown rule 'nonsense'; allowed: split, grid"),
        ("split", "prefil-end", "unknown value 'prefil-end' of rule 'split': did you mean prefill-end"),
        ("split", "?", "allowed: last-cache-position, prefill-end"),
        ("split", "module:", "module:Class"),
        ("split", ":Class", "module:Class"),
        ("split", "a b:c", "module:Class"),
    ],
)
def test_unknown_names_are_refused_with_what_is_known(name: str, value: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(name, value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "block", "cache_config", "grid"),
    [
        ("cache-config", 1600, None, 1600),
        ("cache-config", 1648, 816, 816),
        ("recurrent-group", 1648, 816, 1648),
        ("min-over-groups", 1568, None, 16),
    ],
)
def test_the_grid(rule: str, block: int, cache_config: int | None, grid: int) -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", block))
    options = Options(groups, cache_config_block_size=cache_config)
    assert RULES["grid"][rule](options) == grid  # type: ignore[operator]


@given(st.integers(1, 10**6), st.integers(1, 5000))
def test_the_seed_is_the_column_that_holds_the_state(computed: int, block: int) -> None:
    column = state_block_column(computed, block, 7 * block)
    assert column * block < computed <= (column + 1) * block


def test_the_seed_of_the_published_case() -> None:
    """Mechanisms 4.5: state blocks, not scheduler blocks."""
    assert state_block_column(100_096, 128, 2176) == 781
    assert state_block_column(110_592, 768, 12_288) == 143


# Plug-ins.


def test_a_plug_in_takes_the_place_of_a_named_split(plug: Plug) -> None:
    asked = policy("return min(chunk.offered, 16)")
    outcome = drive(Options(GROUPS, rules={"split": plug(asked)}, clock="steps"), [Arrival("a", 0, 0, ((1, 40),))])
    assert outcome.ends == {"a": (16, 32, 40)}
    assert outcome.rules["split"] == f"{MODULE}:Policy"


def test_a_function_may_be_plugged_in_too(plug: Plug) -> None:
    run(plug("def Policy(chunk):\n    return chunk.offered\n"))


@pytest.mark.parametrize(("seen", "same"), [(8192, True), (8191, False)])
def test_a_plug_in_sees_the_documented_chunk(plug: Plug, seen: int, same: bool) -> None:
    names = "start offered prefill_end num_prompt num_tokens block hash_unit cap drop lookahead junction"
    facts = [0, 40, 40, 40, 40, 16, 4, seen, False, 0, 0]
    value = plug(policy(f"assert [getattr(chunk, n) for n in {names.split()}] == {facts}; return chunk.offered"))
    if same:
        run(value)
    else:
        with pytest.raises(PolicyError, match="Policy raised AssertionError"):
            run(value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('oops')", "raised KeyError: 'oops' at {file}:3 (request a"),
        ("return chunk.offered + 1", "gave 41 tokens to request a, which was offered 40 at 0"),
        ("return -1", "gave -1 tokens to request a"),
        ("return True", "gave True, allowed is a number of tokens, or a Cut at {file}:2 (request a"),
        ("return 1.0", "gave 1.0, allowed is a number of tokens"),
        ("return None", "gave None, allowed is a number of tokens"),
        ("return '3'", "gave '3', allowed is a number of tokens"),
        ("from stateat.sim.rules.split import Cut; return Cut(41, 'mine')", "gave 41 tokens to request a"),
        (
            "from stateat.sim.rules.split import Cut; return Cut('1', 'mine')",
            "gave Cut(tokens='1', stop='mine'), allowed is a number",
        ),
    ],
)
def test_a_policy_that_breaks_its_contract_is_named_with_what_it_did(
    plug: Plug, tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        run(plug(policy(body)))
    said = said.format(file=tmp_path / f"{MODULE}.py")
    assert str(caught.value).startswith(f"rule split={MODULE}:Policy {said}")
    assert caught.value.exit_code == 2


def test_a_policy_that_never_lets_anybody_run_is_a_livelock(plug: Plug) -> None:
    options = Options(GROUPS, rules={"split": plug(policy("return 0"))}, clock="steps")
    outcome = drive(options, [Arrival("a", 0, 0, ((1, 40),)), Arrival("b", 1, 0, ((1, 40),))])
    assert outcome.livelock and outcome.finished == 0
    (found,) = outcome.findings
    assert (found.invariant, found.severity, found.request) == ("I14", "liveness", "a")


def test_a_policy_that_stops_half_way_is_a_livelock_of_that_request(plug: Plug) -> None:
    options = Options(GROUPS, rules={"split": plug(policy("return 16 if not chunk.start else 0"))}, clock="steps")
    outcome = drive(options, [Arrival("a", 0, 0, ((1, 40),))])
    assert outcome.livelock and outcome.ends == {"a": (16,)}
    assert [f.invariant for f in outcome.findings] == ["I14"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("Policy = 3\n", "found int, which cannot be called"),
        ("class Policy:\n    def __init__(self):\n        raise OSError('no')\n", "cannot load it: OSError: no"),
        ("class Policy:\n    def __init__(self, size):\n        pass\n", "cannot load it: TypeError"),
        ("class Policy:\n    pass\n", "found Policy, which cannot be called"),
        ("import nothing_of_this_name\n", "cannot load it: ModuleNotFoundError"),
        ("def broken(:\n", "cannot load it: SyntaxError"),
        ("other = 1\n", "cannot load it: AttributeError"),
    ],
)
def test_what_cannot_be_plugged_in_is_refused(plug: Plug, source: str, said: str) -> None:
    value = plug(source)
    with pytest.raises(InputError) as caught:
        run(value)
    assert f"rule split={value}: " in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize("rule", [name for name in RULES if not callable(next(iter(RULES[name].values())))])
def test_a_rule_with_named_answers_alone_takes_no_plug_in(plug: Plug, rule: str) -> None:
    value = plug("class Policy:\n    on = True\n")
    with pytest.raises(InputError, match=f"unknown value '{value}' of rule '{rule}'; allowed: "):
        drive(Options(GROUPS, rules={rule: value}, clock="steps"), [Arrival("a", 0, 0, ((1, 40),))])


@pytest.mark.parametrize("rule", ["grid", "restore_column", "lookup", "skipped_states", "draft_slots"])
def test_any_rule_that_raises_is_named(plug: Plug, rule: str) -> None:
    value = plug("class Policy:\n    def __call__(self, *args):\n        raise KeyError('oops')\n")
    arrivals = [Arrival("a", 0, 0, ((1, 70),), 2), Arrival("b", 1, 3, ((1, 70), (2, 40)), 40)]
    with pytest.raises(PolicyError, match=f"rule {rule}={value}"):
        drive(Options(GROUPS, rules={rule: value}, clock="steps"), arrivals, [16, 16, 16, 16, 16])
