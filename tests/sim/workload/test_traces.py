"""Trace readers: what each format becomes, where files are looked for, and broken rows."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import InputError
from stateat.sim.workload import Arrival
from stateat.sim.workload.files import resolve
from stateat.sim.workload.prefixes import own
from stateat.sim.workload.traces import Trace, read

MOONCAKE = (
    '{"timestamp": 1000, "input_length": 1030, "output_length": 5, "hash_ids": [3, 4, 9]}\n'
    "\n"
    '{"timestamp": 1000.5, "input_length": 512, "output_length": 0, "hash_ids": [3]}\n'
    '{"timestamp": 4000, "input_length": 600, "output_length": 2, "hash_ids": [3]}\n'
)


def traced(folder: Path, content: str | bytes, format: str = "mooncake", **keys: Any) -> list[Arrival]:
    file = folder / "t.trace"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(Trace.model_validate({"format": format, "path": "t.trace", **keys}), folder, "s.yaml:4: workload.trace")


def test_mooncake(tmp_path: Path) -> None:
    assert traced(tmp_path, MOONCAKE) == [
        Arrival("r0", 0, 0, ((3, 512), (4, 512), (9, 6)), max_tokens=5),
        Arrival("r1", 1, 500, ((3, 512),), max_tokens=1),  # produces one token, as every request does
        # only full blocks have an id here: the rest is its own
        Arrival("r2", 2, 3_000_000, ((3, 512), (own(2), 88)), max_tokens=2),
    ]


def test_start_limit_and_scale(tmp_path: Path) -> None:
    assert [a.id for a in traced(tmp_path, MOONCAKE, limit=2)] == ["r0", "r1"]
    [late] = traced(tmp_path, MOONCAKE, start=1.0, time_scale=0.5)
    assert (late.id, late.index, late.time) == ("r2", 0, 1_000_000)
    assert [a.time for a in traced(tmp_path, MOONCAKE, time_scale=0.001)] == [0, 0, 3000]


def test_bailian(tmp_path: Path) -> None:
    content = (
        '{"chat_id": 7, "type": "text", "timestamp": 0.5, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]}\n'
        '{"chat_id": 8, "type": "text", "timestamp": 0.75, "input_length": 16, "output_length": 1, "hash_ids": [1]}\n'
    )
    assert traced(tmp_path, content, "bailian") == [
        Arrival("chat7", 0, 0, ((1, 16), (2, 4)), max_tokens=3),
        Arrival("chat8", 1, 250_000, ((1, 16),), max_tokens=1),
    ]
    with pytest.raises(InputError, match=r"t\.trace:2: chat_id: found 7 again"):
        traced(tmp_path, content.replace('"chat_id": 8', '"chat_id": 7'), "bailian")


def test_azure(tmp_path: Path) -> None:
    content = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,0\n"
    )
    assert traced(tmp_path, content, "azure") == [
        Arrival("r0", 0, 0, ((own(0), 4808),), max_tokens=10),
        Arrival("r1", 1, 52_000, ((own(1), 3180),), max_tokens=1),
    ]


def test_jsonl(tmp_path: Path) -> None:
    content = '{"id": "x", "arrive": 5, "prompt": [[1, 7], [2, 9]], "max_tokens": 4}\n{"id": "y", "prompt": [[1, 7]]}\n'
    assert traced(tmp_path, content, "jsonl") == [
        Arrival("x", 0, 5, ((1, 7), (2, 9)), max_tokens=4),
        Arrival("y", 1, 0, ((1, 7),)),
    ]


ROW = '{"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'


@pytest.mark.parametrize(
    ("format", "content", "says"),
    [
        ("mooncake", "", "s.yaml:4: workload.trace: the trace {file} is empty"),
        ("mooncake", ROW + "{\n", "{file}:2: found '{', allowed a JSON object"),
        ("mooncake", ROW + "[1]\n", "{file}:2: found '[1]', allowed a JSON object"),
        ("mooncake", "[" * 100_000 + "\n", "{file}:1: found '[[["),
        ("mooncake", ROW.replace("5", '"5"', 1), "{file}:1: timestamp: found '5', allowed a number of at least 0"),
        ("mooncake", ROW.replace("5", "true", 1), "{file}:1: timestamp: found True"),
        ("mooncake", ROW.replace("5", "NaN", 1), "{file}:1: timestamp: found nan"),
        ("mooncake", ROW.replace("5", "1e400", 1), "{file}:1: timestamp: found inf"),
        ("mooncake", ROW.replace("5", "9" * 400, 1), "{file}:1: timestamp: found 1329 bits"),
        ("mooncake", ROW + ROW.replace("5", "4", 1), "{file}:2: timestamp: found 4, allowed no time before the first"),
        ("mooncake", ROW.replace("600", "-1"), "{file}:1: input_length: found -1, allowed a whole number from 1"),
        ("mooncake", ROW.replace("600", "600.0"), "{file}:1: input_length: found 600.0"),
        ("mooncake", ROW.replace('"output_length": 5', '"output_length": -1'), "{file}:1: output_length: found -1"),
        ("mooncake", ROW.replace("[0, 1]", "[0]").replace("600", "1025"), "{file}:1: hash_ids: found 1 ids, allowed 3"),
        ("mooncake", ROW.replace("[0, 1]", "[0, 1, 2]"), "{file}:1: hash_ids: found 3 ids, allowed 2"),
        ("mooncake", ROW.replace("[0, 1]", "[0, -1]"), "{file}:1: hash_ids: found [0, -1]"),
        ("mooncake", ROW.replace("[0, 1]", "3"), "{file}:1: hash_ids: found 3, allowed a list"),
        ("mooncake", ROW.replace('"hash_ids": [0, 1]', '"x": 1'), "{file}:1: hash_ids: found nothing"),
        ("bailian", ROW.replace("600", "20"), "{file}:1: chat_id: found nothing"),
        ("azure", "", "workload.trace: the trace {file} is empty"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "is empty"),
        ("azure", "TIMESTAMP,Context,GeneratedTokens\n", "{file}:1: found no column ContextTokens"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n", "{file}:2: TIMESTAMP: found 'now'"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,-1,1\n", "{file}:2: ContextTokens: found '-1'"),
        (
            "azure",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5\n",
            "{file}:2: GeneratedTokens: found nothing",
        ),
        (
            "azure",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5,5\n2023-11-17T00:00:00+00:00,5,5\n",
            "{file}:3: TIMESTAMP: found times with and without a time zone",
        ),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5,5\n2023-11-15,5,5\n", "{file}:3: TIMESTAMP"),
        ("jsonl", '{"id": 1, "prompt": [[1, 7]]}', "{file}:1: id: found 1, allowed text"),
        ("jsonl", '{"id": "a", "prompt": [[-1, 7]]}', "{file}:1: prompt: found [-1, 7], allowed a seed below"),
        ("jsonl", '{"id": "a", "prompt": [[1, 7, 2]]}', "{file}:1: prompt: found [[1, 7, 2]]"),
        ("jsonl", '{"id": "a", "prompt": []}', "{file}:1: prompt: found an empty prompt"),
        ("jsonl", '{"id": "a", "prompt": [[1, 0]]}', "{file}:1: prompt: found an empty prompt"),
        ("jsonl", '{"id": "a"}', "{file}:1: prompt: found nothing"),
        ("jsonl", '{"id": "a", "promt": [[1, 1]]}', "{file}:1: promt: unknown key"),
        ("jsonl", '{"id": "a", "prompt": [[1, 7]]}\n{"id": "a", "prompt": [[1, 7]]}', "{file}:2: id: found 'a' again"),
        ("jsonl", '{"id": "a", "arrive": 1.5, "prompt": [[1, 7]]}', "{file}:1: arrive: found 1.5"),
    ],
)
def test_a_broken_row_is_told_with_the_trace_s_line(tmp_path: Path, format: str, content: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        traced(tmp_path, content, format)
    assert says.replace("{file}", str(tmp_path / "t.trace")) in str(caught.value)


def test_not_text(tmp_path: Path) -> None:
    for format in ("mooncake", "azure"):
        with pytest.raises(InputError, match="not UTF-8"):
            traced(tmp_path, b"\xff\xfe\n", format)


def test_nothing_left_after_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty: no request after the first 60 seconds"):
        traced(tmp_path, MOONCAKE, start=60.0)


@given(
    st.sampled_from(["mooncake", "bailian", "azure", "jsonl"]),
    st.integers(0, 300),
    st.integers(0, 9),
    st.text(max_size=3),
)
def test_a_damaged_trace_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, format: str, at: int, gone: int, put: str
) -> None:
    whole = {
        "mooncake": MOONCAKE,
        "bailian": '{"chat_id": 7, "timestamp": 0.5, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]}\n',
        "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
        "jsonl": '{"id": "x", "arrive": 5, "prompt": [[1, 7], [2, 9]], "max_tokens": 4}\n',
    }[format]
    at %= len(whole)
    damaged = (whole[:at] + put + whole[at + gone :]).encode("utf-8", "surrogatepass")
    with suppress(InputError):
        assert traced(tmp_path_factory.getbasetemp(), damaged, format)


# -- where files lie ---------------------------------------------------------------------------------------------


def test_shared_files_lie_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEAT_SHARED", str(tmp_path))
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.csv").touch()
    assert resolve("shared:t.csv", Path("/elsewhere"), "") == tmp_path / "traces" / "t.csv"
    (tmp_path / "t.csv").touch()
    assert resolve("shared:t.csv", Path("/elsewhere"), "") == tmp_path / "t.csv"


def test_shared_files_lie_beside_the_checkout_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    import stateat.sim.errors

    monkeypatch.delenv("STATEAT_SHARED", raising=False)
    beside = Path(stateat.sim.errors.__file__).parents[2] / "shared"
    with pytest.raises(InputError) as caught:
        resolve("shared:no-such-file", Path("."), "s.yaml:4: workload.trace")
    assert str(beside / "no-such-file") in str(caught.value)
    assert "set STATEAT_SHARED" in str(caught.value) and str(caught.value).startswith("s.yaml:4: ")


def test_paths_are_absolute_or_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    assert (
        resolve("t.csv", tmp_path, "") == resolve(str(tmp_path / "t.csv"), Path("/elsewhere"), "") == tmp_path / "t.csv"
    )


@pytest.mark.parametrize("path", ["nowhere.csv", ".", "a\x00b", "x" * 5000, "shared:\x00"])
def test_what_is_no_file(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="allowed an existing file"):
        resolve(path, tmp_path, "s.yaml:4: workload.trace")


# -- the recorded traces -----------------------------------------------------------------------------------------


def test_the_mooncake_trace_loads_fast_and_whole(shared: Path) -> None:
    begin = time.perf_counter()
    got = read(Trace(format="mooncake", path=str(shared / "traces" / "mooncake_conversation.jsonl")), Path("."), "here")
    taken = time.perf_counter() - begin
    assert len(got) == 12_031
    assert sum(a.num_prompt_tokens for a in got) == 144_793_823
    assert sum(a.max_tokens for a in got) == 4_122_048
    assert taken < 2


def test_the_azure_trace(shared: Path) -> None:
    got = read(Trace(format="azure", path=str(shared / "traces" / "azure_2023_code.csv")), Path("."), "here")
    assert len(got) == 8_819
    assert (got[0].time, got[-1].time) == (0, 3_435_948_056)
    assert got[0].num_prompt_tokens == 4808
