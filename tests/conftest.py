"""What all tests share: how Hypothesis searches, where recordings are, and that no window opens."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import forked as forks
import pytest
from hypothesis import HealthCheck, settings

# A suite that was started in the background ignores Ctrl-C, and so would each program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["MPLBACKEND"] = "Agg"  # child processes too

# `ci`, the default, tries the same inputs in every run; `pytest --hypothesis-profile=deep` looks for new ones.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("ci")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded traces and schedules; without it the test is skipped."""
    named = os.environ.get("STATEAT_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder} (name the shared folder in STATEAT_SHARED)")
    return folder


@pytest.fixture(scope="session")
def forked() -> Iterator[forks.Codes]:
    """Runs the command line in forks of one process, which has loaded it."""
    with forks.running() as codes:
        yield codes
