"""The directions between the packages, what makes a run repeatable, and what a start may cost.

The rules are held by reading the source: each checker takes a module's name and text, so that its control can
give it a text that breaks the rule.
"""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sim", "oracle", "kernels")
WORKER = ROOT / "sim" / "adapters" / "vllm_worker.py"
"""Never imported by us: another Python runs it, beside vLLM."""
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path != WORKER)

MEETING_PLACE = ("sim.events", "sim.tokens")
"""All of `sim` that `oracle` may know."""

HEAVY = ("torch", "triton", "pandas", "matplotlib", "scipy", "joblib", "pyarrow", "vllm")
"""What `stateat --help` and a digest run do not load."""

STOPWATCHES = ("sim.report.progress", "sim.check_cli", "sim.simulate", "sim.watch")
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
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imports(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, local name and full dotted name of every import, wherever it stands.

    What is imported from a module counts as that module's attribute: `from sim import events` is `sim.events`.
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
        if name.startswith("."):
            why = "relative imports hide their direction"
        elif within(name, "vllm"):
            why = "vLLM is never imported"
        elif not within(name, *PACKAGES):
            continue
        elif within(module, "kernels") and not within(name, "kernels"):
            why = "kernels knows neither sim nor oracle"
        elif within(module, "oracle") and within(name, "sim") and not within(name, *MEETING_PLACE):
            why = "of sim, oracle knows sim.events and sim.tokens"
        elif within(module, "sim") and within(name, "oracle") and module != "sim.simulate":
            why = "of sim, only sim.simulate knows oracle"
        elif module == "sim":
            if within(name, "sim.api"):
                continue
            why = "sim's own module is loaded with sim.events: of ours it knows sim.api, and loads it when asked"
        elif module in MEETING_PLACE and not (module == "sim.events" and within(name, "sim.tokens")):
            why = "sim.events may import sim.tokens, and sim.tokens nothing of ours"
        else:
            continue
        wrong.append(f"{module}:{line}: imports {name}: {why}")
    return wrong


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
        ("kernels.numpy", "import sim"),
        ("kernels.numpy", "from oracle.states import digest"),
        ("oracle.audit", "import sim"),
        ("oracle.audit", "from sim import *"),
        ("oracle.audit", "from sim import events, engine"),
        ("oracle.audit", "import sim.events_and_more"),
        ("oracle.audit", "def late():\n    from sim.engine.options import Options"),
        ("oracle.audit", "import importlib\nimportlib.import_module('sim.worker')"),
        ("oracle.audit", "__import__('sim.worker')"),
        ("oracle.audit", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sim.worker"),
        ("oracle.audit", "from . import slots"),
        ("sim.engine", "from oracle import audit"),
        ("sim.replays", "import oracle"),
        ("sim.report.table", "class A:\n    import oracle.audit as audit"),
        ("sim", "from sim.simulate import replay"),
        ("sim.events", "from sim.errors import InputError"),
        ("sim.events", "import kernels"),
        ("sim.tokens", "import sim.events"),
        ("sim.adapters.vllm", "import vllm"),
        ("sim.simulate", "try:\n    from vllm.v1.core import sched\nexcept ImportError:\n    pass"),
    ],
)
def test_a_wrong_direction_is_seen(module: str, source: str) -> None:
    assert len(wrong_directions(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kernels.torch", "import torch\nfrom kernels import numpy"),
        (
            "oracle.audit",
            "import kernels\nfrom sim import events, tokens\nfrom sim.events import Finding\nimport oracle.slots",
        ),
        ("sim.simulate", "from oracle.audit import Audit\nimport sim.loop"),
        ("sim", "def late():\n    from sim.api import replay"),
        ("sim.events", "from sim.tokens import Segments"),
        ("sim.adapters.vllm", "import sim.adapters.vllm_child\nimport vllmish"),
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
    assert len(unrepeatable("sim.engine.scheduler", source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("sim.cache.pool", "def claim(hash: int) -> int:\n    return hash"),
        ("sim.cache.pool", "import hashlib\nhashlib.sha256().digest()"),
        ("sim.workload.generate", "import numpy as np\nrng = np.random.default_rng(7)\nrng.random(3)"),
        ("sim.workload.generate", "from numpy.random import PCG64, Generator\nrng = Generator(PCG64(seed=7))"),
        ("sim.loop", "def at(event: object) -> int:\n    return event.time.time"),
        ("sim.simulate", "import time\nstart = time.perf_counter()"),
        ("sim.report.progress", "from time import monotonic"),
    ],
)
def test_what_repeats_is_let_through(module: str, source: str) -> None:
    assert unrepeatable(module, source) == []


def test_every_folder_of_code_is_a_package() -> None:
    # setup.cfg finds packages by their __init__.py: a folder without one would be missing from a built wheel
    assert [str(path.parent) for path in FILES if not (path.parent / "__init__.py").exists()] == []


def test_all_that_is_imported_is_declared() -> None:
    always, extras = declared()
    assert {name: place for name, place in third_party().items() if name not in always | extras} == {}


def test_all_that_is_declared_is_imported() -> None:
    always, _ = declared()
    assert always - set(third_party()) == set()


@pytest.mark.skipif(not (ROOT / "sim" / "cli.py").exists(), reason="there is no command line to start")
def test_a_start_is_cheap() -> None:
    assert run(f"import sys, sim.cli; print(*sorted(set({HEAVY}) & set(sys.modules)))") == []


def test_oracle_and_kernels_load_no_more_than_they_import() -> None:
    modules = [module_of(path) for path in FILES if within(module_of(path), "oracle", "kernels")]
    loaded = run(
        f"import importlib, sys\n"
        f"for module in {modules}:\n"
        f"    try:\n"
        f"        importlib.import_module(module)\n"
        f"    except ModuleNotFoundError as error:\n"
        f"        if error.name not in ('torch', 'triton'): raise\n"
        f"print(*(name for name in sys.modules if name.partition('.')[0] == 'sim'))"
    )
    assert set(loaded) <= {"sim", *MEETING_PLACE}
