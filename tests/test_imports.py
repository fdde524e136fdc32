"""The directions between the packages, what makes a run repeatable, and what a start may cost.

The rules are held by reading the source: each checker takes a module's name and text, so that its control can
give it a text that breaks the rule.
"""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("sim", "oracle", "kernels")
PACKAGES = ("stateat",)
CHILD = ROOT / "sim" / "adapters" / "vllm_child"
"""Never imported by us: another Python runs it, beside vLLM."""
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.parent != CHILD)

LAYERS = (
    "tokens events errors printable signals files inputs schema arguments options",
    "rules",
    "cache",
    "worker",
    "workload",
    "releases",
    "engine",
    "scenario",
    "adapters",
    "run",
    "explain conformance sweeps geometry",
    "report",
    "api",
    "cli",
)
"""The rooms of `sim`, folders and files, from the ground up: each imports of ours what lies in it or below it."""
RANKS = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms.split()}

MEETING_PLACE = ("stateat.sim.events", "stateat.sim.tokens")
"""All of `sim` that `oracle` may know."""

KNOW_THE_ORACLE = ("stateat.sim.run.simulate", "stateat.sim.explain.drift")
"""The modules of `sim` that may know `oracle`: who asks it about a run, and who asks its model about a drift."""

HEAVY = ("torch", "triton", "pandas", "matplotlib", "scipy", "joblib", "pyarrow", "vllm")
"""What `stateat --help` and a digest run do not load."""

STOPWATCHES = (
    "stateat.sim.report.terminal.progress",
    "stateat.sim.cli.check",
    "stateat.sim.run.simulate",
    "stateat.sim.cli.watch",
)
"""The modules that may tell a person how long something took, or wait for a process."""

ELAPSED = {f"time.{name}{ns}" for name in ("perf_counter", "monotonic", "process_time") for ns in ("", "_ns")}
WALL_CLOCKS = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime"} | {
    f"datetime.{name}" for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
}
CHANCE = ("random", "secrets", "numpy.random", "os.urandom", "uuid.uuid1", "uuid.uuid4")
SEEDED = ("Generator", "BitGenerator", "PCG64", "Philox", "SeedSequence", "default_rng")
"""What `numpy.random` offers without a state of its own; these are called with a seed."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("stateat", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imports(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, local name and full dotted name of every import, wherever it stands.

    What is imported from a module counts as that module's attribute: `from stateat.sim import events` is
    `stateat.sim.events`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                start = "." * node.level + (node.module or "")
                yield node.lineno, alias.asname or alias.name, f"{start}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, "", str(node.args[0].value)


def wrong_directions(module: str, source: str) -> list[str]:
    """The imports of a module that go against the design."""
    wrong = []
    for line, _, name in imports(source):
        if within(name, *FOLDERS):
            why = "our packages have one name, stateat"
        elif name.startswith("."):
            why = "relative imports hide their direction"
        elif within(name, "vllm"):
            why = "vLLM is never imported"
        elif not within(name, *PACKAGES):
            continue
        elif within(module, "stateat.kernels") and not within(name, "stateat.kernels"):
            why = "kernels knows neither sim nor oracle"
        elif within(module, "stateat.oracle") and within(name, "stateat.sim") and not within(name, *MEETING_PLACE):
            why = "of sim, oracle knows stateat.sim.events and stateat.sim.tokens"
        elif within(module, "stateat.sim") and within(name, "stateat.oracle") and module not in KNOW_THE_ORACLE:
            why = f"of sim, only {' and '.join(KNOW_THE_ORACLE)} know oracle"
        elif module == "stateat":
            if within(name, "stateat.sim.api", "stateat.sim.errors"):
                continue
            why = "loaded with whatever is imported of ours: it knows what users call and catch, lazily"
        elif module in MEETING_PLACE and not (module == "stateat.sim.events" and within(name, "stateat.sim.tokens")):
            why = "stateat.sim.events may import stateat.sim.tokens, and stateat.sim.tokens nothing of ours"
        else:
            continue
        wrong.append(f"{module}:{line}: imports {name}: {why}")
    return wrong


def room_of(module: str) -> str:
    """The room of `sim` that a module belongs to; empty for `sim` itself."""
    return [*module.split("."), "", ""][2]


def upward(module: str, source: str) -> list[str]:
    """The imports of a module of `sim` from a room above its own, or beside it."""
    wrong = []
    for line, _, name in imports(source):
        if not within(name, "stateat.sim") or not within(module, "stateat.sim"):
            continue
        here, there = room_of(module), room_of(name)
        if here and there and here != there and RANKS[here] <= RANKS[there] and RANKS[there]:
            wrong.append(f"{module}:{line}: imports {name}: {here} lies below {there}")
    return wrong


def known_imports(module: str, source: str, known: Set[str]) -> set[str]:
    """The modules of ours that a module imports, for types alone or inside a function too."""
    found = set()
    for _, _, name in imports(source):
        parent = name.rpartition(".")[0]
        found |= {name} & known or {parent} & known
    return found - {module}


def circle(graph: Mapping[str, Set[str]]) -> list[str]:
    """One of the circles, its first module named again at the end; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def unrepeatable(module: str, source: str) -> list[str]:
    """What in a module could make two runs differ."""
    wrong = []
    names = {local: name for _, local, name in imports(source) if local}

    def full_name(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            start = full_name(node.value)
            return f"{start}.{node.attr}" if start else ""
        return names.get(node.id, "") if isinstance(node, ast.Name) else ""

    def fault(name: str) -> str:
        if within(name, *WALL_CLOCKS):
            return "the wall clock"
        if within(name, *ELAPSED):
            return "" if module in STOPWATCHES else "the wall clock"
        if name.startswith("numpy.random.") and name.split(".")[2] in SEEDED:
            return ""
        return "chance without a seed" if name != "numpy.random" and within(name, *CHANCE) else ""

    for line, _, name in imports(source):
        if fault(name):
            wrong.append(f"{module}:{line}: {name}: {fault(name)}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and fault(full_name(node)):
            wrong.append(f"{module}:{node.lineno}: {full_name(node)}: {fault(full_name(node))}")
        if isinstance(node, ast.Call):
            name = full_name(node.func)
            if isinstance(node.func, ast.Name) and node.func.id == "hash" and not name:
                wrong.append(f"{module}:{node.lineno}: hash(): differs from process to process")
            if name.startswith("numpy.random.") and not fault(name) and not node.args and not node.keywords:
                wrong.append(f"{module}:{node.lineno}: {name}(): chance without a seed")
    return wrong


def declared() -> tuple[set[str], set[str]]:
    """The modules that setup.cfg promises to every user, and those that an extra brings."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")

    def modules(requirements: str) -> set[str]:
        found = (re.match(r"[\w-]+", line) for line in requirements.splitlines())
        return {{"PyYAML": "yaml"}.get(m[0], m[0]) for m in found if m}

    extras = config["options.extras_require"]
    return modules(config["options"]["install_requires"]), set().union(
        *(modules(extras[name]) for name in extras if name != "dev")
    )


def third_party() -> dict[str, str]:
    """Each module from outside that some file imports, with one such place."""
    found: dict[str, str] = {}
    for path in FILES:
        for line, _, name in imports(path.read_text(encoding="utf-8")):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in PACKAGES:
                found.setdefault(top, f"{module_of(path)}:{line}")
    return found


def run(code: str) -> list[str]:
    """The words that a fresh interpreter prints."""
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.split()


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    assert wrong_directions(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("stateat.kernels.numpy", "import stateat.sim"),
        ("stateat.kernels.numpy", "from stateat.oracle.states import digest"),
        ("stateat.oracle.audit", "import stateat.sim"),
        ("stateat.oracle.audit", "from stateat.sim import *"),
        ("stateat.oracle.audit", "from stateat.sim import events, engine"),
        ("stateat.oracle.audit", "import stateat.sim.events_and_more"),
        ("stateat.oracle.audit", "def late():\n    from stateat.sim.options import Options"),
        ("stateat.oracle.audit", "import importlib\nimportlib.import_module('stateat.sim.worker.worker')"),
        ("stateat.oracle.audit", "__import__('stateat.sim.worker.worker')"),
        (
            "stateat.oracle.audit",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stateat.sim.worker.worker",
        ),
        ("stateat.oracle.audit", "from . import slots"),
        ("stateat.sim.engine", "from stateat.oracle import audit"),
        ("stateat.sim.replays", "import stateat.oracle"),
        ("stateat.sim.report.terminal.table", "class A:\n    import stateat.oracle.audit as audit"),
        ("stateat", "from stateat.sim.run.simulate import replay"),
        ("stateat.sim.events", "from stateat.sim.errors import InputError"),
        ("stateat.sim.events", "import stateat.kernels"),
        ("stateat.sim.tokens", "import stateat.sim.events"),
        ("stateat.sim.adapters.vllm", "import vllm"),
        ("stateat.sim.api", "from sim.events import Finding"),
        ("stateat.sim.api", "import kernels"),
        ("stateat.sim.run.simulate", "try:\n    from vllm.v1.core import sched\nexcept ImportError:\n    pass"),
    ],
)
def test_a_wrong_direction_is_seen(module: str, source: str) -> None:
    assert len(wrong_directions(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("stateat.kernels.torch", "import torch\nfrom stateat.kernels import numpy"),
        (
            "stateat.oracle.audit",
            "import stateat.kernels\nfrom stateat.sim import events, tokens\n"
            "from stateat.sim.events import Finding\nimport stateat.oracle.slots",
        ),
        ("stateat.sim.run.simulate", "from stateat.oracle.audit import Audit\nimport stateat.sim.run.clock"),
        ("stateat", "def late():\n    from stateat.sim.api import replay"),
        ("stateat.sim.events", "from stateat.sim.tokens import Segments"),
        ("stateat.sim.adapters.vllm", "import stateat.sim.adapters.vllm_child\nimport vllmish"),
    ],
)
def test_a_right_direction_is_let_through(module: str, source: str) -> None:
    assert wrong_directions(module, source) == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_nothing_depends_on_chance_or_the_clock(path: Path) -> None:
    assert unrepeatable(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "hash('a')",
        "def f(hash: int) -> int:\n    return {}[hash((1, 2))]",
        "import random",
        "from random import shuffle",
        "import numpy as np\nnp.random.rand(3)",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy\nshuffle = numpy.random.shuffle",
        "from numpy.random import rand",
        "from numpy import random\nrandom.rand()",
        "import numpy as np\nrng = np.random.default_rng()",
        "from numpy.random import default_rng\nrng = default_rng()",
        "import time\nstart = time.time()",
        "import time as t\nstart = t.time_ns()",
        "import time\nclock = time.perf_counter",
        "from time import monotonic",
        "import datetime\nnow = datetime.datetime.now()",
        "from datetime import datetime\nnow = datetime.now()",
        "from datetime import datetime as dt, UTC\nnow = dt.now(UTC)",
        "import os\nseed = os.urandom(8)",
        "import uuid\nname = uuid.uuid4()",
    ],
)
def test_chance_and_clocks_are_seen(source: str) -> None:
    assert len(unrepeatable("stateat.sim.engine.scheduler", source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("stateat.sim.cache.pool", "def claim(hash: int) -> int:\n    return hash"),
        ("stateat.sim.cache.pool", "import hashlib\nhashlib.sha256().digest()"),
        ("stateat.sim.workload.generate", "import numpy as np\nrng = np.random.default_rng(7)\nrng.random(3)"),
        ("stateat.sim.workload.generate", "from numpy.random import PCG64, Generator\nrng = Generator(PCG64(seed=7))"),
        ("stateat.sim.run.clock", "def at(event: object) -> int:\n    return event.time.time"),
        ("stateat.sim.run.simulate", "import time\nstart = time.perf_counter()"),
        ("stateat.sim.report.terminal.progress", "from time import monotonic"),
    ],
)
def test_what_repeats_is_let_through(module: str, source: str) -> None:
    assert unrepeatable(module, source) == []


def test_every_room_has_its_place_and_the_ground_is_a_dozen_files_at_most() -> None:
    files = {path.stem for path in (ROOT / "sim").glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in (ROOT / "sim").glob("*/__init__.py")}
    assert files | folders == set(RANKS)
    assert len(files) < 12


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_room_imports_from_above(path: Path) -> None:
    assert upward(module_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "from stateat.sim.engine.request import Request",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from stateat.sim.releases.rules import Rules",
        "def late():\n    import stateat.sim.run.simulate",
        "from stateat.sim import api",
    ],
)
def test_an_import_from_above_is_seen(source: str) -> None:
    """Negative control."""
    assert len(upward("stateat.sim.cache.manager", source)) == 1


def test_there_is_no_circle_of_imports() -> None:
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in FILES}
    assert circle({module: known_imports(module, text, texts.keys()) for module, text in texts.items()}) == []


def test_no_two_folders_import_each_other() -> None:
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in FILES}
    folders = {module_of(path): path.parent.relative_to(ROOT).as_posix() for path in FILES}
    pairs = {
        (folders[module], folders[other])
        for module, text in texts.items()
        for other in known_imports(module, text, texts.keys())
        if "sim" not in (folders[module], folders[other])
    }
    assert {(a, b) for a, b in pairs if a < b and (b, a) in pairs} == set()


def test_a_circle_is_seen() -> None:
    """Negative control: of three, one for types alone."""
    texts = {
        "a.b": "from a.c import C",
        "a.c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import d",
        "a.d": "def late():\n    import a.b",
    }
    found = circle({module: known_imports(module, text, texts.keys()) for module, text in texts.items()})
    assert found[0] == found[-1] and set(found) == set(texts)


def test_every_folder_of_code_is_a_package_that_is_listed() -> None:
    # what setup.cfg does not list would be missing from a built wheel
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = config["options"]["packages"].split()
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in (*FILES, CHILD / "__main__.py")}
    assert listed == ["stateat", *sorted(f"stateat.{folder}" for folder in folders)]
    assert [str(path.parent) for path in FILES if not (path.parent / "__init__.py").exists()] == []


def test_the_child_imports_nothing_of_ours_and_hides_no_module() -> None:
    # It runs with its folder first on the path.
    names = {path.stem for path in CHILD.glob("*.py")}
    assert not names & {*sys.stdlib_module_names, "vllm", "torch"} and not (CHILD / "__init__.py").exists()
    found = {name.partition(".")[0] for path in CHILD.glob("*.py") for _, _, name in imports(path.read_text())}
    assert found <= {*sys.stdlib_module_names, "vllm", "torch", "pydantic_core", *names}
    assert all(len(path.read_text().splitlines()) < 500 for path in CHILD.glob("*.py"))


def test_all_that_is_imported_is_declared() -> None:
    always, extras = declared()
    assert {name: place for name, place in third_party().items() if name not in always | extras} == {}


def test_all_that_is_declared_is_imported() -> None:
    always, _ = declared()
    assert always - set(third_party()) == set()


def test_a_start_is_cheap() -> None:
    assert run(f"import sys, stateat.sim.cli.main; print(*sorted(set({HEAVY}) & set(sys.modules)))") == []


def test_oracle_and_kernels_load_no_more_than_they_import() -> None:
    modules = [module_of(path) for path in FILES if within(module_of(path), "stateat.oracle", "stateat.kernels")]
    loaded = run(
        f"import importlib, sys\n"
        f"for module in {modules}:\n"
        f"    try:\n"
        f"        importlib.import_module(module)\n"
        f"    except ModuleNotFoundError as error:\n"
        f"        if error.name not in ('torch', 'triton'): raise\n"
        f"print(*(name for name in sys.modules if name.startswith('stateat.sim')))"
    )
    assert set(loaded) == {"stateat.sim", *MEETING_PLACE}
