"""The child process: requests and answers as JSON Lines over pipes, its prints passed on, and one message when it
goes wrong."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import IO, Any, TypeVar

from stateat.sim.adapters.vllm.answers import HELLO, Answer
from stateat.sim.adapters.vllm.prints import SHOWN_CHARACTERS, Prints
from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.printable import short

START_S = 180.0
"""Seconds for importing a release; a real torch on a cold disk takes its time."""
ANSWER_S = 120.0
"""Seconds for one step."""
LOOK_S = 0.05
"""Seconds between two looks at a child that has not answered yet: does it print, does it still run?"""
LONGEST_ANSWER = 1 << 26
"""Bytes: a step that hands out two million blocks needs a quarter of it."""
MOST_PRINTED = 1 << 26
"""Bytes that a child may print for one answer."""
MARK = "STATEAT_WORKER"
"""Variable in the environment of a worker and of all that it starts: which worker that is, of which process."""
_NUMBERS = count()
GUARD = """read line
kill -s KILL -- "-$0"
for again in 1 2 3 4 5 6 7 8 9 10; do
    found=$(grep -lsF -e "$1" /proc/[0-9]*/environ) || [ -n "$found" ] || break
    for each in $found; do each=${each#/proc/}; kill -s KILL "${each%/environ}"; done
    sleep 0.02
done"""
"""Waits until whoever holds its standard input lets go of it, however that ended, and ends a process group; then,
where the system tells the environment of a process (Linux), what left the group, until nothing is found."""
GUARD_S = 5
"""Seconds for that."""

T = TypeVar("T")


class Child:
    """A running worker, in a process group of its own. It ends with us, and with it all that it started.

    What it prints goes to standard error, a line each, before the answer that it was printed on the way to is used.
    Raises EngineError with the last lines that it wrote when it crashes, hangs, floods or answers out of shape.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        start_s: float = START_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.name = name
        self.answer_s = answer_s
        # With an end, so that 1 is not found in 12.
        mark = f"{os.getpid()}.{next(_NUMBERS)}."
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(os.environ if env is None else env) | {MARK: mark},
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"{name}: cannot run {command[0]}: {error.strerror or error}") from error
        guard = _guard(self._process, mark)
        self._finalizer = weakref.finalize(self, _end, self._process, guard)
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._out, self._in, self._err = (_fd(pipe) for pipe in pipes)
        os.set_blocking(self._err, False)
        self._buffer = bytearray()
        self._prints = Prints(name)
        self._printed = 0
        """Bytes that it printed since it was asked last."""
        try:
            self.hello: dict[str, str] = dict(self.ask({"do": "hello"}, HELLO, start_s))  # type: ignore[arg-type]
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], shape: Answer[T], seconds: float | None = None) -> T:
        """Send one request and wait for its answer; ``seconds`` (default: ``answer_s``) are those that it is silent.

        Raises RefusedError where the release cannot do it.
        """
        what, limit = str(request["do"]), self.answer_s if seconds is None else seconds
        if not self._finalizer.alive:
            raise EngineError(f"{self.name}: the engine has been closed")
        if self._buffer:
            raise self._failed(f"answered before it was asked '{what}': {bytes(self._buffer[:80])!r}")
        self._send(json.dumps(request, separators=(",", ":")).encode() + b"\n", what, limit)
        answer: Any = self._receive(what, shape, limit)
        if "error" in answer:
            text = (
                f"{self.name} failed in '{what}': {short(answer['error'], SHOWN_CHARACTERS)}{self._prints.last_lines()}"
            )
            # Whatever it stopped in the middle of must not be there for another run.
            self.close()
            raise EngineError(text)
        self._prints.pass_on()
        if "unsupported" in answer:
            raise RefusedError(f"{self.name} cannot run this: {short(answer['unsupported'], SHOWN_CHARACTERS)}")
        found: T = answer
        return found

    @property
    def closed(self) -> bool:
        """True if it has ended; it does when it crashes, hangs or fails."""
        return not self._finalizer.alive

    def close(self) -> None:
        """End the child and what it started; more than once is fine."""
        if self._finalizer.alive:
            self._listen()
            self._prints.end()
            self._prints.pass_on()
        self._finalizer()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The conversation.

    def _send(self, data: bytes, what: str, seconds: float) -> None:
        view = memoryview(data)
        self._printed = 0
        try:
            while view:
                self._wait(self._out, False, what, seconds)
                view = view[os.write(self._out, view[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            raise self._crashed(what) from None

    def _receive(self, what: str, shape: Answer[T], seconds: float) -> Any:
        scanned = 0
        while (end := self._buffer.find(b"\n", scanned)) < 0:
            scanned = len(self._buffer)
            if scanned > LONGEST_ANSWER:
                raise self._failed(f"answered '{what}' with more than {LONGEST_ANSWER >> 20} MB")
            self._wait(self._in, True, what, seconds)
            data = os.read(self._in, 1 << 20)
            if not data:
                raise self._crashed(what)
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._listen()
        try:
            return shape.read(line)
        except ValueError as error:
            text = f"answered '{what}' out of shape ({short(str(error), SHOWN_CHARACTERS)}): {line[:80]!r}"
        except MemoryError:
            text = f"answered '{what}' with more than there is memory for"
        raise self._failed(text)

    def _wait(self, fd: int, reading: bool, what: str, seconds: float) -> None:
        """Until the child reads or writes on; no clock is read, so the limit is for its silence."""
        silent = 0.0
        while True:
            look = min(LOOK_S, seconds)
            ready = select.select([fd], [], [], look) if reading else select.select([], [fd], [], look)
            if any(ready):
                return
            self._listen()
            if self._printed > MOST_PRINTED:
                raise self._failed(f"printed more than {MOST_PRINTED >> 20} MB during '{what}'")
            if reading and self._process.poll() is not None and not any(select.select([fd], [], [], 0)):
                # Another process that it started may hold the pipe open.
                raise self._crashed(what)
            silent += look
            if silent >= seconds:
                raise self._failed(f"did not answer '{what}' within {seconds:g} s, so it was ended")

    # When it goes wrong.

    def _failed(self, how: str) -> EngineError:
        self._listen()
        lines = self._prints.last_lines()
        self.close()
        return EngineError(f"{self.name} {how}{lines}")

    def _crashed(self, what: str) -> EngineError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its pipe" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return self._failed(f"{how} during '{what}'")

    def _listen(self) -> None:
        """Read what it has printed so far, at most what it may print for one answer."""
        with suppress(BlockingIOError):
            while self._printed <= MOST_PRINTED and (data := os.read(self._err, 1 << 16)):
                self._printed += len(data)
                self._prints.hear(data)


def _fd(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _guard(process: subprocess.Popen[bytes], mark: str) -> subprocess.Popen[bytes]:
    """A process that ends the child and what it started as soon as we let go of it or are gone, even killed."""
    null = subprocess.DEVNULL
    command = ["/bin/sh", "-c", GUARD, str(process.pid), f"{MARK}={mark}"]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)
    except OSError as error:
        _kill(process)
        raise EngineError(f"cannot run {command[0]}, which guards workers: {error.strerror or error}") from error


def _end(process: subprocess.Popen[bytes], guard: subprocess.Popen[bytes]) -> None:
    _kill(process)
    for pipe in (process.stdin, process.stdout, process.stderr, guard.stdin):
        if pipe is not None:
            pipe.close()
    process.wait()
    try:
        guard.wait(GUARD_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group, of which it is the first."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
