"""A stand-in for systemd: runs what unit files say, and is the parent of what runs.

It knows of a unit file what the pages write into theirs: `ExecStart`, `ExecStop`, `Environment`,
`EnvironmentFile`. It starts nothing again by itself, so that a page that kills a process finds it
dead.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

Answer = Callable[[str, list[str]], tuple[int, str]]


class Unit:
    """One service of one machine."""

    def __init__(self, name: str, file: Path, log: Path) -> None:
        self.name = name
        self.file = file
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: dict[str, str], folder: Path) -> None:
        """Run `ExecStart`; nothing if it runs already."""
        if self.state() == "active":
            return
        command, own = self._read("ExecStart")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, **own},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def _read(self, setting: str) -> tuple[list[str], dict[str, str]]:
        """A command of the file, or none, and the variables that it gets."""
        lines = self.file.read_text("utf-8").replace("\\\n", " ").splitlines()
        settings = [line.partition("=")[::2] for line in lines if "=" in line]
        own: dict[str, str] = {}
        for key, text in settings:
            if key == "Environment":
                name, _, value = text.partition("=")
                own[name] = value
            elif key == "EnvironmentFile":
                for line in Path(text.removeprefix("-")).read_text("utf-8").splitlines():
                    name, _, value = line.partition("=")
                    own[name] = value
        command = next((text for key, text in settings if key == setting), "")
        return shlex.split(command.removeprefix("-")), own

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    def stop(self, environment: dict[str, str], timeout_s: float) -> None:
        """`ExecStop`, SIGTERM, and SIGKILL if that does not end it."""
        if self.state() == "active":
            command, own = self._read("ExecStop")
            if command:
                with self.log.open("ab") as log:
                    subprocess.run(
                        command,
                        env={**environment, **own},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        timeout=timeout_s,
                        check=False,
                    )
        self.signal(signal.SIGTERM)
        self.wait(timeout_s)
        self.signal(signal.SIGKILL)
        self.wait(timeout_s)

    def state(self) -> str:
        """As `systemctl is-active` says it."""
        if self._process is None:
            return "inactive"
        code = self._process.poll()
        if code is None:
            return "active"
        return "inactive" if code in (0, -signal.SIGTERM) else "failed"


class UnitServer:
    """Answers the machines' `systemctl` and `journalctl`, in a thread of its own."""

    def __init__(self, answer: Answer) -> None:
        # Not in the test's folder: an address of a socket may have no more than 107 bytes.
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name) / "systemd"

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                machine, *words = json.loads(self.rfile.read())
                try:
                    reply = answer(machine, words)
                except Exception as error:
                    reply = (1, f"stand-in: {error!r}\n")
                self.wfile.write(json.dumps(reply).encode())

        self._server = socketserver.ThreadingUnixStreamServer(str(self.path), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._folder.cleanup()
