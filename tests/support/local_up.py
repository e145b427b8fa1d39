"""A running `aerobee up`, as a user has it: a process, its ready file, and commands for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

AEROBEE = (sys.executable, "-m", "aerobee.cli")
PATIENCE_S = 60.0


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def processes_naming(folder: Path) -> list[str]:
    """Live processes that have the folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


class Up:
    """A running `aerobee up` on free ports."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        servers: Mapping[str, str] | None = None,
        with_console: bool = False,
    ) -> None:
        """`servers`: added to the environment of everything it runs."""
        self.data = folder / "data"
        self.ready_file = folder / "ready.json"
        self.environment: dict[str, str] = {}
        """Environment of commands, in addition to the tests' own."""
        self.output = (folder / "up.log").open("a+")
        self.process = subprocess.Popen(
            [
                *AEROBEE,
                "up",
                "--data",
                str(self.data),
                "--ports",
                "auto",
                *(() if with_console else ("--no-console",)),
                "--ready-file",
                str(self.ready_file),
                *arguments,
            ],
            stdout=self.output,
            stderr=self.output,
            env={**os.environ, **(servers or {})},
        )

    def wait_ready(self) -> dict[str, Any]:
        wait_until(
            lambda: self.ready_file.exists() or self.process.poll() is not None, "the ready file"
        )
        assert self.process.poll() is None, self.said()
        return self.document()

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ready_file.read_text())
        return document

    def said(self) -> str:
        self.output.seek(0)
        return self.output.read()

    def bugs(self) -> list[str]:
        """What its nodes have logged of failures that no error type names, once for each log."""
        found = []
        for log in sorted((self.data / "logs").glob("*.log")):
            _, cause, after = log.read_text(errors="replace").partition(" because of a bug")
            found += [f"{log.name}: ...{cause}{after[:4_000]}"] if cause else []
        return found

    def pids(self) -> list[int]:
        return [pid for pid in self.document()["pids"].values() if pid is not None]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def run(
        self, *arguments: str, given: str = "", expect: int | Container[int] = 0
    ) -> subprocess.CompletedProcess[str]:
        """A client command against this cluster. `expect`: the allowed exit code or codes."""
        done = subprocess.run(
            [*AEROBEE, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self._environment(),
        )
        codes = (expect,) if isinstance(expect, int) else expect
        assert done.returncode in codes, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    def knows(self, topic: str) -> bool:
        """Whether the topic's offsets can be queried."""
        return not subprocess.run(
            [*AEROBEE, "topic", "show", topic],
            capture_output=True,
            timeout=PATIENCE_S,
            env=self._environment(),
        ).returncode

    def _environment(self) -> dict[str, str]:
        document = self.document()
        files = document.get("tls", {}).items()
        tls = {f"AEROBEE_TLS_{name.upper()}": path for name, path in files}
        return {**os.environ, "AEROBEE_NAMESERVER": document["nameserver"], **tls} | (
            self.environment
        )

    def json(self, *arguments: str, expect: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", expect=expect).stdout)


@contextlib.contextmanager
def running(
    folder: Path,
    *arguments: str,
    servers: Mapping[str, str] | None = None,
    with_console: bool = False,
) -> Iterator[Up]:
    """At its end, no node may have failed because of a bug: clients try again, and show nothing."""
    up = Up(folder, *arguments, servers=servers, with_console=with_console)
    try:
        up.wait_ready()
        yield up
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)
        up.output.close()
    assert up.bugs() == []


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"message {number}" for number in range(start, start + count)]


def sent(up: Up, topic: str, lines: Sequence[str], *flags: str) -> None:
    up.run("produce", topic, *flags, given="\n".join(lines) + "\n")


def received(up: Up, topic: str, group: str, count: int, *flags: str) -> list[str]:
    done = up.run("consume", topic, "--group", group, "--count", str(count), *flags)
    return done.stdout.splitlines()
