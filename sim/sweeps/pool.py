"""Pools that run the tasks of a sweep: this process, others of this machine, or a cluster (joblib's backends)."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import islice
from threading import Thread
from typing import Any

from stateat.sim.errors import EngineError, InputError, MissingError
from stateat.sim.scenario.messages import choice
from stateat.sim.sweeps.plan import Task
from stateat.sim.sweeps.work import Row, work

BACKENDS = ("loky", "dask", "ray")
MAX_JOBS = 1024
WATCH_S = 0.2
"""Between two looks of a worker for its parent."""
ROUNDS = 4
"""Tasks a process in one go, for a backend that gives nothing back before all is done."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A place where runs are made."""

    jobs: int = 1
    """Processes; of a cluster at an address: as many as it has, whatever this says."""
    backend: str = "loky"
    address: str | None = None
    """Address of an existing cluster; without one dask and ray start their own here."""

    def check(self) -> None:
        """Raises InputError for what there is not."""
        if self.backend not in BACKENDS:
            raise InputError(f"--backend: {choice(self.backend, BACKENDS)}")
        if not 1 <= self.jobs <= MAX_JOBS:
            raise InputError(f"--jobs: found {self.jobs}, allowed 1 to {MAX_JOBS}")
        if self.address is not None and self.backend == "loky":
            raise InputError("--address: allowed with --backend dask or ray")

    def rows(self, tasks: Iterable[Task], count: int) -> Generator[Row]:
        """The row of each task, as they come. Close it to stop.

        Raises EngineError when a worker was killed.
        """
        self.check()
        if self.backend == "loky" and min(self.jobs, count) <= 1:
            yield from map(work, tasks)
            return
        with ExitStack() as stack:
            yield from self._parallel(tasks, stack)

    def _parallel(self, tasks: Iterable[Task], stack: ExitStack) -> Generator[Row]:
        from joblib import Parallel, delayed, parallel_config
        from joblib.externals.loky.process_executor import BrokenProcessPool

        jobs, settings = self._open(stack)
        # Whoever stops a sweep wants the tasks cancelled that joblib warns of.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "[0-9]+ tasks which were still being processed", UserWarning)
        stack.enter_context(parallel_config(self.backend, n_jobs=jobs, **settings))
        try:
            if self.backend != "ray":
                # Not in the order of the plan: nobody waits for the slowest.
                rows = Parallel(batch_size=1, return_as="generator_unordered")(delayed(work)(task) for task in tasks)
                stack.callback(rows.close)
                yield from rows
                return
            # Ray's gives nothing back before all is done: some at a time.
            left = iter(tasks)
            while some := list(islice(left, ROUNDS * jobs)):
                yield from Parallel()(delayed(work)(task) for task in some)
        except BrokenProcessPool as error:
            raise EngineError("a worker was killed (by the system where memory is short, or by somebody)") from error
        except Exception as error:
            # What goes wrong in a run is in its row: this is the backend.
            raise EngineError(f"--backend {self.backend}: {type(error).__name__}: {error}") from error

    def _open(self, stack: ExitStack) -> tuple[int, dict[str, Any]]:
        """Processes to use, and joblib's settings for the backend."""
        if self.backend == "dask":
            return self._dask(stack), {"wait_for_workers_timeout": 60}
        if self.backend == "ray":
            return self._ray(stack), {}
        return self.jobs, {"initializer": end_with, "initargs": (os.getpid(),)}

    def _dask(self, stack: ExitStack) -> int:
        try:
            from dask.distributed import Client
        except ImportError:
            raise _missing("dask", "dask[distributed]") from None
        try:
            client: AbstractContextManager[Any] = (
                Client(self.address, timeout=10)
                if self.address is not None
                else Client(n_workers=self.jobs, threads_per_worker=1, dashboard_address=None)
            )
        except (OSError, ValueError) as error:
            raise InputError(f"--address {self.address}: no Dask scheduler answers there: {error}") from error
        cluster: Any = stack.enter_context(client)
        return max(1, sum(map(int, cluster.nthreads().values())))

    def _ray(self, stack: ExitStack) -> int:
        try:
            import ray
            from ray.util.joblib import register_ray
        except ImportError:
            raise _missing("ray", "ray") from None
        if self.address is not None:
            _reach(self.address)
        try:
            given = {"address": self.address} if self.address is not None else {"num_cpus": self.jobs}
            ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False, **given)
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"--address {self.address}: no Ray cluster answers there: {error}") from error
        stack.callback(ray.shutdown)
        register_ray()
        return max(1, int(ray.cluster_resources().get("CPU", 1)))


def end_with(parent: int) -> None:
    """End this process, from now on, when its parent has ended, however that was."""
    Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    # An orphan is given to another parent; where that is not so, its queue ends it in time.
    while os.getppid() == parent:
        time.sleep(WATCH_S)
    os._exit(1)


def _reach(address: str) -> None:
    """Ray itself goes on trying for minutes."""
    from socket import create_connection

    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise InputError(f"--address {address}: no Ray cluster answers there: {error}") from None


def _missing(backend: str, package: str) -> MissingError:
    return MissingError(f"--backend {backend}: it is not installed (pip install '{package}'); loky needs nothing more")
