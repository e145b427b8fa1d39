"""Programs of this project start in milliseconds in tests: each is a fork of a process that has
already loaded its modules.

Loading numpy, gRPC and the product takes most of a start, and a test run starts about a thousand
programs. Nothing else differs: each is a separate process and a child of the process that started
it, with its own memory, files, session, environment and signals. Tests kill it, stop it and wait
for it as usual. Only `aerobee`, `python -m` with a module of WARM and `python -W error FILE.py`
start this way, unless rare options of subprocess are used. All others are executed; with
AEROBEE_TEST_COLD_STARTS=1, all.

`warm_starts` replaces `subprocess.Popen`, which asyncio uses as well, so no test names it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from aerobee.cli.local_cluster import tied

ROOT = Path(__file__).resolve().parents[2]
COLD = "AEROBEE_TEST_COLD_STARTS"
WARM = {
    "aerobee.cli": "aerobee.cli.__main__",
    "tests.faults.workers": "tests.faults.workers",
    "tests.support.real_brokers": "tests.support.real_brokers",
    "tests.support.replica_group": "tests.support.replica_group",
}
"""The argument of `python -m`, and the module that it runs."""
SCRIPT = ".py"
STARTING_OTHERS = ("up", "demo")
"""Commands of `aerobee` that start other programs, which also start as forks."""
LOADED = (
    *WARM.values(),
    *(
        f"aerobee.cli.commands.{name}"
        for name in (
            *("broker", "cluster", "config", "consume", "group", "health", "message"),
            *("nameserver", "offset", "produce", "store", "topic", "up"),
        )
    ),
    "aerobee.broker.app",
    "aerobee.nameserver.app",
    "aerobee.client_core",
    "aerobee.consumer_client",
    "aerobee.producer_client",
    "aerobee.cli.drain",
    "aerobee.cli.local_cluster.cluster",
    "aerobee.cli.local_cluster.readiness",
)
_ASKED_AS = {"PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED"}
"""Variables that an interpreter reads at its start and that a fork can honour."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_REQUEST_BYTES_MAX = 1 << 20
_ADOPTION_S_MAX = 30.0
_COMMAND = str(Path(sys.executable).with_name("aerobee"))


@dataclass(frozen=True, slots=True)
class _Program:
    """What a fork runs."""

    module: str
    """Or the path of a file, in which each warning is an error."""
    arguments: tuple[str, ...]
    is_tied: bool
    """It gets SIGTERM when its parent ends, as arranged by `spawn_tied`."""


def _program_of(argv: Sequence[str], path: str | None) -> _Program | None:
    """None for what is executed; `path` is where a bare name is searched for."""
    if argv[0] == "aerobee" and shutil.which("aerobee", path=path) == _COMMAND:
        return _Program("aerobee.cli", tuple(argv[1:]), is_tied=False)
    is_tied = tuple(argv[:5]) == (sys.executable, "-I", "-S", tied.__file__, str(os.getpid()))
    words = argv[5:] if is_tied else argv
    if tuple(words[:3]) == (sys.executable, "-W", "error") and words[3].endswith(SCRIPT):
        return _Program(words[3], tuple(words[4:]), is_tied=is_tied)
    if len(words) < 3 or words[0] != sys.executable or words[1] != "-m" or words[2] not in WARM:
        return None
    return _Program(words[2], tuple(words[3:]), is_tied=is_tied)


class _Server:
    """The connection to the process that forks, which ends when the connection closes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: _Program, fds: Sequence[int], **ask: Any) -> int:
        """Start a child of this process whose first file descriptors are `fds`; returns its id."""
        request = {
            "module": program.module,
            "arguments": program.arguments,
            "is_tied": program.is_tied,
            "parent": os.getpid(),
            **ask,
        }
        with self._lock:
            connection = self._connected()
            socket.send_fds(connection, [json.dumps(request).encode()], list(fds))
            answer = connection.recv(64)
        assert answer, "the process that forks the tests' programs has ended"
        return int(answer)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            # A fork whose parent has ended becomes a child of this process.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES_MAX)
            with other:
                self._process = _POPEN(
                    [sys.executable, "-m", "tests.support.warm_start", str(other.fileno())],
                    cwd=ROOT,
                    pass_fds=(other.fileno(),),
                    # A fork has none of its parent's threads.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                )
        return self._socket

    def serve_in_fork(self) -> dict[str, Any] | None:
        """Fork a process that serves this one, which must not have threads yet. Returns None here,
        and in each program started later its request."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._socket.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return serve(other)
        other.close()
        return None

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()
        self._socket = self._process = None


_POPEN = subprocess.Popen


def warm_popen(server: _Server) -> type[subprocess.Popen[Any]]:
    """A Popen whose programs of WARM are forked by that server."""

    class WarmPopen(subprocess.Popen[Any]):
        def _execute_child(self, args: Any, executable: Any, *others: Any) -> None:
            """Called by subprocess; see there for the arguments."""
            preexec_fn, close_fds, pass_fds, cwd, env, _, _, shell = others[:8]
            pipes = p2cread, _, _, c2pwrite, _, errwrite = others[8:14]
            *whose, start_new_session, process_group = others[15:]
            environment = dict(os.environ if env is None else env)
            plain = (
                close_fds
                and not (executable or preexec_fn or pass_fds or shell)
                and [*whose, process_group] == [None, None, None, -1, -1]
                and isinstance(args, list | tuple)
            )
            words = [os.fspath(word) for word in args] if plain else []
            program = _program_of(words, environment.get("PATH")) if words else None
            if program is None or not _is_usual(environment):
                super()._execute_child(args, executable, *others)  # type: ignore[misc]
                return
            self.pid = server.start(
                program,
                [
                    given if given != -1 else inherited
                    for inherited, given in enumerate((p2cread, c2pwrite, errwrite))
                ],
                environment=environment,
                folder=os.fspath(cwd) if cwd is not None else os.getcwd(),
                session=bool(start_new_session),
            )
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    return WarmPopen


def _is_usual(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter would start in that environment as this one did."""
    return all(
        environment.get(name) == os.environ.get(name)
        for name in {*environment, *os.environ}
        if name.startswith("PYTHON") and name not in _ASKED_AS
    )


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Within the block, programs of WARM start as forks; at its end the forking process is gone."""
    if os.environ.get(COLD) or not sys.platform.startswith("linux"):
        yield
        return
    server = _Server()
    subprocess.Popen = warm_popen(server)  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        subprocess.Popen = _POPEN  # type: ignore[misc]
        server.close()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# The rest runs in the forking process and in the forks.


def serve(connection: socket.socket) -> dict[str, Any]:
    """Fork at each request until the other end is closed. Only forks return: their request."""
    while True:
        message, fds, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 3)
        if not message:
            os._exit(0)
        request = json.loads(message)
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            # It ends at once, so that its child becomes a child of the requesting process.
            if (child := os.fork()) != 0:
                os.write(writing, str(child).encode())
                os._exit(0)
            os.close(reading)
            os.close(writing)
            connection.close()
            _become(request, fds)
            return dict(request)
        os.close(writing)
        for fd in fds:
            os.close(fd)
        os.waitpid(between, 0)
        connection.send(os.read(reading, 64))
        os.close(reading)


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Set what exec and the start of an interpreter would have set."""
    deadline_s = time.monotonic() + _ADOPTION_S_MAX
    while os.getppid() != request["parent"]:
        if time.monotonic() > deadline_s:
            os._exit(1)  # the requesting process has ended
        time.sleep(0.0002)
    if request["is_tied"]:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != request["parent"]:
            os._exit(1)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = _writer(1, "strict", unbuffered=unbuffered)
    sys.stderr = _writer(2, "backslashreplace", unbuffered=unbuffered)


def _writer(fd: int, errors: str, *, unbuffered: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        open(fd, "wb", buffering=0 if unbuffered else -1, closefd=False),
        encoding="utf-8",
        errors=errors,
        line_buffering=fd == 2 or os.isatty(fd),
        write_through=unbuffered,
    )


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = serve(connection)
    _end_at_once(_run, request)


def _run(request: Mapping[str, Any]) -> None:
    module = request["module"]
    sys.argv[1:] = request["arguments"]
    if module.endswith(SCRIPT):
        _run_file(module)
        return
    if request["arguments"][0] in STARTING_OTHERS:
        server = _Server()
        asked = server.serve_in_fork()
        if asked is None:
            subprocess.Popen = warm_popen(server)  # type: ignore[misc, assignment]
            # uvloop starts programs without subprocess. A supervisor works without uvloop.
            uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
        else:
            module = asked["module"]
            sys.argv[1:] = asked["arguments"]
    # It runs as `__main__`, not a second time.
    sys.modules.pop(WARM[module])
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _run_file(path: str) -> None:
    """As `python -W error` runs it, except that warnings while its imports load are not seen."""
    sys.argv[0] = path
    sys.path[0] = str(Path(path).parent)
    warnings.simplefilter("error")
    runpy.run_path(path, run_name="__main__")


def _end_at_once(run: Callable[[Mapping[str, Any]], None], request: Mapping[str, Any]) -> NoReturn:
    """Run it, and end as an interpreter does, except for tearing down everything that is loaded,
    which would first copy it: half of the processor time of a short program."""
    code: object = 0
    was_interrupted = False
    try:
        run(request)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        code = 1
        was_interrupted = isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    except ValueError:
        pass  # it is closed
    if was_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code or 0)


if __name__ == "__main__":
    main()
