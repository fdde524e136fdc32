"""README.md and docs/ are true: commands print what is shown, files load, tables are whole, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from click.testing import CliRunner

from stateat.sim.api import sweep
from stateat.sim.cli.geometry import geometry
from stateat.sim.cli.main import main
from stateat.sim.events import EVENTS
from stateat.sim.geometry.families import FAMILIES, MODEL_TYPES
from stateat.sim.geometry.named import NAMED
from stateat.sim.geometry.releases import ALL_MODE, SIZING
from stateat.sim.options import METHODS
from stateat.sim.releases import pages as pages_of_rules
from stateat.sim.releases.presets import PRESETS
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.split import Chunk
from stateat.sim.run.simulate import audit, replay
from stateat.sim.scenario.load import load
from stateat.sim.scenario.models import INVARIANTS, MECHANISMS, File, Whole
from stateat.sim.scenario.page import PAGE, TABLES, printed
from stateat.sim.scenario.truth import STATES
from stateat.sim.schema import WrittenAs, fields_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LONG = "mooncake"
"""A command with this word runs for half a minute: its output is compared with what the scenario pins."""
ELSEWHERE = {
    "stateat conform": "tests/conformance/test_golden.py",
    "scenarios/sweeps/concurrency.yaml": "tests/test_findings.py",
}
"""Commands that another test compares with what is shown, since it runs them, or a part of them, anyway."""
LIVE = r"stateat vllm install|--engine vllm"
"""Commands that need installed releases of vLLM."""
MACHINE = re.compile(r"(?<![\w.])/(work|tmp|root|home)\b")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def pages(*names: str) -> list[Any]:
    chosen = [page for page in PAGES if not names or page.name in names]
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in chosen]


def blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


# Commands.


@dataclass(frozen=True)
class Command:
    line: str
    shown: tuple[str, ...]
    status: int


def commands(block: str) -> Iterator[Command]:
    """The commands of a console block, each with the lines shown and the status that `echo $?` tells (else 0)."""
    parts = [part.splitlines() for part in re.split(r"^\$ ", block, flags=re.M)[1:]]
    for i, (line, *shown) in enumerate(parts):
        if line == "echo $?":
            continue
        told = parts[i + 1] if i + 1 < len(parts) and parts[i + 1][0] == "echo $?" else ("", "0")
        yield Command(line, tuple(shown), int(told[1]))


def run(line: str, build: Path) -> tuple[int, list[str]]:
    """A command line in the repository root, `build/` being another folder: its status and all that it prints.

    What a process of its own adds is the matter of tests/sim/cli: here one is started only where the line sets its
    environment.
    """
    line = line.replace("build/", f"{build}/")
    if line.startswith("stateat "):
        with chdir(ROOT):
            result = CliRunner(env={"COLUMNS": "80"}).invoke(main, shlex.split(line)[1:], prog_name="stateat")
        status, text = result.exit_code, result.output
    else:
        status, text = in_a_process(line, build)
    return status, text.replace(f"{build}/", "build/").splitlines()


def in_a_process(line: str, build: Path) -> tuple[int, str]:
    tool = build / "bin" / "stateat"
    tool.parent.mkdir(parents=True, exist_ok=True)
    code = "import sys; from stateat.sim.cli.main import main; main(prog_name='stateat')"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -c "{code}" "$@"\n')
    tool.chmod(0o755)
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
    child = subprocess.run(
        ["bash", "-c", re.sub(r"\bPYTHONPATH=(\S+)", rf"PYTHONPATH={ROOT}:\1", line)],
        cwd=ROOT,
        env={
            **given,
            "PATH": f"{tool.parent}:{given['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return child.returncode, child.stdout


def missing(shown: tuple[str, ...], printed: list[str]) -> str | None:
    """The first shown line that is not printed after those before it; `…` stands for lines, or for a part of one.

    Without a `…` between them, two shown lines follow each other.
    """
    at, gap = 0, True
    for line in shown:
        if line.strip() in ("", "…"):
            gap = gap or line.strip() == "…"
            continue
        # A line of output may itself hold a …: then it is equal.
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))
        rest = [i for i in range(at, len(printed)) if pattern.fullmatch(printed[i].rstrip())]
        if not rest or (not gap and any(p.strip() for p in printed[at : rest[0]])):
            return line
        at, gap = rest[0] + 1, False
    return None


def console() -> list[Any]:
    """Pages and blocks; what two pages show of the same commands is one case, so that they run once."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for page in PAGES:
        for block in blocks(page, "console"):
            found.setdefault(" ; ".join(command.line for command in commands(block)), []).append((page, block))
    return [pytest.param(shown, id=f"{shown[0][0].name}-{heads[:50]}") for heads, shown in found.items()]


@pytest.mark.skipif(os.name == "nt", reason="the commands are shown for a POSIX shell")
@pytest.mark.parametrize("shown", console())
def test_a_command_prints_what_is_shown(
    shown: list[tuple[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command line adds the current folder, for plug-ins.
    monkeypatch.setattr(sys, "path", list(sys.path))
    for path, text in (written for page, _ in shown for written in written_files(page)):
        (tmp_path / path).write_text(text, encoding="utf-8")
    for command, *again in zip(*(commands(block) for _, block in shown), strict=True):
        assert re.match(r"(\w+=\S+ )*stateat ", command.line), "only stateat is run from the docs"
        if LONG in command.line:
            assert_pinned(command)
            continue
        if re.search(LIVE, command.line) or any(part in command.line for part in ELSEWHERE):
            continue
        status, printed = run(command.line, tmp_path)
        text = "\n".join(printed)
        assert status == command.status, text
        for page in (command, *again):
            assert missing(page.shown, printed) is None, text


def written_files(page: Path) -> Iterator[tuple[str, str]]:
    """The files that a page has its reader save: a block whose first line is `# build/NAME`."""
    for block in blocks(page, "yaml"):
        if found := re.match(r"# build/(\S+)\n", block):
            yield found[1], block


def assert_pinned(command: Command) -> None:
    """What is shown of a long run is what its scenario expects, variant by variant."""
    file = re.search(r"\S+\.yaml", command.line)
    assert file is not None
    scenario = load(ROOT / file[0])
    expected = [run.expect or {} for run in scenario.expanded]
    rows = {name.strip(): values for name, *values in (re.split(r"  +", line) for line in command.shown)}
    for expect, cell in zip(expected, rows["poisoned"], strict=True):
        roots = f" ({expect['poisoned_roots']:,} roots)" if expect["poisoned"] else ""
        assert cell == f"{expect['poisoned']:,}{roots}"
    for expect, cell in zip(expected, rows["requests on a wrong state"], strict=True):
        assert cell.split(" (")[0] == f"{expect['tainted_requests']:,}"
    assert command.shown[-1] == "as expected"


def test_shown_lines_are_compared() -> None:
    """Negative control of :func:`missing`."""
    printed = ["one", "two (0.3 s)", "", "three"]
    assert missing(("one", "two (…)", "three"), printed) is None
    assert missing(("…", "three"), printed) is None
    assert missing(("one", "three"), printed) == "three"
    assert missing(("…", "three", "…", "one"), printed) == "one"
    assert missing(("two",), printed) == "two"


def test_make_demo_is_the_command_that_the_readme_shows() -> None:
    """The README shows the replay that `make demo` does."""
    recipe = re.findall(r"/(stateat replay \S+)", (ROOT / "Makefile").read_text())
    assert f"$ {recipe[0]}\n" in PAGES[0].read_text()


@pytest.mark.parametrize(("page", "lines"), [("README.md", 240), ("CONTRIBUTING.md", 100)])
def test_a_page_that_everybody_reads_is_short(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= lines


# Files.


@pytest.mark.parametrize("page", pages())
def test_a_yaml_block_runs(page: Path, tmp_path: Path) -> None:
    """A block with a schema is a scenario or a sweep; a fragment goes into the page's first such scenario."""
    (tmp_path / "examples").symlink_to(DOCS / "examples")
    base: dict[str, Any] | None = None
    for i, block in enumerate(blocks(page, "yaml")):
        data = yaml.safe_load(block)
        assert isinstance(data, dict)
        if str(data.get("schema")).startswith("stateat-sweep/"):
            assert (sweep(data)["error"] == "").all()
            continue
        if "schema" in data:
            base = base or data
            text = block
        else:
            assert base is not None, block
            engine = {**base["engine"], **data.get("engine", {})}
            text = yaml.safe_dump({**base, **data, "engine": engine}, sort_keys=False)
        file = tmp_path / f"{i}.yaml"
        file.write_text(text, encoding="utf-8")
        result = replay(load(file))
        assert not result.failed_expectations, block
        assert all(outcome.finished for outcome in result.variants.values())


@pytest.mark.parametrize("file", sorted(DOCS.rglob("*.yaml")), ids=lambda file: file.name)
def test_an_example_comes_to_what_it_expects(file: Path) -> None:
    assert not replay(load(file)).failures


def test_the_changelog_has_one_fact_a_line_under_added_changed_and_fixed() -> None:
    """A fact is a line of its own: none runs on in the next one."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    body = text[text.index("### One import name") :]
    kinds = re.compile(r"$|#{2,3} |- \S|\||\*\*.*\*\*$")
    assert [line for line in body.splitlines() if not kinds.match(line)] == []
    assert {"Added", "Changed", "Fixed"} <= set(re.findall(r"^### (.*)$", text, re.M))


def test_every_folder_is_named_where_contributors_look() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+)/`", text))
    folders = {path.parent.name for path in (ROOT / "sim").glob("*/__init__.py")}
    assert folders <= named
    for name in named:
        assert any((ROOT / at / name).is_dir() for at in ("", "sim", "sim/report", "scenarios")), name


def test_the_split_in_the_readme_is_the_example() -> None:
    source = (DOCS / "examples" / "my_split.py").read_text()
    shown = blocks(PAGES[0], "python")
    assert len(shown) == 1
    assert shown[0] in source


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(file), target


def anchors(page: Path) -> set[str]:
    """Anchors of a page: those that GitHub gives its headings, and its own."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    named = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return named | set(re.findall(r'<a id="([^"]+)"></a>', text))


@pytest.mark.parametrize("page", pages())
def test_no_path_of_a_machine(page: Path) -> None:
    assert MACHINE.search(page.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize("picture", sorted((DOCS / "img").iterdir()), ids=lambda file: file.name)
def test_a_picture_is_small_and_of_use(picture: Path) -> None:
    assert picture.suffix == ".png"
    assert picture.stat().st_size < 250_000
    assert any(f"img/{picture.name})" in page.read_text(encoding="utf-8") for page in PAGES)


# Words.


def words() -> dict[str, list[str]]:
    """Rows of docs/words.md by the word that they explain."""
    rows = next(iter(tables(DOCS / "words.md").values()))
    return {row[0].rpartition("</a>")[2].strip("*"): row for row in rows}


def test_words_are_sorted_and_each_has_an_anchor_of_its_name() -> None:
    names = list(words())
    assert names == sorted(names, key=str.lower)
    for name, row in words().items():
        assert row[0] == f'<a id="{re.sub("[^a-z0-9]+", "-", name.lower())}"></a>**{name}**'
        assert all(row[1:]), name


def test_every_word_is_used_on_another_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "words.md").lower()
    text = " ".join(text.replace("`", "").split())
    # The n of state@n is a number there.
    assert [name for name in words() if name.lower().removesuffix("@n") not in text] == []


# Tables.


def tables(page: Path) -> dict[str, list[list[str]]]:
    """The rows of the tables under each heading, without their heads; cells without backticks around them."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in FENCE.sub("", page.read_text(encoding="utf-8")).splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
            assert heading not in found, f"twice: {heading}"
            found[heading] = []
        elif line.startswith("|"):
            found[heading].append([cell.strip() for cell in line.split("|")[1:-1]])
        elif found.get(heading) and not line.strip():
            found[heading].append([])
    return {name: list(bodies(rows)) for name, rows in found.items()}


def bodies(rows: list[list[str]]) -> Iterator[list[str]]:
    """Rows without the first two (head and rule) of each table."""
    place = 0
    for row in rows:
        place = place + 1 if row else 0
        if place > 2:
            yield row


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


@cache
def keys() -> dict[str, dict[str, list[str]]]:
    """docs/scenario-files.md: under each heading that names keys in backticks, the rows by key."""
    found = tables(DOCS / "scenario-files.md")
    return {name: {code(row[0])[0]: row for row in rows if code(row[0])} for name, rows in found.items() if rows}


def models() -> dict[str, type[Any]]:
    """The models of a scenario file by the heading of their table."""
    named: dict[str, type[Any]] = {"`file`": File}
    todo: list[tuple[str, Any]] = [("", Whole)]
    for name in ("variants", "expect"):
        todo.append((name, File.model_fields[name].annotation))
    while todo:
        path, annotation = todo.pop(0)
        for place, model in inside(path, annotation):
            if model in named.values():
                continue
            kind = fields_of(model).get("kind")
            kinds = get_args(kind.annotation) if kind and get_origin(kind.annotation) is Literal else ()
            suffix = f" with `kind: {kinds[0]}`" if len(kinds) == 1 else ""
            if model is not Whole:
                named[f"`{place}`{suffix}"] = model
            todo += [(f"{place}.{n}".lstrip("."), f.annotation) for n, f in fields_of(model).items()]
    return named


def inside(path: str, annotation: Any) -> Iterator[tuple[str, type[Any]]]:
    """The models in a type, with the path at which each stands."""
    if fields_of(annotation):
        yield path, annotation
    origin, args = get_origin(annotation), get_args(annotation)
    for arg in args[:1] if origin is Annotated else args[1:] if origin is dict else args:
        arg = next((mark.record for mark in args if isinstance(mark, WrittenAs)), arg)
        if arg is not NoneType:
            suffix = "[]" if origin in (list, tuple) else ".*" if origin is dict else ""
            yield from inside(path + suffix, arg)


SHARED = {
    "Bounds": "`expect.*` bounds and lists",
    "SomeEnds": "`expect.*` bounds and lists",
    "SomeFindings": "`expect.*` bounds and lists",
    "FindingModel": "`expect.findings[]`",
    "Expectation": "`expect`",
    "VariantExpectation": "`expect`",
    "Override": "`variants.*` and `cases.*`",
}
"""Tables that several models share, or that stand under a plainer name."""


def heading_of(name: str, model: type[Any]) -> str:
    return SHARED.get(model.__name__, name.replace("`workload.output` with", "`workload.prompt` with"))


def model_params() -> list[Any]:
    return [pytest.param(heading_of(name, model), model, id=model.__name__) for name, model in models().items()]


@pytest.mark.parametrize(("heading", "model"), model_params())
def test_every_key_of_a_scenario_file_is_documented(heading: str, model: type[Any]) -> None:
    rows = keys()[heading]
    names = set(fields_of(model))
    shared = heading in ("`expect`", "`expect.*` bounds and lists")
    assert names <= set(rows) if shared else names == set(rows)
    for name, field in fields_of(model).items():
        row = rows[name]
        assert len(row) == 6, row
        told = row[2].strip("`")
        if field.is_required():
            assert told == "required", row
        elif isinstance(field.default, bool | int | float | str):
            assert told == json.dumps(field.default) or told == field.default, row
        else:
            assert told in ("none", "off", "see there", json.dumps(getattr(field.default, "state", None))), row


def test_the_key_tables_are_printed_from_the_models() -> None:
    """`make docs` prints them anew."""
    page = PAGE.read_text(encoding="utf-8")
    assert printed(page) == page
    assert set(TABLES) == {name for name in keys() if name.startswith("`")}


def test_every_key_that_is_documented_exists() -> None:
    headings = {heading_of(name, model) for name, model in models().items()}
    documented = {name for name in keys() if name.startswith("`")}
    assert documented == headings
    known = {n for m in models().values() for n in fields_of(m)}
    assert {key for name in documented for key in keys()[name]} <= known


def test_closed_sets_of_values_are_whole() -> None:
    assert set(code(keys()["`engine`"]["preset"][3])) == set(PRESETS)
    assert set(code(keys()["`engine.speculative`"]["method"][3])) == set(METHODS)
    assert set(code(keys()["`oracle`"]["state"][3])) == set(STATES)


def test_invariants_and_mechanisms_that_a_file_may_name_are_those_of_the_pages() -> None:
    rows = tables(DOCS / "invariants.md")["Checked"]
    assert {row[0] for row in rows if re.fullmatch(r"I\d+", row[0])} == set(INVARIANTS)
    assert [row[0] for row in tables(DOCS / "mechanisms.md")["Mechanisms"]] == list(MECHANISMS)


def test_the_page_of_rules_is_printed_from_their_records() -> None:
    text = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert {name for _, name, _ in pages_of_rules.PART.findall(text)} == set(pages_of_rules.PARTS)
    assert text == pages_of_rules.page(text), "run make docs"


def test_every_stop_and_every_field_of_a_chunk_is_documented() -> None:
    """Stops are the texts of the split's and the scheduler's code."""
    names: set[str] = set()
    for file in ("rules/split.py", "rules/proposals.py", "engine/scheduler.py"):
        source = (ROOT / "sim" / file).read_text()
        texts = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
        names |= {t for t in texts if isinstance(t, str) and re.fullmatch(r"[a-z]+(-[a-z]+)+|budget|threshold", t)}
    names -= set(RULES["split"])
    found = tables(DOCS / "rules.md")
    stops = {name for row in found["The split's stops"] for name in code(row[0])}
    assert names <= stops
    assert [name for row in found["A plug-in"] for name in code(row[0])] == [f.name for f in fields(Chunk)]


def test_the_geometry_page_has_every_flag_model_and_release() -> None:
    found = tables(DOCS / "geometry.md")
    flags = [[*option.opts, *option.secondary_opts] for option in geometry.params if option.name != "config"]
    assert [code(row[0]) for row in found["Flags"]] == flags
    assert code(found["Flags"][0][1]) == list(NAMED)
    kinds = {family: [kind for kind, of in MODEL_TYPES.items() if of == family] for family in FAMILIES}
    assert {code(row[0])[0]: code(row[1]) for row in found["Models"]} == kinds
    widened = {row[0].strip("`"): row[3] for row in found["Models"]}
    for family, told in widened.items():
        first = next((p for p, row in SIZING.items() if family in row.widened), None)
        always = next(iter(SIZING))
        assert told == ("never" if first is None else "always" if first == always else f"since {first[5:-2]}")
        assert (found["Models"][list(widened).index(family)][4] == "yes") == (family in ALL_MODE)


def test_the_geometry_page_tells_how_releases_differ() -> None:
    rows = {row[0]: row[1:] for row in tables(DOCS / "geometry.md")["Releases"]}
    told = list(zip(*rows.values(), strict=True))
    assert len(told) == len(SIZING)
    for (caches, mode, lcm, latent, gdn, kda, exported, wide), row in zip(told, SIZING.values(), strict=True):
        assert caches == ("on" if row.caches else "off")
        assert mode == ("`all`" if row.prefers_all else "`align`")
        assert (lcm == "no such mode") != row.all_mode
        assert int(latent) == max(16, row.latent_block)
        assert int(gdn) == max(16, row.gdn_checkpoint)
        assert tuple(kda.split(", ")) == row.kda_dtypes
        assert ("Mamba-2" in exported, "GDN" in exported) == (bool(row.checkpointed), bool(row.gdn_checkpoint))
        assert wide == ("refused" if row.rejects_wide else "runs")


def test_every_event_is_documented_with_its_arguments() -> None:
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", text, re.M | re.S))
    assert list(sections) == list(EVENTS)
    for name, fields_told in EVENTS.items():
        names = [field.name for field in fields_told]
        told = re.search(r"^Arguments: (.*)$", sections[name], re.M)
        assert told is not None, name
        arguments = [code(part)[0] for part in re.split(r"; (?=`)", told[1])]
        assert [a for a in arguments if a in names] == names
        assert f'{{"event":"{name}"' in sections[name]


def test_the_lines_of_events_are_those_of_real_logs(tmp_path: Path) -> None:
    logged: set[str] = set()
    for i, file in enumerate(
        (
            "scenarios/seeds/s02-anatomy.yaml",
            "scenarios/seeds/s03-resume-mid-block.yaml",
            "scenarios/seeds/s21-offload-cost.yaml",
            "docs/examples/events.yaml",
            "scenarios/field/aborted-writer.yaml",
            "scenarios/field/groups-with-different-states.yaml",
        )
    ):
        status, printed = run(f"stateat replay {file} --log build/{i}.jsonl", tmp_path)
        assert status == 0, "\n".join(printed)
        logged |= set((tmp_path / f"{i}.jsonl").read_text(encoding="utf-8").splitlines())
    shown = [line for block in blocks(DOCS / "events.md", "json") for line in block.splitlines()]
    assert len(shown) >= len(EVENTS)
    for line in shown:
        parts = line.split("…")
        assert any(log.startswith(parts[0]) and log.endswith(parts[-1]) for log in logged), line


# Invariants.


def checked() -> list[Any]:
    rows = tables(DOCS / "invariants.md")["Checked"]
    return [pytest.param(row, id=row[0]) for row in rows if re.fullmatch(r"I\d+", row[0])]


def test_every_invariant_has_one_row() -> None:
    found = tables(DOCS / "invariants.md")
    rows = [row[0] for row in found["Checked"] if re.fullmatch(r"I\d+", row[0])]
    assert sorted(rows, key=lambda name: int(name[1:])) == [f"I{n}" for n in range(1, 19) if n != 15]
    source = "".join(file.read_text() for file in sorted((ROOT / "oracle").glob("*.py")))
    built = {row.values[0][0] for row in checked()}
    assert set(re.findall(r'"(I\d+)"', source)) == built - {"I4"}


@pytest.mark.parametrize("row", checked())
def test_an_invariant_is_checked_where_and_tripped_by_what_is_said(row: list[str]) -> None:
    name, _, severity, where, trips, clean = row
    for place in code(where):
        file, _, function = place.partition(":")
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        assert callable(attrgetter(function)(module))
    if name == "I4":
        # A measure: both sides say what is null, and what the same prompt and a longer one hit.
        tripped, right = expectations(trips), expectations(clean)
        assert tripped[0]["null_boundaries"] > right[0]["null_boundaries"]
        hits = [
            {key: sum(e["hits"][key] for e in found[1:]) for key in ("again", "longer")} for found in (tripped, right)
        ]
        assert hits[0]["again"] < hits[1]["again"]
        assert hits[0]["longer"] == hits[1]["longer"]
        return
    if code(trips):
        found = findings(trips)
        assert {f.severity for f in found if f.invariant == name} == {severity}
        assert name in {named for expect in expectations(trips) for named in invariants_of(expect)}
    assert all(f.invariant != name for f in findings(clean))


def expectations(cell: str) -> list[Any]:
    """What the variant of such a cell expects: in all, then of each case."""
    (file,) = code(cell)
    variant = re.search(r"\((.*)\)$", cell)
    assert variant is not None
    (expect,) = {id(e): e for r in load(ROOT / file).expanded if r.variant == variant[1] and (e := r.expect)}.values()
    return [expect, *(expect.get("cases") or {}).values()]


def invariants_of(expect: Any) -> set[str]:
    """Invariants that it says are broken."""
    wanted = expect.get("findings") or ()
    entries = wanted["contains"] if isinstance(wanted, dict) else wanted
    counted = {name for name, number in (expect.get("invariants") or {}).items() if number}
    return counted | {entry["invariant"] for entry in entries if entry.get("invariant")}


def findings(cell: str) -> tuple[Any, ...]:
    """The findings of a cell such as `scenario.yaml` (variant), or of a log."""
    (file,) = code(cell)
    if file.endswith(".jsonl"):
        return next(iter(audit(ROOT / file).variants.values())).findings
    variant = re.search(r"\((.*)\)$", cell)
    assert variant is not None
    return replay(load(ROOT / file), only=[variant[1]]).variants[variant[1]].findings


def edits() -> list[Any]:
    rows = tables(DOCS / "invariants.md")["Checked"]
    return [pytest.param(*map("".join, map(code, row)), id=code(row[2])[0][:3]) for row in rows if len(row) == 3]


@pytest.mark.parametrize(("before", "after", "finding"), edits())
def test_an_edited_log_gives_the_finding(before: str, after: str, finding: str, tmp_path: Path) -> None:
    log = (DOCS / "examples" / "deployment.jsonl").read_text()
    assert log.count(before) == 1
    (tmp_path / "edited.jsonl").write_text(log.replace(before, after))
    outcome = next(iter(audit(tmp_path / "edited.jsonl").variants.values()))
    assert finding in [f"{f.invariant} {f.severity}  step {f.step}  {f.message}" for f in outcome.findings]
