"""What a log cannot say: every field of every event is held against what went before."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.adapters.coherence import Coherence
from stateat.sim.adapters.log import Recorder
from stateat.sim.errors import InputError
from stateat.sim.events import EVENTS, SCHEMA, Fanout, Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.report.machine.json import to_json
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import audit, drive, simulate
from stateat.sim.scenario.load import load, runs
from stateat.sim.workload import Arrival

ROOT = Path(__file__).resolve().parents[3]
DEPLOYMENT = (ROOT / "docs" / "examples" / "deployment.jsonl").read_text().splitlines()


def heard(folder: Path, lines: list[str]) -> str:
    """All that an audit says of a log, times apart; or that it refuses it."""
    path = folder / "run.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    try:
        result = audit(path)
    except InputError as error:
        assert str(error).startswith(f"{path}:")
        return "refused"
    tree = to_json(result)
    for variant in tree["variants"].values():
        del variant["ttft_us"]
    return json.dumps(tree)


def edited(line: int, **values: Any) -> list[str]:
    """The deployment's log with fields of a line (from 1) changed."""
    event = json.loads(DEPLOYMENT[line - 1]) | values
    return [*DEPLOYMENT[: line - 1], json.dumps(event), *DEPLOYMENT[line:]]


def said(folder: Path, lines: list[str]) -> str:
    """Why a log is refused: the line and what follows it."""
    path = folder / "run.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        audit(path)
    assert str(caught.value).startswith(f"{path}:")
    return str(caught.value).removeprefix(f"{path}:")


# One field changed.

WITHOUT_EVIDENCE = {
    ("run", "groups"): "a name, a drafter's drop and the interval of tokens that a window has are taken as told",
    ("run", "num_speculative_tokens"): "more drafts than anybody makes",
    ("run", "options"): "a limit that nothing comes near",
    ("arrive", "index"): "only the order counts",
    ("arrive", "time_us"): "a time; it only has to come before its step",
    ("arrive", "tokens"): "tokens behind the last state that anybody claims or reads",
    ("arrive", "max_tokens"): "a limit; a real request may end before it",
    ("step", "time_us"): "a time; it only has to grow",
    ("step", "budget"): "a limit that nothing comes near",
    ("commit", "time_us"): "a time; it only has to grow",
    ("end", "time_us"): "a time; it only has to grow",
    ("claim", "hash"): "a name; nothing else is keyed by it",
    ("chunk", "stop"): "a text; it is asked only of a chunk that ends off the grid",
    ("advance", "read"): "another slot that holds the very state: the null block a zero state, or the source of a copy",
    (
        "advance",
        "writes",
    ): "a state that nobody claims or reads, into the null block or a slot that somebody had before",
    ("copy", "conv_src"): "the convolution's window: followed with a family that has one, and digest has none",
    ("restore", "group_hits"): "what the group itself had; asked of attention alone",
    ("output", "tokens"): "tokens behind the last state that anybody claims or reads",
}
"""Of a field of an event: why a change may go unnoticed."""


def changes(value: Any) -> Iterator[Any]:
    """Other values of a field."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (value + 1, value - 1, 0, 77, 123_456) if other != value)
    elif isinstance(value, str):
        yield f"ff{value}"
        if value:
            yield ""
    elif value is None:
        yield from (7, [1])
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in changes(inner))
            yield {other: kept for other, kept in value.items() if other != key}
    else:
        for i, inner in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in changes(inner))
            yield [*value[:i], *value[i + 1 :]]
        yield [*value, value[-1] if value else 1]


def test_a_changed_field_is_noticed_unless_it_carries_no_evidence(tmp_path: Path) -> None:
    as_it_is = heard(tmp_path, DEPLOYMENT)
    unnoticed, tried = set(), 0
    for line, text in enumerate(DEPLOYMENT, 1):
        event = json.loads(text)
        for key, value in event.items():
            for other in changes(value) if key != "event" else ():
                tried += 1
                if heard(tmp_path, edited(line, **{key: other})) == as_it_is:
                    unnoticed.add((event["event"], key))
    assert tried > 600
    assert unnoticed == set(WITHOUT_EVIDENCE)


@pytest.mark.parametrize(
    ("line", "values", "text"),
    [
        (8, {"group": 77}, "8: advance.group: found 77, allowed is a recurrent group: 0"),
        (8, {"end": 123_456}, "8: advance.end: found 123456, allowed is 4, where its chunk ends"),
        (8, {"writes": [[999, 1]]}, "8: advance.writes: found 999, allowed is 1 to 4, within the chunk"),
        (8, {"writes": [[4, 9]]}, "8: advance.writes: found 9, allowed is a slot that was handed out"),
        (10, {"index": 0}, "10: step.index: found 0, allowed is more than that of the step before (0)"),
        (12, {"end": 9}, "12: chunk.end: found 9, allowed is 5 to 6, as far as tokens are known"),
        (17, {"request": "c"}, "17: finish.request: found 'c', allowed is one that arrived"),
        (18, {"time_us": 1}, "18: commit.time_us: found 1, allowed is 900 or more"),
        (6, {"slot": 2}, "9: claim.slot: found 2"),
        (15, {"count": 2, "tokens": [77, 78]}, "15: output.count: found 2, allowed is 1 to 1"),
        (16, {"slots": [2]}, "17: finish.request: found 'a', allowed is a release before of [1], group 0"),
        (31, {"steps": 1}, "31: end.steps: found 1, allowed is more than the last step's index (2)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_its_line(line: int, values: dict[str, Any], text: str, tmp_path: Path) -> None:
    message = said(tmp_path, edited(line, **values))
    # A claim may stand for a copy that is still to come, until its step is over.
    assert message.startswith(text.replace("9: claim", "6: claim")), message


def test_a_line_that_is_left_out_or_told_twice_is_noticed(tmp_path: Path) -> None:
    as_it_is = heard(tmp_path, DEPLOYMENT)
    dropped, doubled = [], []
    for i, text in enumerate(DEPLOYMENT):
        if heard(tmp_path, [*DEPLOYMENT[:i], *DEPLOYMENT[i + 1 :]]) == as_it_is:
            dropped.append(json.loads(text)["event"])
        if heard(tmp_path, [*DEPLOYMENT[:i], text, *DEPLOYMENT[i:]]) == as_it_is:
            doubled.append(json.loads(text)["event"])
    # A log that was cut off is a log.
    assert (dropped, doubled) == (["end"], [])


# The same of a run with steps in flight.


IN_FLIGHT = Options(
    (Group("attention", "full-attention", 4, eagle=True), Group("gdn", "recurrent", 8)),
    num_blocks=30,
    max_num_batched_tokens=16,
    async_scheduling=True,
    speculative=Speculative("mtp", 2, (1, 0, 2)),
    clock="steps",
)
FLYING = (Arrival("a", 0, 0, ((1, 11),), 7), Arrival("b", 1, 3, ((1, 11), (2, 6)), 5), Arrival("c", 2, 4, ((3, 5),), 9))


def written(folder: Path, options: Options = IN_FLIGHT, fast_forward: bool = True) -> list[str]:
    """The log of an asynchronous run, in which a request is taken away while it has steps in flight."""
    path = folder / "written.jsonl"
    with path.open("w") as stream:
        arrivals = [*FLYING[:2], replace(FLYING[2], abort=8, abort_late=True)]
        drive(options, arrivals, observers=[Recorder(stream)], fast_forward=fast_forward)
    return path.read_text().splitlines()


def unnoticed(folder: Path, lines: list[str]) -> tuple[int, set[tuple[str, str]]]:
    """How many changes of a field were tried, an eighth of all, and fields of which one went unnoticed."""
    as_it_is, tried, found = heard(folder, lines), 0, set()
    assert as_it_is != "refused"
    for line, text in enumerate(lines):
        event = json.loads(text)
        if event["event"] not in ("run", "arrive", "end"):
            made = [(key, other) for key, value in event.items() if key != "event" for other in changes(value)]
            for key, other in made[line % 8 :: 8]:
                tried += 1
                if heard(folder, [*lines[:line], json.dumps(event | {key: other}), *lines[line + 1 :]]) == as_it_is:
                    found.add((event["event"], key))
    return tried, found


UNHEARD = {
    ("accept", "accepted"): "of the row with a request's last tokens, or of one of which nobody hears",
    ("advance", "drafts"): "ids of wrong drafts",
    ("allocate", "column"): "a column of drafts, behind all others",
    ("claim", "column"): "a column whose slot is claimed already",
    ("allocate", "slots"): "slots of attention",
    ("copy", "shift"): "the convolution's window: digest has none",
    ("copy", "dst"): "a slot that is handed out again before it is read",
    ("release", "slots"): "slots of a request that is taken away in the same step",
}
"""Why a change of a log of ``--log`` may go unnoticed, asynchronous or not."""


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_changed_field_is_noticed_asynchronously_where_it_is_synchronously(
    asynchronous: bool, tmp_path: Path
) -> None:
    tried, found = unnoticed(tmp_path, written(tmp_path, replace(IN_FLIGHT, async_scheduling=asynchronous), False))
    assert tried > 150
    assert found - set(WITHOUT_EVIDENCE) <= set(UNHEARD)


DECIDED = {"step", "commit", "admit", "restore", "chunk", "advance", "accept", "output", "finish", "unclaim"}


def test_a_line_of_an_asynchronous_log_that_is_left_out_or_told_twice_is_noticed(tmp_path: Path) -> None:
    lines = written(tmp_path)
    as_it_is = heard(tmp_path, lines)
    for i, text in enumerate(lines):
        kind = json.loads(text)["event"]
        if kind in DECIDED:
            assert heard(tmp_path, [*lines[:i], *lines[i + 1 :]]) != as_it_is, text
            assert heard(tmp_path, [*lines[:i], text, *lines[i:]]) != as_it_is, text


def _moved(lines: list[str], request: str, by: int) -> list[str]:
    """The log with the first output of a request told so many steps later."""
    line = next(i for i, text in enumerate(lines) if f'"output","request":"{request}"' in text)
    commits = [i for i, text in enumerate(lines) if '"event":"commit"' in text]
    behind = sum(i < line for i in commits)
    rest = [*lines[:line], *lines[line + 1 :]]
    return [*rest[: commits[behind + by] - 1], lines[line], *rest[commits[behind + by] - 1 :]]


@pytest.mark.parametrize(
    ("by", "why"),
    [(-1, "found 'a', allowed is one whose chunk ends at"), (1, "allowed is an output of a before, as its chunk says")],
)
def test_an_outcome_is_told_one_step_behind_its_chunk_no_sooner_and_no_later(by: int, why: str, tmp_path: Path) -> None:
    lines = written(tmp_path, fast_forward=False)
    assert why in said(tmp_path, _moved(lines, "a", by))
    assert heard(tmp_path, _moved(lines, "a", 0)) == heard(tmp_path, lines)


def test_an_asynchronous_log_is_refused_as_a_synchronous_one_and_the_other_way_round(tmp_path: Path) -> None:
    for asynchronous in (True, False):
        first, *rest = written(tmp_path, replace(IN_FLIGHT, async_scheduling=asynchronous))
        head = json.loads(first)
        head["options"]["async_scheduling"] = not asynchronous
        assert "output" in said(tmp_path, [json.dumps(head), *rest])


# What a run writes, whatever its rules.

WRITTEN = [
    "docs/examples/events.yaml",
    "docs/examples/forgetful-worker.yaml",
    "docs/examples/livelock.yaml",
    "scenarios/field/aborted-writer.yaml",
    "scenarios/field/copies-ahead-of-steps-in-flight.yaml",
    "scenarios/field/external-tokens-inside-a-block.yaml",
    "scenarios/field/freed-while-in-flight.yaml",
    "scenarios/field/groups-with-different-states.yaml",
    "scenarios/field/hit-on-a-moved-claim.yaml",
    "scenarios/field/load-that-does-not-arrive.yaml",
    "scenarios/field/look-ahead-into-a-stale-entry.yaml",
    "scenarios/field/neither-least-nor-most.yaml",
    "scenarios/field/null-block-as-a-slot.yaml",
    "scenarios/field/padded-clipped.yaml",
    "scenarios/field/reported-before-the-load-failed.yaml",
    "scenarios/field/retirement-stops-at-a-gap.yaml",
    "scenarios/field/states-in-a-pool-of-their-own.yaml",
    "scenarios/field/states-that-expire.yaml",
    "scenarios/seeds/s02-anatomy.yaml",
    "scenarios/seeds/s03-resume-mid-block.yaml",
    "scenarios/seeds/s17-offload-all-mode.yaml",
    "scenarios/seeds/s21-offload-cost.yaml",
]


class Beside(Observer):
    """Hands on what an engine says, as a log would read it."""


def _hand_on(name: str) -> Any:
    def tell(self: Any, *values: Any) -> None:
        getattr(self.listener, name)(*(tuple(value) if isinstance(value, list) else value for value in values))

    return tell


for _name in EVENTS:
    setattr(Beside, _name, _hand_on(_name))


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: Path(file).stem)
def test_a_run_tells_nothing_that_cannot_be(file: str) -> None:
    for run in runs(load(ROOT / file)):
        beside = Beside()
        beside.listener = Coherence()
        outcome = simulate(run, [beside])
        assert beside.listener.unasked == ()
        assert outcome.not_judged == 0


# What a log may leave out.


def without(*kinds: str) -> list[str]:
    return [line for line in DEPLOYMENT if json.loads(line)["event"] not in kinds]


@pytest.mark.parametrize(
    ("kinds", "not_asked"),
    [
        (("step",), ["order and times of steps"]),
        (("allocate",), ["slots that were handed out"]),
        (("restore",), ["hits against what is published, I5"]),
        (("release",), ["who uses which slot, I8 and I16"]),
        (("release", "restore"), ["hits against", "who uses which slot"]),
        (("finish", "end"), []),
        ((), []),
    ],
)
def test_what_a_log_never_tells_is_not_asked_and_that_is_said(
    kinds: tuple[str, ...], not_asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(without(*kinds)) + "\n")
    (outcome,) = audit(path).variants.values()
    assert outcome.poisoned == 0 and not outcome.grave
    # Nor is what digest cannot say.
    expected = [*not_asked, "the components of a slot, I13"]
    assert len(outcome.not_asked) == len(expected)
    assert all(text.startswith(start) for text, start in zip(outcome.not_asked, expected, strict=True))


def test_what_it_tells_once_it_tells_always(tmp_path: Path) -> None:
    first = next(i for i, line in enumerate(DEPLOYMENT) if '"event":"allocate"' in line)
    message = said(tmp_path, [*DEPLOYMENT[:first], *DEPLOYMENT[first + 1 :]])
    assert message.startswith("6: chunk.end: found 4, allowed is where group 0 has a block")


# What was never heard is not judged.

LATE_LINES = """
{"event":"arrive","request":"b","index":0,"time_us":0,"segments":[],"tokens":[1,2,3,4,5],"max_tokens":2}
{"event":"step","index":90,"time_us":0,"budget":8}
{"event":"unclaim","group":0,"slot":6,"hash":"66","why":"evict"}
{"event":"allocate","request":"b","group":0,"column":1,"slots":[3]}
{"event":"admit","request":"b","hit":4,"external":0,"resumed":false}
{"event":"restore","request":"b","group":0,"slot":5,"column":0,"offset":4,"group_hits":[4]}
{"event":"chunk","request":"b","start":4,"end":5,"drafts":0,"stop":"prompt-end","steps":0,"accepted":[]}
{"event":"copy","request":"b","group":0,"kind":"pre","src":5,"dst":3,"conv_src":5,"shift":0}
{"event":"advance","request":"b","group":0,"start":4,"end":5,"drafts":[],"read":3,"writes":[[5,3]],"steps":0}
{"event":"claim","group":0,"slot":3,"request":"b","column":1,"offset":5,"hash":"b5"}
{"event":"output","request":"b","count":1,"tokens":[9]}
{"event":"commit","time_us":5}
"""
LATE = [json.loads(line) for line in LATE_LINES.split()]
"""A log that begins when the server has been running: the slot that is hit was written before."""


def test_a_slot_whose_write_was_never_heard_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "late.jsonl"
    path.write_text("\n".join([DEPLOYMENT[0], *map(json.dumps, LATE)]) + "\n")
    result = audit(path)
    (outcome,) = result.variants.values()
    assert (outcome.poisoned, outcome.wrong_restores, outcome.findings) == (0, 0, ())
    # The request's hit, and the claim of what it made of it.
    assert outcome.not_judged == 2
    assert to_json(result)["variants"]["our-server 1.2"]["not_judged"] == 2
    assert result.wrong_where_silent == []


def test_the_same_slot_is_judged_once_its_writes_are_told(tmp_path: Path) -> None:
    """Negative control: handed out in this log, and nothing written."""
    handed = {"event": "allocate", "request": "b", "group": 0, "column": 0, "slots": [5]}
    path = tmp_path / "told.jsonl"
    path.write_text("\n".join([DEPLOYMENT[0], *map(json.dumps, [*LATE[:2], handed, *LATE[3:]])]) + "\n")
    (outcome,) = audit(path).variants.values()
    assert outcome.not_judged == 0
    assert {finding.invariant for finding in outcome.findings} >= {"I1", "I5", "I10"}


def outcome_of(folder: Path, lines: list[str]) -> Outcome:
    path = folder / "run.jsonl"
    path.write_text("\n".join(lines) + "\n")
    (outcome,) = audit(path).variants.values()
    return outcome


def test_a_claim_on_a_slot_that_a_hit_found_in_use_is_not_judged(tmp_path: Path) -> None:
    """The slot was written before the log began, although slots are handed out in it."""
    claim = {"event": "claim", "group": 0, "slot": 5, "request": "b", "column": 0, "offset": 4, "hash": "bb"}
    outcome = outcome_of(tmp_path, [DEPLOYMENT[0], *map(json.dumps, [*LATE[:-3], claim, *LATE[-3:]])])
    assert (outcome.poisoned, outcome.findings, outcome.not_judged, outcome.judged) == (0, (), 3, 0)


@pytest.mark.parametrize(("slot", "hash"), [(5, "55"), (5, "b5"), (7, "b5"), (3, "55")])
def test_a_claim_from_before_the_log_may_be_withdrawn_until_it_hands_the_slot_out(
    slot: int, hash: str, tmp_path: Path
) -> None:
    """Slot 5 was hit, 7 is new, and both may have had any hash; 3 was handed out in an earlier step."""
    more = [
        {"event": "step", "index": 91, "time_us": 5, "budget": 8},
        {"event": "unclaim", "group": 0, "slot": slot, "hash": hash, "why": "evict"},
        {"event": "commit", "time_us": 6},
    ]
    lines = [DEPLOYMENT[0], *map(json.dumps, [*LATE, *more])]
    if slot == 3:
        assert said(tmp_path, lines).startswith("15: unclaim.hash: found '55', allowed is one that leads to slot 3")
    else:
        assert outcome_of(tmp_path, lines).not_judged == 2


LOAD_LINES = """
{"event":"arrive","request":"b","index":0,"time_us":0,"segments":[],"tokens":[1,2,3,4,5],"max_tokens":2}
{"event":"step","index":90,"time_us":0,"budget":8}
{"event":"allocate","request":"b","group":0,"column":1,"slots":[3]}
{"event":"admit","request":"b","hit":0,"external":4,"resumed":false}
{"event":"load","request":"b","group":0,"key":"KEY","slot":5,"offset":4}
{"event":"chunk","request":"b","start":4,"end":5,"drafts":0,"stop":"prompt-end","steps":0,"accepted":[]}
{"event":"copy","request":"b","group":0,"kind":"pre","src":5,"dst":3,"conv_src":5,"shift":0}
{"event":"advance","request":"b","group":0,"start":4,"end":5,"drafts":[],"read":3,"writes":[[5,3]],"steps":0}
{"event":"claim","group":0,"slot":3,"request":"b","column":1,"offset":5,"hash":"b5"}
{"event":"output","request":"b","count":1,"tokens":[9]}
{"event":"commit","time_us":5}
"""


@pytest.mark.parametrize(("key", "judged", "not_judged"), [("b", 2, 0), ("0c5c", 0, 2), ("a", 0, 2)])
def test_what_was_stored_before_the_log_began_is_not_judged_and_a_connectors_is_right(
    key: str, judged: int, not_judged: int, tmp_path: Path
) -> None:
    lines = LOAD_LINES.strip().replace("KEY", key).splitlines()
    outcome = outcome_of(tmp_path, [DEPLOYMENT[0], *lines])
    assert (outcome.judged, outcome.not_judged, outcome.findings) == (judged, not_judged, ())


@pytest.mark.parametrize("text", ["offload-chain-inside-a-block", "connector-resolves-null-columns"])
def test_a_tiers_log_that_starts_late_is_never_clean_where_the_whole_one_is_poisoned(text: str, tmp_path: Path) -> None:
    scenario = load(ROOT / "scenarios" / "field" / f"{text}.yaml")
    stream = io.StringIO()
    simulate(runs(scenario)[0], [Fanout([Recorder(stream)])])
    lines = stream.getvalue().splitlines()
    poison = [f.step for f in outcome_of(tmp_path, lines).findings if f.severity == "poison"]
    late = 0
    for i, line in enumerate(lines):
        if '"event":"arrive"' in line and '"event":"commit"' in lines[i - 1]:
            first = next(json.loads(after)["index"] for after in lines[i:] if '"event":"step"' in after)
            if not any(step >= first for step in poison):
                continue
            outcome = outcome_of(tmp_path, [lines[0], *lines[i:]])
            late += 1
            assert outcome.grave or outcome.not_judged
    assert late


# A log may end anywhere.


@pytest.mark.parametrize(("lines", "judged", "not_judged"), [(8, 0, 1), (9, 1, 0), (25, 1, 1), (26, 2, 0), (30, 2, 0)])
def test_what_is_still_to_come_when_a_log_ends_is_not_judged(
    lines: int, judged: int, not_judged: int, tmp_path: Path
) -> None:
    """Cut before and after the commit of the claim, and before and after the hit is read."""
    outcome = outcome_of(tmp_path, DEPLOYMENT[:lines])
    assert (outcome.judged, outcome.not_judged, outcome.findings) == (judged, not_judged, ())


def test_a_claim_of_a_step_in_flight_that_never_ran_is_not_judged(tmp_path: Path) -> None:
    options = json.loads(DEPLOYMENT[0])["options"] | {"max_concurrent_batches": 2}
    decided = [edited(1, options=options)[0], *DEPLOYMENT[1:7], DEPLOYMENT[8]]
    end = {"event": "end", "steps": 1, "time_us": 900, "livelock": False}
    for more in ([], [json.dumps(end)]):
        outcome = outcome_of(tmp_path, [*decided, *more])
        assert (outcome.judged, outcome.not_judged) == (0, 1)


def test_a_log_does_not_end_by_itself_inside_a_step(tmp_path: Path) -> None:
    end = {"event": "end", "steps": 1, "time_us": 900, "livelock": False}
    assert said(tmp_path, [*DEPLOYMENT[:8], json.dumps(end)]).startswith("9: end: found 1, allowed is none before")


# Free-form fields.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rules": {"modules": [0]}}, "run.options.rules: found {'modules': [0]}, allowed is an object with a text"),
        ({"rules": []}, "run.options.rules: found [], allowed is an object"),
        ({"variant": 3}, "run.options.variant: found 3, allowed is a text"),
        ({"case": None}, "run.options.case: found None, allowed is a text"),
        ({"scenario": ["x"]}, "run.options.scenario: found ['x'], allowed is a text"),
        ({"clock": "hours"}, "run.options.clock: found 'hours', allowed is us or steps"),
        ({"hash_unit": "4"}, "run.options.hash_unit: found '4', allowed is an integer of 1 or more"),
        ({"max_concurrent_batches": 0}, "run.options.max_concurrent_batches: found 0"),
        ({"prefix_cache_retention_interval": True}, "run.options.prefix_cache_retention_interval: found True"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    known = json.loads(DEPLOYMENT[0])["options"]
    assert said(tmp_path, edited(1, options=known | options)).startswith(f"1: {text}")


def test_an_option_that_nobody_reads_may_be_anything(tmp_path: Path) -> None:
    known = json.loads(DEPLOYMENT[0])["options"]
    assert heard(tmp_path, edited(1, options=known | {"more": [{"x": 1}]})) == heard(tmp_path, DEPLOYMENT)


def test_two_runs_of_one_name_are_two_variants(tmp_path: Path) -> None:
    """A server that was started again: neither verdict takes the other's place."""
    wrong = edited(14, read=1, writes=[[6, 1]])
    assert json.loads(wrong[13])["writes"] == [[6, 1]]
    path = tmp_path / "twice.jsonl"
    path.write_text("\n".join([*wrong, *DEPLOYMENT, *DEPLOYMENT]) + "\n")
    result = audit(path)
    assert list(result.variants) == ["our-server 1.2", "our-server 1.2 (run 2)", "our-server 1.2 (run 3)"]
    assert [variant.poisoned for variant in result.variants.values()] == [1, 0, 0]
    assert result.wrong_where_silent == ["our-server 1.2"]


def test_a_made_up_name_takes_nobodys_place(tmp_path: Path) -> None:
    """A run may be called as another would be after its place."""
    wrong = edited(14, read=1, writes=[[6, 1]])
    named = [json.dumps(json.loads(wrong[0]) | {"engine": "our-server 1.2 (run 3)"}), *wrong[1:]]
    path = tmp_path / "names.jsonl"
    path.write_text("\n".join([*DEPLOYMENT, *named, *DEPLOYMENT]) + "\n")
    variants = audit(path).variants
    assert list(variants) == ["our-server 1.2", "our-server 1.2 (run 3)", "our-server 1.2 (run 4)"]
    assert [variant.poisoned for variant in variants.values()] == [0, 1, 0]


# Steps in flight and logs of nobody.


def test_a_launch_is_of_a_step_that_was_decided() -> None:
    coherence = Coherence()
    options = {
        "hash_unit": 4, "max_num_batched_tokens": 8, "long_prefill_token_threshold": 0, "enable_prefix_caching": True,
        "max_concurrent_batches": 2,
    }  # fmt: skip
    coherence.run(SCHEMA, "hand", (Group("gdn", "recurrent", 4),), 0, options)
    coherence.step(3, 0, 8)
    with pytest.raises(ValueError, match=r"launch.index: found 4, allowed is a step after -1, up to 3"):
        coherence.launch(4)


# Logs of real servers.

MEASURED = {
    "vllm-0.26.0-qwen3next-tiny": (20, 16, 6, 6, 184, 58, "f9a7d015796c293f"),
    "vllm-0.27.0-qwen3next-tiny": (0, 0, 0, 0, 184, 0, "b126444b63457321"),
    "vllm-0.26.0-qwen3next-tiny-server": (6, 6, 3, 3, 96, 24, "da3148cc8021204f"),
}
"""Poisoned, roots, wrong restores, requests on a wrong state, claims, findings, the digest's first digits."""


@pytest.mark.parametrize("name", MEASURED)
def test_a_log_of_a_real_server_is_accepted_and_judged_as_before(name: str, shared: Path) -> None:
    (o,) = audit(shared / "real" / f"{name}.jsonl.gz").variants.values()
    counts = (o.poisoned, o.poisoned_roots, o.wrong_restores, o.tainted_requests, o.claims, len(o.findings))
    assert (*counts, o.digest[:16]) == MEASURED[name]
    assert (o.not_judged, len(o.not_asked)) == (0, 1)
    assert o.not_asked[0].startswith("the components of a slot, I13")


def test_a_row_may_have_what_another_left_behind_its_columns_though_that_slot_is_its_own_by_now(tmp_path: Path) -> None:
    # The worker looks in blocks of 3, in column 5; there another request had the slot that is now column 2's.
    options = Options(
        (Group("gdn", "recurrent", 8),),
        preset="vllm-0.30.0",
        max_num_seqs=1,
        cache_config_block_size=3,
        clock="steps",
    )
    arrivals = (Arrival("a", 0, 0, ((2, 16),), 26), Arrival("b", 1, 0, ((2, 17),)))
    path = tmp_path / "run.jsonl"
    with path.open("w") as stream:
        ran = drive(options, arrivals, observers=[Recorder(stream)])
    (heard,) = audit(path).variants.values()
    assert (heard.findings, heard.digest) == (ran.findings, ran.digest)
