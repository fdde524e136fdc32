"""A finding in words: each link of the chain, for each kind of fault."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateat.sim.events import Write
from stateat.sim.explain.explanation import ChunkDecision, Claim, Coverage, Piece, Reader, Story
from stateat.sim.report.terminal.explain import STOPS, lines, to_json

CHUNK = ChunkDecision(0, 0, 8192, "a", 0, 364, "budget", 0, 7828)
NEXT = ChunkDecision(1, 1, 8192, "a", 364, 2002, "prompt-end", 0, 0)


@pytest.fixture
def story(told: SimpleNamespace) -> Story:
    return Story(
        told.finding(),
        CHUNK,
        None,
        (Piece("a", 0, 364),),
        Claim("a", 1, 1, 1600, NEXT),
        Coverage(missing=((364, 1600),)),
        (Reader("b", 2, 2, 1600, 2002),),
        5,
        {"a": 2002, "b": 2002},
        None,
    )


def words(story: Story, block: int = 1600) -> dict[str, str]:
    return dict(lines(story, block))


def test_every_link_of_the_chain(story: Story) -> None:
    assert words(story) == {
        "write": "step 0: a's chunk [0, 364) of 2,002 prompt tokens, ended by `budget`: the step had 8,192 tokens, "
        "7,828 of them went to others. It left state@364, and 364 is no multiple of the block, 1,600",
        "claim": "step 1: a's chunk [364, 2002) ran past 1,600 without stopping there; "
        "the cache hashed slot 17 as state@1600 of a",
        "really": "it has absorbed [0, 364) of a: [364, 1600) is missing, 1,236 of 1,600 tokens (77%)",
        "readers": "b (step 2) started at 1,600 from it, and never saw [364, 1600)",
        "then": "5 more findings follow from it",
    }


@pytest.mark.parametrize(
    ("changes", "label", "said"),
    [
        ({"chunk": replace(CHUNK, others=0)}, "write", "the step had 8,192 tokens, and no one else had any"),
        ({"chunk": replace(CHUNK, stop="junction")}, "write", f"ended by `junction`: {STOPS['junction']}"),
        ({"chunk": replace(CHUNK, stop="my-rule")}, "write", "ended by `my-rule`. It"),
        ({"chunk": replace(CHUNK, step=9, steps=3, stop="decode")}, "write", "steps 7 to 9: a's chunk"),
        ({"held": (Piece("a", 0, 361, (1,)),)}, "write", "It left state@362"),
        ({"chunk": None, "loaded": 4}, "write", "step 4: a connector brought state@364 of a into the slot; 364 is no"),
        ({"chunk": None, "held": None}, "write", "nobody ever wrote this slot"),
        ({"claim": Claim("a", 1, 1, 1600, None)}, "claim", "step 1: the cache hashed slot 17"),
        ({"claim": Claim("a", 1, 1, 2002, NEXT)}, "claim", "a's chunk [364, 2002) ended at 2,002;"),
        ({"claim": Claim("a", 1, 1, 4000, NEXT)}, "claim", "a's chunk [364, 2002) lies before 4,000;"),
        ({"claim": Claim("a", 1, 1, 300, NEXT)}, "claim", "a's chunk [364, 2002) lies behind 300;"),
        ({"chunk": replace(CHUNK, step=3)}, "claim", "step 1, before that write: "),
        ({"held": None}, "really", "nothing that anyone wrote"),
        ({"held": ()}, "really", "a zero state: no token at all"),
        (
            {"held": (Piece("a", 0, 1600), Piece("a", 1500, 1600)), "coverage": Coverage(twice=((1500, 1600),))},
            "really",
            "it has absorbed [0, 1600) of a, then [1500, 1600) of a: [1500, 1600) is in it twice, 100 tokens",
        ),
        ({"coverage": Coverage(ahead=((1600, 1601),))}, "really", "[1600, 1601) is too much, 1 token"),
        ({"coverage": Coverage(ahead=((1600, 1601),))}, "readers", "from it, and saw 1 token twice"),
        ({"coverage": Coverage(foreign=7)}, "really", "7 tokens of another text"),
        ({"held": (Piece("a", 0, 5, (1, 2)),)}, "really", "[0, 5) of a and 2 wrong drafts"),
        ({"coverage": Coverage(missing=tuple((2 * i, 2 * i + 1) for i in range(5)))}, "really", "and 2 more spans"),
        ({"readers": ()}, "readers", "nobody yet"),
        ({"readers": tuple(Reader(f"r{i}", i, i, 1600, 9) for i in range(10))}, "readers", "r7 (step 7) and 2 more"),
        ({"downstream": 1}, "then", "1 more finding follows from it"),
        ({"downstream": 0}, "then", "no other finding follows from it"),
    ],
)
def test_what_else_can_be_told(story: Story, changes: dict[str, Any], label: str, said: str) -> None:
    assert said in words(replace(story, **changes))[label]
    assert said not in " ".join(words(story).values())


def test_a_copied_state_says_so(story: Story, told: SimpleNamespace) -> None:
    copied = replace(story, finding=told.finding(write=Write(3, "a", 364, 364, "post")))
    assert words(copied)["write"].endswith(
        ". Its state@364 came into the slot in step 3: copy after verification, of the boundary that it passed"
    )


def test_a_finding_without_a_slot_has_no_claim_and_no_content(story: Story, told: SimpleNamespace) -> None:
    finding = told.finding(invariant="I6", slot=-1, column=-1, write=None, claimed_by="", readers=())
    chain = words(replace(story, finding=finding, chunk=None, held=None, claim=None, readers=(), downstream=0))
    assert set(chain) == {"write", "readers", "then"}
    assert chain["readers"] == "none: nothing is claimed"


def test_an_end_on_the_grid_is_not_blamed(story: Story) -> None:
    assert "no multiple" not in words(story, block=364)["write"]


def test_every_documented_stop_has_words() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    table = page.partition("## The split's stops")[2].partition("\n## ")[0]
    stops = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`([^`]+)`", row)}
    assert len(stops) > 10
    assert stops - {"budget"} <= set(STOPS)


def test_the_json_of_a_story_is_plain(story: Story) -> None:
    tree = to_json("old gate", "", story, None)
    assert json.loads(json.dumps(tree)) == tree
    assert tree["chunk"]["others"] == 7828
    assert tree["readers"] == [{"request": "b", "step": 2, "time_us": 2, "offset": 1600, "prompt": 2002}]
    assert tree["missing"] == [[364, 1600]]
