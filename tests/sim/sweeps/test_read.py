"""A sweep file becomes a plan, or one message for each thing that is wrong with it, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import small_sweep
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import InputError
from stateat.sim.scenario.load import load
from stateat.sim.scenario.tree import INLINE, Node, of_plain, plain
from stateat.sim.sweeps.keys import NoSuchKey, covers, locate_key, put
from stateat.sim.sweeps.plan import Plan
from stateat.sim.sweeps.read import read

ROOT = Path(__file__).resolve().parents[3]
S01 = ROOT / "scenarios" / "seeds" / "s01-pr51113-cases.yaml"


def tree(data: Any) -> Node:
    return of_plain(INLINE, data)


def refused(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(small_sweep.sweep(**changes))
    return str(caught.value)


# Keys.


@pytest.mark.parametrize(
    ("key", "location"),
    [
        ("engine.num_blocks", ("engine", "num_blocks")),
        ("engine.watermark", ("engine", "watermark")),
        ("engine.groups.1.block_size", ("engine", "groups", 1, "block_size")),
        ("engine.groups[1].block_size", ("engine", "groups", 1, "block_size")),
        ("engine.rules.split", ("engine", "rules", "split")),
        ("engine.speculative.accepted_drafts.0", ("engine", "speculative", "accepted_drafts", 0)),
        ("engine.offload.blocks", ("engine", "offload", "blocks")),
        ("workload.arrivals.rate", ("workload", "arrivals", "rate")),
        ("workload.prefixes", ("workload", "prefixes")),
        ("oracle.state", ("oracle", "state")),
        ("variants.old.engine.num_blocks", ("variants", "old", "engine", "num_blocks")),
        ("variants.v1.2 (x).rules.split", ("variants", "v1.2 (x)", "rules", "split")),
    ],
)
def test_any_key_of_a_scenario_can_be_named(key: str, location: tuple[str | int, ...]) -> None:
    base = small_sweep.base(variants={"old": {}, "v1.2 (x)": {}})
    assert locate_key(tree(base), key) == location


def test_of_two_variants_whose_names_a_key_may_begin_with_the_longer_one_is_meant() -> None:
    base = small_sweep.base(variants={"old": {}, "old.engine": {}})
    assert locate_key(tree(base), "variants.old.engine") == ("variants", "old.engine")
    assert locate_key(tree(base), "variants.old.engine.engine.num_blocks")[:2] == ("variants", "old.engine")
    assert locate_key(tree(base), "variants.old.engine.num_blocks")[:2] == ("variants", "old")


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("num_blocks", "engine.num_blocks"),
        ("engine.num_block", "engine.num_blocks"),
        ("engine.groups.2.block_size", "engine.groups.1.block_size"),
        ("engine.groups.block_size", "engine.groups.1.block_size"),
        ("engine.rules.splitt", "engine.rules.split"),
        ("workload.arrivals.rates", "workload.arrivals.rate"),
        ("variants.older.engine.num_blocks", "variants.old.engine.num_blocks"),
        ("variants.old.expect.poisoned", ""),
        ("engine", ""),
        ("name", ""),
        ("engine.num_blocks.0", "engine.num_blocks"),
        ("", ""),
    ],
)
def test_a_key_that_does_not_exist_names_the_nearest(key: str, near: str) -> None:
    with pytest.raises(NoSuchKey) as caught:
        locate_key(tree(small_sweep.base()), key)
    assert "no such key of the scenario" in str(caught.value)
    assert not near or f"did you mean {near}" in str(caught.value)


def test_the_seed_is_swept_by_seeds() -> None:
    assert "allowed in `seeds`" in refused(grid={"seed": [1, 2]})


@given(st.integers(1, 10**6))
def test_what_is_put_is_there_and_nothing_else_changes(value: int) -> None:
    base = small_sweep.base()
    changed = plain(put(tree(base), ("engine", "groups", 1, "block_size"), tree(value)))
    assert changed["engine"]["groups"][1]["block_size"] == value
    changed["engine"]["groups"][1]["block_size"] = 160
    assert changed == base
    # What lies between is made.
    assert plain(put(tree({}), ("a", "b"), tree(value))) == {"a": {"b": value}}


def test_an_override_covers_what_it_sets_and_what_it_replaces() -> None:
    override = tree({"engine": {"groups": [1], "num_blocks": 3, "speculative": {"method": "mtp"}}})
    assert covers(override, ("engine", "num_blocks"))
    assert covers(override, ("engine", "groups", 0, "block_size"))
    assert covers(override, ("engine", "speculative"))
    assert not covers(override, ("engine", "speculative", "block_drop"))
    assert not covers(override, ("workload", "count"))


# Plans.


def rows(plan: Plan) -> list[tuple[Any, ...]]:
    return [(t.point, t.seed, t.variant, t.case, *t.values.values()) for t in (plan.task(i) for i in range(plan.runs))]


def test_runs_are_all_combinations_in_order() -> None:
    plan = read(small_sweep.sweep(grid={"engine.num_blocks": [4000, 5000], "workload.count": [10, 20]}, seeds="0:2"))
    assert plan.runs == len(rows(plan)) == 16
    assert rows(plan)[:5] == [
        (0, 0, "old", "", 4000, 10),
        (0, 0, "new", "", 4000, 10),
        (0, 1, "old", "", 4000, 10),
        (0, 1, "new", "", 4000, 10),
        (1, 0, "old", "", 4000, 20),
    ]
    assert len(set(rows(plan))) == 16


def test_a_run_is_what_the_scenario_with_these_values_is() -> None:
    task = read(small_sweep.sweep()).task(3)
    assert (task.seed, task.variant, task.values) == (4, "new", {"engine.max_num_batched_tokens": 400})
    scenario = small_sweep.base(seed=4)
    scenario["engine"]["max_num_batched_tokens"] = 400
    wanted, run = load(scenario).expanded[1], task.run()
    for part in ("scenario", "variant", "case", "options", "budgets", "seed", "truth", "expect", "workload", "base"):
        assert getattr(run, part) == getattr(wanted, part), part


def test_without_a_grid_there_is_one_point_and_without_seeds_the_bases_own() -> None:
    plan = read(small_sweep.sweep(grid=None, seeds=None, base=small_sweep.base(seed=77)))
    assert rows(plan) == [(0, 77, "old", ""), (0, 77, "new", "")]


def test_cases_are_runs_of_their_own_and_expectations_are_left_out() -> None:
    plan = read({"schema": "stateat-sweep/1", "name": "cases", "base": str(S01), "variants": ["old gate"]})
    assert plan.runs == 20
    assert plan.task(0).run().case == "fragmented first chunk"
    assert all(plan.task(i).run().expect is None for i in range(20))


def test_a_base_without_variants_is_one_and_its_preset_may_be_swept() -> None:
    base = small_sweep.base()
    del base["variants"]
    plan = read(small_sweep.sweep(base=base, grid={"engine.preset": ["vllm-0.26.0", "vllm-0.27.0"]}, seeds=[1]))
    assert [plan.task(i).run().variant for i in range(plan.runs)] == ["vllm-0.26.0", "vllm-0.27.0"]


def test_a_base_is_found_beside_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(small_sweep.base(), sort_keys=False))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(small_sweep.sweep(base="b.yaml"), sort_keys=False))
    assert rows(read(tmp_path / "s.yaml")) == rows(read(small_sweep.sweep()))


def test_variants_are_those_of_the_file_and_of_the_caller() -> None:
    assert {row[2] for row in rows(read(small_sweep.sweep(variants=["new"])))} == {"new"}
    assert {row[2] for row in rows(read(small_sweep.sweep(), ["old"]))} == {"old"}
    with pytest.raises(InputError, match="variant: found 'old', allowed new"):
        read(small_sweep.sweep(variants=["new"]), ["old"])


SAMPLE = {
    "engine.num_blocks": {"kind": "integers", "low": 4000, "high": 4100, "step": 50},
    "workload.arrivals.rate": {"kind": "loguniform", "low": 1.0, "high": 100.0},
    "engine.watermark": {"kind": "uniform", "low": 0.0, "high": 0.5},
    "engine.max_num_seqs": {"kind": "choice", "values": [4, 16]},
}


def test_a_sample_draws_each_key_from_a_stream_of_its_own() -> None:
    plan = read(small_sweep.sweep(grid=None, sample={"n": 300, "seed": 5, "over": SAMPLE}, seeds=[0], variants=["new"]))
    assert plan.points == plan.runs == 300
    drawn = [plan.task(i).values for i in range(300)]
    assert {d["engine.num_blocks"] for d in drawn} == {4000, 4050, 4100}
    assert {d["engine.max_num_seqs"] for d in drawn} == {4, 16}
    assert all(1 <= d["workload.arrivals.rate"] <= 100 and 0 <= d["engine.watermark"] <= 0.5 for d in drawn)
    assert 120 < sum(d["workload.arrivals.rate"] < 10 for d in drawn) < 180
    fewer = {key: SAMPLE[key] for key in reversed(list(SAMPLE)[1:])}
    other = read(small_sweep.sweep(grid=None, sample={"n": 300, "seed": 5, "over": fewer}, variants=["new"]))
    assert [other.task(2 * i).values["engine.watermark"] for i in range(300)] == [d["engine.watermark"] for d in drawn]
    reseeded = read(small_sweep.sweep(grid=None, sample={"n": 300, "seed": 6, "over": SAMPLE}))
    assert reseeded.task(0).values != drawn[0]


def test_a_plan_is_known_by_its_fingerprint() -> None:
    one = read(small_sweep.sweep()).fingerprint()
    assert read(small_sweep.sweep()).fingerprint() == one
    assert read(small_sweep.sweep(title="other words", name="n")).fingerprint() == one
    for change in (
        {"seeds": [3]},
        {"variants": ["new"]},
        {"grid": {"engine.max_num_batched_tokens": [800, 400]}},
        {"grid": {"engine.num_blocks": [4000, 5000]}},
        {"base": small_sweep.base(workload={**small_sweep.BASE["workload"], "count": 41})},
    ):
        assert read(small_sweep.sweep(**change)).fingerprint() != one


# What is wrong.


def test_a_grid_of_a_million_runs_asks() -> None:
    grid = {"engine.num_blocks": list(range(4000, 5000)), "workload.count": list(range(1, 1001))}
    sweep = small_sweep.sweep(grid=grid, seeds=None, variants=["new"])
    with pytest.raises(InputError, match=r"1,000,000 runs \(1,000,000 points, 1 seeds, 1 variants.*--yes"):
        read(sweep, limit=10_000)
    assert read(sweep).runs == 10**6
    grid["engine.max_num_seqs"] = list(range(1, 100))
    with pytest.raises(InputError, match="99,000,000 runs, allowed at most 10,000,000"):
        read(sweep)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {}}, "grid: found an empty mapping, allowed at least 1 entries"),
        ({"grid": {"engine.num_blocks": []}}, "grid.engine.num_blocks: found an empty list, allowed at least 1"),
        ({"grid": {"engine.num_blocks": 4000}}, "grid.engine.num_blocks: found 4000, allowed a list"),
        ({"grid": {"engine.num_blocks": [4000, 4000]}}, "grid.engine.num_blocks[1]: found 4000 twice, allowed once"),
        ({"grid": {"engine.num_block": [1]}}, "grid.engine.num_block: no such key of the scenario (did you mean"),
        ({"grid": {"variants.old.preset": ["vllm-0.27.0"], "engine.preset": ["vllm-0.28.0"]}}, "variants.new of the"),
        ({"grid": {"engine.preset": ["vllm-0.28.0"]}}, "variants.old of the base sets it too, allowed variants.old."),
        ({"grid": {"engine.groups": [[]], "engine.groups.0.block_size": [8]}}, "found it beside engine.groups, allow"),
        ({"grid": {"engine.num_blocks": [-1]}}, "grid.engine.num_blocks[0]: found -1, allowed at least 1 (with"),
        ({"grid": {"engine.num_blocks": ["many"]}}, "grid.engine.num_blocks[0]: found the text 'many', allowed a"),
        ({"grid": {"workload.arrivals.rate": [{}]}}, "grid.workload.arrivals.rate[0]: found an empty mapping, allowed"),
        ({"sample": {"n": 1, "over": SAMPLE}}, "found grid and sample, allowed one of them"),
        ({"grid": None, "sample": {"n": 0, "over": SAMPLE}}, "sample.n: found 0, allowed at least 1"),
        ({"grid": None, "sample": {"n": 1, "over": {}}}, "sample.over: found an empty mapping, allowed at least 1"),
        (
            {"grid": None, "sample": {"n": 1, "over": {"engine.num_blocks": {"kind": "normal"}}}},
            "sample.over.engine.num_blocks.kind: found the text 'normal', allowed uniform, loguniform, integers",
        ),
        (
            {"grid": None, "sample": {"n": 1, "over": {"workload.count": {"kind": "integers", "low": 5, "high": 4}}}},
            "found low 5 above high 4, allowed low <= high",
        ),
        (
            {"grid": None, "sample": {"n": 3, "over": {"workload.count": {"kind": "uniform", "low": 2.5, "high": 3}}}},
            "sample.over.workload.count: found",
        ),
        ({"seeds": []}, "seeds: found an empty list, allowed at least 1 entries"),
        ({"seeds": [1, 1]}, "seeds: found 1 twice, allowed once"),
        ({"seeds": "5:5"}, "seeds: found '5:5', allowed a list of seeds, or FIRST:END such as 0:100"),
        ({"seeds": 5}, "seeds: allowed a list of seeds, or FIRST:END such as 0:100"),
        ({"seeds": "٠:٣"}, "seeds: found '٠:٣', allowed a list of seeds, or FIRST:END such as 0:100"),
        ({"variants": ["old", "old"]}, "variants: found 'old' twice, allowed once"),
        ({"grid": {"engine.groups.١.block_size": [16]}}, "engine.groups.١.block_size: no such key of the scenario"),
        ({"grid": {"engine." + "a." * 50_000: [1]}}, "a.a…: no such key of the scenario"),
        ({"base": "x" * 5000}, "base: found 'xxx"),
        ({"base": "a\0b"}, "base: found 'a\\x00b', allowed an existing file"),
        ({"seeds": [-1]}, "seeds[0]: found -1, allowed at least 0"),
        ({"variants": ["nobody"]}, "variants[0]: found 'nobody', allowed old, new"),
        ({"variants": ["new"], "grid": {"variants.old.preset": ["vllm-0.26.0"]}}, "variants.old is not among those"),
        ({"base": 3}, "base: allowed the path of a scenario file, or a scenario"),
        ({"base": "nowhere.yaml"}, "base: found 'nowhere.yaml', allowed an existing file"),
        ({"base": small_sweep.base(engine=None), "grid": None}, "groups: found no such key, required"),
        ({"base": small_sweep.base(title=3)}, "base.title: found 3, allowed text"),
        ({"bas": 1}, "bas: unknown key (did you mean base?)"),
        ({"schema": "stateat-sweep/2"}, "schema: found the text 'stateat-sweep/2', allowed stateat-sweep/1"),
        ({"schema": "stateat/1"}, "is a scenario, allowed a sweep"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_runs(changes: dict[str, Any], message: str) -> None:
    found = refused(**changes)
    assert message in found
    lines = found.splitlines()
    assert all(line.startswith("<mapping>: ") for line in lines)
    assert len(lines) == (2 if "of the base sets it too" in found else 1)


def test_a_value_that_does_not_go_with_some_others_is_no_error_and_one_that_goes_with_none_is() -> None:
    drafts, right = "engine.speculative.num_speculative_tokens", "engine.speculative.accepted_drafts"
    assert read(small_sweep.sweep(grid={drafts: [1, 3], right: [[1], [3]]})).points == 4
    found = refused(grid={drafts: [1, 3], right: [[1], [4]]})
    assert found.startswith("<mapping>: grid.engine.speculative.accepted_drafts[1][0]: found 4, allowed 0 to 1")
    assert found.endswith(f"(with {drafts}=1, {right}=[4])")


def test_a_wrong_value_is_told_with_the_line_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(small_sweep.base(), sort_keys=False))
    text = "schema: stateat-sweep/1\nname: s\nbase: b.yaml\ngrid:\n  engine.num_blocks:\n    - 4000\n    - -1\n"
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "s.yaml")
    assert str(caught.value) == (
        f"{tmp_path / 's.yaml'}:7: grid.engine.num_blocks[1]: found -1, allowed at least 1 (with engine.num_blocks=-1)"
    )


def test_what_is_wrong_with_the_base_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(small_sweep.base(engin={})))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(small_sweep.sweep(base="b.yaml", grid=None)))
    with pytest.raises(InputError, match=r"b.yaml:1: engin: unknown key|b.yaml:\d+: engin: unknown key"):
        read(tmp_path / "s.yaml")


def test_a_trace_that_is_not_there_is_told_before_anything_runs() -> None:
    workload = {"trace": {"format": "mooncake", "path": "nowhere.jsonl"}}
    found = refused(base=small_sweep.base(workload=workload))
    assert "found 'nowhere.jsonl', allowed an existing file" in found and len(found.splitlines()) == 1


def test_what_any_of_its_runs_warns_of_is_told_once() -> None:
    request = {"id": "a", "arrive": 0, "prompt": [[1, 400]], "external": 160, "load_error": True}
    plan = read(small_sweep.sweep(base=small_sweep.base(workload={"requests": [request]})))
    keys = [text.partition(":")[0] for text in plan.warnings]
    assert keys == ["workload.requests.external", "workload.requests.load_error"]
    assert read(small_sweep.sweep()).warnings == ()


def test_a_sweep_is_no_scenario(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(small_sweep.sweep(), sort_keys=False))
    with pytest.raises(InputError, match=r"s.yaml:1: is a sweep, allowed a scenario; to run it: stateat sweep"):
        load(file)


def test_what_is_wrong_with_one_variant_alone_names_it_and_the_line_of_the_sweep(tmp_path: Path) -> None:
    base = (
        "schema: stateat/1\nname: base\nengine:\n  groups: [{name: gdn, kind: recurrent, block_size: 64}]\n"
        "  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [0]}\n"
        "workload:\n  requests: [{id: a, prompt: [[1, 200]]}]\n"
        "variants:\n  on: {}\n  none: {engine: {speculative: {num_speculative_tokens: 0}}}\n"
    )
    (tmp_path / "base.yaml").write_text(base)
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "schema: stateat-sweep/1\nname: s\nbase: base.yaml\nvariants: [none]\n"
        "grid:\n  engine.speculative.accepted_drafts:\n    - [3]\n"
    )
    with pytest.raises(InputError) as caught:
        read(file)
    where = f"{file}:7: variants.none: grid.engine.speculative.accepted_drafts[0][0]: found 3, allowed 0 to 0"
    assert str(caught.value).startswith(where)
