"""What is distributed: one import name with its data in the wheel, and beside other packages of our folders' names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import stateat

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("sim", "oracle", "kernels", "scenarios", "tests")
BUILD = """
import os, sys, warnings
warnings.simplefilter("ignore")
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


def build(what: str, source: Path, target: Path) -> Path:
    """A wheel or sdist of a source tree, made by the installed setuptools without any network."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, what, str(target)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist) of a copy of the tree."""
    pytest.importorskip("setuptools", minversion="70.1", reason="builds wheels by itself from 70.1 on")
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, source)
    return build("wheel", source, folder), build("sdist", source, folder)


def tracked(*suffixes: str, under: str) -> set[str]:
    return {
        f"stateat/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / under).rglob("*")
        if path.suffix in suffixes and "__pycache__" not in path.parts
    }


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_one_package_with_all_its_code_and_data(built: tuple[Path, Path]) -> None:
    names = {name for name in contents(built[0]) if ".dist-info/" not in name}
    assert names == {
        *(f"stateat/{name}" for name in ("__init__.py", "__main__.py", "py.typed", "constraints.txt")),
        *tracked(".py", under="sim"),
        *tracked(".py", under="oracle"),
        *tracked(".py", under="kernels"),
        *tracked(".yaml", ".jsonl", ".md", under="scenarios"),
        "stateat/sim/adapters/vllm/pins.txt",
    }


def test_the_sdist_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert not (source / "tests").exists()
    again = contents(build("wheel", source, tmp_path))
    # The list of hashes follows the order of the files.
    first = contents(wheel)
    assert again.keys() == first.keys()
    assert [name for name in first if again[name] != first[name] and not name.endswith("/RECORD")] == []


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, as in site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(folder)
    return folder


def python(code: str, here: Path, *path: Path) -> str:
    """What a program prints that finds modules in these folders first, and no checkout of ours."""
    away = f"import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'ditable' not in str(f)]; {code}"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    env.pop("STATEAT_SHARED", None)
    done = subprocess.run(
        [sys.executable, "-c", away], cwd=here, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


CLI = "from stateat.sim.cli.main import main; main({}, prog_name='stateat', standalone_mode=False)"


def test_an_installed_stateat_works_beside_packages_of_our_folders_names(installed: Path, tmp_path: Path) -> None:
    others, here = tmp_path / "others", tmp_path / "here"
    here.mkdir()
    (others / "kernels").mkdir(parents=True)
    (others / "kernels" / "__init__.py").write_text("def get_kernel(): return 'theirs'\n")
    (others / "sim.py").write_text("MINE = 'mine'\n")
    code = (
        "import kernels, sim, stateat; assert kernels.get_kernel() + sim.MINE == 'theirsmine'; "
        f"assert stateat.__file__.startswith({str(installed)!r}), stateat.__file__; "
        "print(stateat.replay('s02-anatomy').variants['old gate'].poisoned)"
    )
    assert python(code, here, installed, others) == "1"
    assert python(code, here, others, installed) == "1"


def test_an_installed_stateat_has_its_scenarios_and_no_shared_folder(installed: Path, tmp_path: Path) -> None:
    assert "seeds/s02-anatomy" in python(CLI.format(["list", "seeds"]), tmp_path, installed)
    code = (
        "from stateat.sim.errors import MissingError\n"
        "import stateat\n"
        "try: stateat.replay('mooncake-conversation')\n"
        "except MissingError as error: print(error)"
    )
    code = f"exec({code!r})"
    assert "there is no shared folder; name it in STATEAT_SHARED" in python(code, tmp_path, installed)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import stateat; "
        "print(*(set(sys.modules) - before - {'stateat'})); "
        "stateat.InputError; print(any(name.split('.')[0] in ('numpy', 'pydantic') for name in sys.modules))"
    )
    first, second = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = [name for name in first.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert (found, second) == ([], "False")


def test_the_top_offers_what_docs_promise() -> None:
    assert set(stateat.__all__) <= set(dir(stateat))
    assert all(getattr(stateat, name) is not None for name in stateat.__all__)
    assert issubclass(stateat.InputError, stateat.StateatError)
    assert stateat.__version__.startswith("0.")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stateat.nothing


def test_python_m_stateat_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "stateat", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"stateat {stateat.__version__}\n"
