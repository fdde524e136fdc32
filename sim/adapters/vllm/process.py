"""The child process: requests and answers as JSON Lines over pipes, and one message when it goes wrong."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sim.errors import EngineError, RefusedError

WORKER = Path(__file__).resolve().parent.parent / "vllm_worker.py"
START_S = 180.0
"""For importing a release; a real torch on a cold disk takes its time."""
ANSWER_S = 120.0
"""For one step."""
LAST_LINES = 12
"""Of what the child wrote, shown when it fails."""


class Child:
    """A running worker. Raises EngineError with the last lines that it wrote when it crashes or hangs."""

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
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=dict(env) if env is not None else None,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise EngineError(f"{name}: cannot run {command[0]}: {error.strerror or error}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._out, self._in = self._process.stdin, self._process.stdout
        self._buffer = bytearray()
        self._finalizer = weakref.finalize(self, _end, self._process, self._errors)
        try:
            self.hello: dict[str, Any] = self.ask({"do": "hello"}, start_s)
            if "version" not in self.hello:
                raise EngineError(f"{self.name}: found {self.hello} in answer to 'hello', allowed a version")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Send one request and wait for its answer, at most ``seconds`` (default: ``answer_s``) without a sign."""
        limit = self.answer_s if seconds is None else seconds
        if not self._finalizer.alive:
            raise EngineError(f"{self.name}: the engine has been closed")
        self._send(json.dumps(request, separators=(",", ":")).encode() + b"\n", str(request["do"]), limit)
        answer = self._receive(str(request["do"]), limit)
        if "unsupported" in answer:
            raise RefusedError(f"{self.name} cannot run this: {answer['unsupported']}")
        if "error" in answer:
            lines = self._last_lines()
            # Whatever it stopped in the middle of must not be there for another run.
            self.close()
            raise EngineError(f"{self.name} failed in '{request['do']}': {answer['error']}{lines}")
        return answer

    @property
    def closed(self) -> bool:
        """Whether it has ended; it does when it crashes, hangs or fails."""
        return not self._finalizer.alive

    def close(self) -> None:
        """End the child; more than once is fine."""
        self._finalizer()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, data: bytes, what: str, seconds: float) -> None:
        view = memoryview(data)
        try:
            while view:
                self._wait(self._out.fileno(), False, what, seconds)
                view = view[os.write(self._out.fileno(), view[:65536]) :]
        except BrokenPipeError:
            raise self._crashed(what) from None

    def _receive(self, what: str, seconds: float) -> dict[str, Any]:
        scanned = 0
        while (end := self._buffer.find(b"\n", scanned)) < 0:
            scanned = len(self._buffer)
            self._wait(self._in.fileno(), True, what, seconds)
            data = os.read(self._in.fileno(), 1 << 20)
            if not data:
                raise self._crashed(what)
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise EngineError(f"{self.name} answered '{what}' with what is no JSON object: {line[:80]!r}")
        return answer

    def _wait(self, fd: int, reading: bool, what: str, seconds: float) -> None:
        """Until the child reads or writes on; no clock is read, so the limit is for its silence."""
        ready = select.select([fd], [], [], seconds) if reading else select.select([], [fd], [], seconds)
        if not any(ready):
            lines = self._last_lines()
            self.close()
            raise EngineError(f"{self.name} did not answer '{what}' within {seconds:g} s, so it was ended{lines}")

    def _crashed(self, what: str) -> EngineError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its pipe" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        lines = self._last_lines()
        self.close()
        return EngineError(f"{self.name} {how} during '{what}'{lines}")

    def _last_lines(self) -> str:
        """What it wrote last, indented, to be added to a message; '' for nothing."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - 20_000, 0))
        lines = self._errors.read().decode(errors="replace").splitlines()
        shown = [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]
        return "".join(f"\n  {line}" for line in ["it wrote last:", *shown]) if shown else ""


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    for stream in (process.stdin, process.stdout):
        stream.close()
    process.kill()
    process.wait()
    errors.close()
