"""Stands in for ``vllm_child``: one request at a time, whole in one chunk, without any vLLM.

Arguments choose a way to misbehave at the first step: ``crash``, ``kill``, ``hang``, ``garbage``, ``raise``,
``prints``, ``floods``, ``endless``, ``leaves`` (a process that holds its pipes), ``unsupported`` (at init), ``poison``
(claims a slot that nobody wrote), ``crash-once FILE`` (unless the file is there, which it makes), ``slow-start`` (never
says hello), ``no-start`` (ends before) or ``deaf`` (says hello and reads no more). It schedules asynchronously with
``ahead``, and with ``miscounts``, which takes each request to be a token further. With ``orphan`` it starts a process,
and on Linux one in a session of its own, writes all process ids into the file named next, and waits. With ``say`` it
answers what is named next with the JSON that follows.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Fake:
    """Blocks of 16 tokens in both groups; the recurrent one claims its only full block."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.waiting: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []

    def hello(self, said: dict[str, Any]) -> dict[str, Any]:
        return {"version": "0.0.0", "python": "3"}

    def init(self, said: dict[str, Any]) -> dict[str, Any]:
        self.waiting, self.running = [], []
        if self.how == "unsupported":
            return {"unsupported": "it has no retention"}
        ahead = self.how in ("ahead", "miscounts")
        return {"free": 9, "warnings": ["it would refuse this"], "depth": 1 + ahead, "ahead": ahead}

    def add(self, said: dict[str, Any]) -> dict[str, Any]:
        self.waiting.append({"id": said["id"], "computed": 0, "left": said["max_tokens"]})
        return {}

    def step(self, said: dict[str, Any]) -> dict[str, Any]:
        self._misbehave()
        log: list[Any] = [["reset", said["reset"] == "running"]] if said["reset"] else []
        rows: list[Any] = []
        gone = set(said["abort"])
        self.waiting = [r for r in self.waiting if r["id"] not in gone]
        self.running = [r for r in self.running if r["id"] not in gone]
        for request in self.running:
            start = request["computed"] + (self.how == "miscounts")
            rows.append([request["id"], start, start + 1, [], None, [[4], []], "", 0, 0])
        if self.waiting and not self.running:
            request = self.waiting.pop(0)
            self.running.append(request)
            log += [
                ["allocate", request["id"], 1, 0, [2, 3]],
                ["claim", 1, 2, request["id"], 0, 16, "ab" * 36],
                ["admit", request["id"], 0, 0, False, [], 0, []],
            ]
            rows.append([request["id"], 0, 16, [], [[1], [2, 3]], None, "split", 0, 17])
            if self.how == "poison":
                log.insert(-1, ["claim", 1, 3, request["id"], 0, 16, "cd" * 36])
        for row in rows:
            next(r for r in self.running if r["id"] == row[0])["computed"] = row[2]
        return {"aborted": [], "log": log, "rows": rows, "given": [[1], []], "copies": [], "let_go": []}

    def abort(self, said: dict[str, Any]) -> dict[str, Any]:
        self.running = [r for r in self.running if r["id"] not in said["abort"]]
        return {"log": []}

    def drain(self, said: dict[str, Any]) -> dict[str, Any]:
        return {}

    def commit(self, said: dict[str, Any]) -> dict[str, Any]:
        done, taken = [], {}
        for request in self.running:
            taken[request["id"]] = min(len(said["sampled"].get(request["id"], ())), request["left"])
            request["left"] -= taken[request["id"]]
            if request["left"] <= 0:
                done.append(request)
        self.running = [r for r in self.running if r not in done]
        log = [["unclaim", 1, 2, "ab" * 36, "evict"] for _ in done]
        return {"log": log, "taken": taken, "finished": [r["id"] for r in done], "free": 7}

    def _misbehave(self) -> None:
        if self.how == "crash-once" and not Path(sys.argv[2]).exists():
            Path(sys.argv[2]).touch()
            os._exit(7)
        if self.how == "crash":
            print("the sky fell", file=sys.stderr)
            os._exit(7)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hang":
            print("thinking", file=sys.stderr, flush=True)
            time.sleep(60)
        if self.how == "garbage":
            print("this is no JSON", flush=True)
            time.sleep(60)
        if self.how == "raise":
            print("Traceback: deep inside", file=sys.stderr, flush=True)
        if self.how == "prints":
            print("split of \x1b]0;title\x07 a", file=sys.stderr, flush=True)
            print("half a line", end="", file=sys.stderr, flush=True)
        if self.how == "floods":
            while True:
                os.write(2, b"x" * 65536)
        if self.how == "endless":
            while True:
                os.write(1, b"[" * 65536)
        if self.how == "leaves":
            started()
            os._exit(7)


def started(away: bool = False) -> int:
    """A process that outlives its parent and holds what it was given, ``away`` in a session of its own; its id."""
    return subprocess.Popen(["sleep", "60"], start_new_session=away).pid


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "slow-start":
        time.sleep(60)
    if how == "no-start":
        sys.exit("ModuleNotFoundError: nothing_of_this_name")
    if how == "orphan":
        away = [started(away=True)] if sys.platform == "linux" else []
        pids = " ".join(map(str, [os.getpid(), started(), *away]))
        Path(sys.argv[2]).write_text(f"{pids} ", encoding="utf-8")
        print('{"version":"0"}', flush=True)
        time.sleep(60)
    if how == "deaf":
        print('{"version":"0.0.0"}', flush=True)
        time.sleep(60)
    fake = Fake(how)
    for line in sys.stdin:
        said = json.loads(line)
        reply = getattr(fake, said["do"])(said)
        if how == "raise" and said["do"] == "step":
            reply = {"error": "AssertionError: no free block"}
        text = sys.argv[3] if how == "say" and said["do"] == sys.argv[2] else json.dumps(reply)
        print(text, flush=True)


if __name__ == "__main__":
    main()
