"""A client's process, and the lines that go to and fro."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.rpc.core.interop.programs import Program

ANSWER_S = 60
"""A push consumer ends when its last poll has ended, after up to 35 s."""


class Client:
    """It is told what programs.py says; each call waits for its line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "message" in answer:
                self._said.put(answer["message"])
            else:
                self._answers.put(answer)
        self._answers.put(None)

    def end(self) -> None:
        """However it goes on."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # of what it never read
                stream.close()

    def ended(self) -> int:
        """The code with which it ends by itself."""
        return self._process.wait(30)

    def answer(self) -> dict[str, Any]:
        answer = self._answers.get(timeout=ANSWER_S)
        assert answer is not None, "the client has ended"
        return answer

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def pushed(self, patience_s: float) -> dict[str, Any] | None:
        """What a listener was called with next; None if it was not called for so long."""
        try:
            return self._said.get(patience_s > 0, patience_s)
        except queue.Empty:
            return None


def started_client(
    program: Program,
    role: str,
    address: str,
    *rest: str,
    home: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Client:
    """The caller ends it."""
    # They write logs there, and offsets of broadcasts, which the next run must not find. Java does
    # not look at HOME.
    homes = {"HOME": str(home), "JDK_JAVA_OPTIONS": f"-Duser.home={home}"}
    process = subprocess.Popen(
        program.command_line(role, address, *rest),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, **homes},
    )
    client = Client(process)
    try:
        first = client.answer()
        assert first == {"started": True}, first
    except BaseException:
        client.end()
        raise
    return client


@contextlib.contextmanager
def running_client(
    program: Program,
    role: str,
    address: str,
    *rest: str,
    home: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Client]:
    client = started_client(program, role, address, *rest, home=home, environment=environment)
    try:
        yield client
        assert client.ask("stop") == {"stopped": True}
        assert client.ended() == 0
    finally:
        client.end()
