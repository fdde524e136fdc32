"""Event logs: what is written is read again, and what is broken says where."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.adapters.log import Recorder, read
from stateat.sim.errors import InputError
from stateat.sim.events import EVENTS, SCHEMA, Event, Group, Observer
from stateat.sim.report.machine.json import to_json
from stateat.sim.run.simulate import audit, replay, simulate
from stateat.sim.scenario.load import load, runs

ROOT = Path(__file__).resolve().parents[3]
S02 = ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml"
S05 = ROOT / "scenarios" / "seeds" / "s05-concurrency.yaml"


class Through(Observer):
    """Hands everything on, whatever the listener is made of."""

    def __init__(self, listener: Observer) -> None:
        self.listener = listener


def _hand_on(name: str) -> Any:
    return lambda self, *args: getattr(self.listener, name)(*args)


for _name in EVENTS:
    setattr(Through, _name, _hand_on(_name))


def record(scenario: Path, *only: str) -> str:
    """The log of a scenario's variants."""
    stream = io.StringIO()
    for run in runs(load(scenario), only=only):
        simulate(run, [Through(Recorder(stream))])
    return stream.getvalue()


GOOD = record(S02)
LINES = GOOD.splitlines()


def write(folder: Path, text: str) -> Path:
    path = folder / "run.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


# Round trip.

NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this type may hold."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return st.one_of(*(values(a) for a in args))
    if origin in (tuple, Sequence):
        if origin is Sequence or args[1:] == (Ellipsis,):
            return st.lists(values(args[0]), max_size=4).map(tuple)
        return st.tuples(*(values(a) for a in args))
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), PLAIN, max_size=4)
    if hint is Group:
        hints = {k: values(t) for k, t in get_type_hints(Group).items()}
        return st.builds(Group, **hints | {"block_size": st.integers(1, 2**20)})
    return {
        str: st.text(max_size=8), int: NUMBERS, bool: st.booleans(), bytes: st.binary(max_size=16), NoneType: st.none(),
    }[hint]  # fmt: skip


def events(name: str) -> st.SearchStrategy[Event]:
    types = get_type_hints(getattr(Observer, name))
    fields = [st.just(SCHEMA) if field.name == "schema" else values(types[field.name]) for field in EVENTS[name]]
    return st.builds(Event, st.just(name), st.tuples(*fields))


HEAD = Event("run", (SCHEMA, "e", (), 0, {}))


@pytest.mark.parametrize("name", EVENTS)
@given(data=st.data())
@settings(max_examples=30)
def test_every_event_is_read_as_it_was_written(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    told = [HEAD, *data.draw(st.lists(events(name), min_size=1, max_size=3))]
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        recorder = Recorder(stream)
        for event in told:
            event.tell(recorder)
    assert list(read(path)) == told
    assert all(next(iter(json.loads(line))) == "event" for line in path.read_text().splitlines())


def test_lists_of_the_engine_are_written_as_tuples_are_read(tmp_path: Path) -> None:
    stream = io.StringIO()
    recorder = Recorder(stream)
    HEAD.tell(recorder)
    recorder.advance("a", 1, 0, 3, [5, 6], -1, [(2, 7), (3, 8)], 0)
    recorder.claim(1, 7, "a", 0, 16, b"\x00\xff")
    _, advance, claim = read(write(tmp_path, stream.getvalue()))
    assert advance == Event("advance", ("a", 1, 0, 3, (5, 6), -1, ((2, 7), (3, 8)), 0))
    assert claim.values[-1] == b"\x00\xff"


def test_what_no_log_can_hold_is_an_error_of_the_program() -> None:
    with pytest.raises(TypeError, match="an event holds a set"):
        Recorder(io.StringIO()).run(SCHEMA, "e", (), 0, {"options": {1, 2}})


def test_an_older_log_is_read_and_has_no_newer_event(tmp_path: Path) -> None:
    old = GOOD.replace(SCHEMA, "stateat-log/1")
    assert old != GOOD
    (now,) = [replace(r, path="") for r in (audit(write(tmp_path, GOOD)),)]
    (then,) = [replace(r, path="") for r in (audit(write(tmp_path, old)),)]
    assert now == then
    store = '{"event":"store","group":1,"slot":3,"key":"ab","offset":1600}'
    with pytest.raises(InputError, match=r"run.jsonl:2: event: found 'store', allowed: run, arrive"):
        list(read(write(tmp_path, f"{old.splitlines()[0]}\n{store}\n")))
    assert len(list(read(write(tmp_path, f"{LINES[0]}\n{store}\n")))) == 2


def test_empty_lines_do_not_count(tmp_path: Path) -> None:
    spaced = write(tmp_path, "\n\n".join(["", *LINES, "  ", ""]))
    assert len(list(read(spaced))) == len(LINES)


def test_a_run_writes_the_same_bytes_again() -> None:
    assert record(S02) == GOOD
    assert GOOD.endswith("\n") and "\r" not in GOOD


def test_a_recorder_beside_the_oracle_hears_every_event() -> None:
    stream = io.StringIO()
    (run,) = runs(load(S02), only=["old gate"])
    simulate(run, [Recorder(stream)])
    assert stream.getvalue() == record(S02, "old gate") != ""


# What is broken.


def changed(line: int, **values: Any) -> str:
    """The good log with keys of a line replaced (... for one that is left out)."""
    data = json.loads(LINES[line - 1]) | values
    text = json.dumps({k: v for k, v in data.items() if v is not ...})
    return "\n".join([*LINES[: line - 1], text, *LINES[line:]])


def line_of(name: str, has: str = "") -> int:
    return next(i for i, line in enumerate(LINES, 1) if f'"event":"{name}"' in line and has in line)


CHUNK, CLAIM, ADVANCE = line_of("chunk"), line_of("claim"), line_of("advance")
RESTORE, ARRIVE, OUTPUT = line_of("restore"), line_of("arrive"), line_of("output")


def groups(**values: Any) -> list[dict[str, Any]]:
    first, second = json.loads(LINES[0])["groups"]
    return [first, {k: v for k, v in (second | values).items() if v is not ...}]


OPTIONS = json.loads(LINES[0])["options"]


def twice(line: int, once: str, both: str) -> str:
    """The good log with a key twice in a line."""
    assert once in LINES[line - 1]
    return "\n".join([*LINES[: line - 1], LINES[line - 1].replace(once, both), *LINES[line:]])


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (1, changed(1, event="step"), "run.jsonl:1: step.budget: missing"),
        (1, "\n".join(LINES[1:]), "run.jsonl:1: event: found arrive, allowed: run"),
        (1, changed(1, schema="stateat-log/0"), "schema: found 'stateat-log/0', allowed: stateat-log/1"),
        (1, changed(1, schema=...), "schema: found None, allowed: stateat-log/1"),
        (1, changed(1, groups=groups(kind=...)), "run.groups[1]: found"),
        (1, changed(1, groups=groups(more=1)), "run.groups[1]: found"),
        (1, changed(1, groups={}), "run.groups: found {}"),
        (1, changed(1, options=[]), "run.options: found []"),
        (3, "\n".join([*LINES[:2], "{", *LINES[2:]]), "not JSON"),
        (3, "\n".join([*LINES[:2], "[1, 2]", *LINES[2:]]), "found list, allowed is an object"),
        (3, "\n".join([*LINES[:2], "3", *LINES[2:]]), "found int, allowed is an object"),
        (3, "\n".join([*LINES[:2], "null", *LINES[2:]]), "found NoneType, allowed is an object"),
        (3, "\n".join([*LINES[:2], "[" * 100_000, *LINES[2:]]), "not JSON"),
        (3, "\n".join([*LINES[:2], '{"event": "chunk", "start": ' + "9" * 5000 + "}", *LINES[2:]]), "not JSON"),
        (3, "\n".join([*LINES[:2], "{}", *LINES[2:]]), "event: found None, allowed: run, arrive, step"),
        (3, "\n".join([*LINES[:2], '{"event": ["run"]}', *LINES[2:]]), "event: found ['run'], allowed: run"),
        (CHUNK, changed(CHUNK, event="chunks"), "event: found 'chunks', allowed: run"),
        (CHUNK, changed(CHUNK, end=...), "chunk.end: missing"),
        (CHUNK, changed(CHUNK, extra=1), "chunk.extra: an unknown key"),
        (CHUNK, changed(CHUNK, start="0"), "chunk.start: found '0', allowed is int"),
        (CHUNK, changed(CHUNK, start=0.0), "chunk.start: found 0.0, allowed is int"),
        (CHUNK, changed(CHUNK, start=None), "chunk.start: found None, allowed is int"),
        (CHUNK, changed(CHUNK, start=True), "chunk.start: found True, allowed is int"),
        (CHUNK, changed(CHUNK, request=3), "chunk.request: found 3, allowed is str"),
        (CHUNK, changed(CHUNK, accepted=3), "chunk.accepted: found 3"),
        (CHUNK, changed(CHUNK, accepted=[0, "x"]), "chunk.accepted[1]: found 'x', allowed is int"),
        (CLAIM, changed(CLAIM, hash="xyz"), "claim.hash: found 'xyz', allowed is hexadecimal"),
        (CLAIM, changed(CLAIM, hash=7), "claim.hash: found 7, allowed is bytes"),
        (ADVANCE, changed(ADVANCE, writes=[[1, 2, 3]]), "advance.writes[0]: found [1, 2, 3]"),
        (ADVANCE, changed(ADVANCE, writes=[[1, None]]), "advance.writes[0][1]: found None, allowed is int"),
        (RESTORE, changed(RESTORE, group_hits={}), "restore.group_hits: found {}"),
        (ARRIVE, changed(ARRIVE, tokens=["x"]), "arrive.tokens[0]: found 'x', allowed is int"),
        (ARRIVE, changed(ARRIVE, segments=[[1]]), "arrive.segments[0]: found [1]"),
        (OUTPUT, changed(OUTPUT, tokens=3), "output.tokens: found 3"),
        (CHUNK, changed(CHUNK, end=2**63), "chunk.end: found 9223372036854775808, allowed is -9223372036854775808 to"),
        (CHUNK, changed(CHUNK, start=-(2**63) - 1), "chunk.start: found -9223372036854775809, allowed is"),
        (ADVANCE, changed(ADVANCE, writes=[[10**3000, 1]]), "advance.writes[0][0]: found 9966 bits, allowed is"),
        (1, changed(1, groups=groups(block_size=2**63)), "run.groups[1].block_size: found 9223372036854775808"),
        (1, changed(1, options=OPTIONS | {"x": [{"y": "\ud800"}]}), "run.options: found '\\ud800', which is not text"),
        (1, changed(1, options=OPTIONS | {"\udc00": 1}), "run.options: found '\\udc00', which is not text"),
        (CHUNK, changed(CHUNK, request="a\ud800"), "chunk.request: found '\\ud800', which is not text"),
        (CHUNK, twice(CHUNK, '"start":0', '"start":1,"start":0'), "start: found twice in an object, allowed once"),
        (1, twice(1, '"eagle":true', '"eagle":false,"eagle":true'), "eagle: found twice in an object, allowed once"),
        (len(LINES), "\n".join(LINES)[:-5], "not JSON"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named_with_what_was_found(tmp_path: Path, line: int, text: str, said: str) -> None:
    path = write(tmp_path, text)
    for reader in (lambda: list(read(path)), lambda: audit(path)):
        with pytest.raises(InputError) as caught:
            reader()
        assert str(caught.value).startswith(f"{path}:{line}: ")
        assert said in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [{"block_size": "x"}, {"block_size": 1.5}, {"name": 3}, {"eagle": "yes"}, {"kind": None}, {"block_size": 0}],
)
def test_a_group_with_a_wrong_type_is_named_with_its_line(tmp_path: Path, value: dict[str, Any]) -> None:
    path = write(tmp_path, changed(1, groups=groups(**value)))
    with pytest.raises(InputError) as caught:
        list(read(path))
    assert str(caught.value).startswith(f"{path}:1: run.groups[1]")


@pytest.mark.parametrize("text", ["", "\n\n  \n"])
def test_an_empty_log_says_so(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    for reader in (lambda: list(read(path)), lambda: audit(path)):
        with pytest.raises(InputError, match="an empty log"):
            reader()


def test_what_is_no_text_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(GOOD.encode() + b"\xff\xfe\n")
    line = GOOD.count("\n") + 1
    cases = {path: f":{line}: not UTF-8", tmp_path: ": is a directory", tmp_path / "none.jsonl": ": no such file"}
    for wrong, said in cases.items():
        with pytest.raises(InputError) as caught:
            list(read(wrong))
        assert str(caught.value).startswith(f"{wrong}{said}")


# What parses and does not follow.


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (CHUNK, {"request": "nobody"}),
        (CLAIM, {"group": 9}),
        (CLAIM, {"offset": 10**9}),
        (ADVANCE, {"start": 10**9, "end": 10**9 + 5, "writes": [[10**9 + 5, 24]]}),
        (ARRIVE, {"segments": [[-(2**70), 5]]}),
        (1, {"options": {}}),
        (1, {"groups": []}),
    ],
)
def test_an_event_that_does_not_follow_is_named(tmp_path: Path, line: int, values: dict[str, Any]) -> None:
    path = write(tmp_path, changed(line, **values))
    with pytest.raises(InputError) as caught:
        audit(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


UNBOUNDED: list[tuple[str, type[Exception] | None, int, dict[str, Any]]] = [
    ("a block of 0", 1, {"groups": groups(block_size=0)}),
    ("a hash unit of 0", 1, {"options": json.loads(LINES[0])["options"] | {"hash_unit": 0}}),
    ("a budget", 1, {"options": OPTIONS | {"max_num_batched_tokens": 2**63}}),
    ("the end of a chunk", CHUNK, {"start": 0, "end": 2**70}),
    ("a prompt", ARRIVE, {"segments": [[1, 2**50]]}),
    ("outputs", ARRIVE, {"max_tokens": 2**50}),
    ("a step", line_of("step"), {"index": 2**70}),
    ("steps", CHUNK, {"steps": 2**50}),
]


@pytest.mark.parametrize(
    ("line", "values"),
    [pytest.param(line, values, id=name) for name, line, values in UNBOUNDED],
)
def test_nor_does_a_number_out_of_all_bounds(tmp_path: Path, line: int, values: dict[str, Any]) -> None:
    path = write(tmp_path, changed(line, **values))
    with pytest.raises(InputError):
        audit(path)


VALUES = st.none() | st.booleans() | st.integers(-3, 40) | st.sampled_from(["", "a", "b", "evict"]) | st.lists(
    st.integers(-1, 9), max_size=2
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=300)
def test_a_mutated_log_is_audited_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    lines = list(LINES)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(1, len(lines))
        act = rng.choice(["drop", "double", "swap", "character", "cut", "value", "value", "value"])
        if act == "drop":
            del lines[place]
        elif act == "double":
            lines.insert(place, lines[place])
        elif act == "swap":
            other = rng.randrange(1, len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        elif act == "character":
            at = rng.randrange(len(lines[place]) or 1)
            lines[place] = lines[place][:at] + rng.choice('x{}[]",:0-') + lines[place][at + 1 :]
        elif act == "cut":
            lines[place] = lines[place][: rng.randrange(len(lines[place]) or 1)]
        else:
            try:
                event = json.loads(lines[place])
                event[rng.choice(sorted(event))] = data.draw(VALUES)
                lines[place] = json.dumps(event)
            except (ValueError, TypeError, IndexError):
                continue
    path = write(tmp_path_factory.mktemp("log"), "\n".join(lines))
    try:
        result = audit(path)
    except InputError as error:
        assert str(error).startswith(str(path))
    else:
        json.dumps(to_json(result))


# An audit hears what the run heard.


def findings(scenario: Path, *only: str) -> dict[str, Any]:
    return to_json(replay(load(scenario), only=only))


@pytest.mark.parametrize(("scenario", "only"), [(S02, ()), (S05, ("8 clients",))], ids=["s02", "s05 8 clients"])
def test_an_audit_of_the_log_finds_what_the_run_found(tmp_path: Path, scenario: Path, only: tuple[str, ...]) -> None:
    live = findings(scenario, *only)
    heard = to_json(audit(write(tmp_path, record(scenario, *only))))
    assert any(variant["findings"] for variant in live["variants"].values())
    assert heard == live


def test_an_audit_takes_other_findings_from_another_log(tmp_path: Path) -> None:
    """Negative control: a claim of state@1600 becomes one of state@364, which is what the slot holds."""
    live = findings(S02)
    heard = to_json(audit(write(tmp_path, changed(CLAIM, offset=364))))
    assert live["variants"]["old gate"]["poisoned"] == 1
    assert heard["variants"]["old gate"]["poisoned"] == 0
    assert heard["variants"]["fixed gate"] == live["variants"]["fixed gate"]


def test_cases_of_a_scenario_are_cases_of_its_log(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "seeds" / "s08-realign-below-last-cache-position.yaml"
    assert to_json(audit(write(tmp_path, record(scenario)))) == findings(scenario)


def test_an_audit_takes_the_truth_that_the_run_had_unless_another_is_asked_for(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "field" / "components-of-a-slot-apart.yaml"
    torn = "the inputs are not shifted"
    path = write(tmp_path, record(scenario, torn))
    live = findings(scenario, torn)
    assert to_json(audit(path)) == live
    assert {f["invariant"] for f in live["variants"][torn]["findings"]} == {"I13"}
    (without,) = audit(path, {"state": "digest"}).variants.values()
    assert without.findings == () and [text[:31] for text in without.not_asked] == ["the components of a slot, I13 ("]


def test_a_log_without_a_truth_is_not_asked_what_digest_cannot_say(tmp_path: Path) -> None:
    scenario = ROOT / "scenarios" / "field" / "components-of-a-slot-apart.yaml"
    first, *rest = record(scenario, "the inputs are not shifted").split('{"event":"run"')[1].splitlines()
    head = json.loads('{"event":"run"' + first)
    del head["options"]["oracle"]
    path = write(tmp_path, "\n".join([json.dumps(head), *rest]))
    asked = [(set(), 1), ({"I13"}, 0)]
    for truth, (found, unasked) in zip(({}, {"state": "gated-delta"}), asked, strict=True):
        (outcome,) = audit(path, truth).variants.values()
        assert ({f.invariant for f in outcome.findings}, len(outcome.not_asked)) == (found, unasked)


@pytest.mark.parametrize(
    "oracle",
    [
        {}, [], {"dtype": "float32"}, {"state": 3}, {"state": "dig"}, {"state": "digest", "dtype": "bfloat16"},
        {"state": "gated-delta", "dtype": "float8"}, {"state": "gated-delta", "backend": "numpy"},
    ],
)  # fmt: skip
def test_a_truth_that_cannot_be_is_named_with_its_line(tmp_path: Path, oracle: Any) -> None:
    path = write(tmp_path, changed(1, options=OPTIONS | {"oracle": oracle}))
    with pytest.raises(InputError, match=r"run.jsonl:1: run.options.oracle: found .*, allowed is what oracle of a"):
        audit(path)


def test_a_log_without_names_is_that_of_its_engine(tmp_path: Path) -> None:
    options = {k: v for k, v in json.loads(LINES[0])["options"].items() if k not in ("variant", "case", "scenario")}
    last = next(i for i, line in enumerate(LINES) if '"event":"end"' in line)
    text = "\n".join([json.dumps(json.loads(LINES[0]) | {"options": options}), *LINES[1 : last + 1]])
    result = audit(write(tmp_path, text))
    assert (result.scenario, list(result.variants)) == ("run", ["vllm-0.26.0"])


def test_a_real_deployments_tokens_are_checked_as_they_are(tmp_path: Path) -> None:
    """Explicit ids in place of segments: the same verdicts."""
    from stateat.sim.tokens import Tokens

    lines = []
    for line in LINES:
        event = json.loads(line)
        if event["event"] == "arrive":
            segments = [tuple(pair) for pair in event["segments"]]
            prompt = Tokens.generate(segments, event["index"], 0).ids.tolist()
            event |= {"segments": [], "tokens": prompt}
        elif event["event"] == "output":
            event["tokens"] = [7] * event["count"]
        lines.append(json.dumps(event))

    def counts(tree: dict[str, Any]) -> list[tuple[int, int, int]]:
        return [(v["poisoned"], v["wrong_restores"], len(v["findings"])) for v in tree["variants"].values()]

    assert counts(to_json(audit(write(tmp_path, "\n".join(lines))))) == counts(findings(S02))


def test_a_log_without_encoded_items_may_leave_their_key_out(tmp_path: Path) -> None:
    line = {"event": "arrive", "request": "a", "index": 0, "time_us": 0, "segments": [[1, 4]], "tokens": None}
    start = next(line for line in (ROOT / "docs/examples/deployment.jsonl").read_text().splitlines())
    path = tmp_path / "log.jsonl"
    path.write_text(start + "\n" + json.dumps({**line, "max_tokens": 1}) + "\n")
    assert [event.values[-1] for event in read(path) if event.name == "arrive"] == [()]
    path.write_text(start + "\n" + json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"log\.jsonl:2: arrive\.max_tokens: missing"):
        list(read(path))
