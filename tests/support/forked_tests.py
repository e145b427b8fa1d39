"""Tests in several processes, each a fork of the one that collected them: `pytest --forks N`.

Collecting ten thousand tests takes as long as running many of them, so it is done once. Everything
else stays as in pytest: the order, reports, results, the folder of all `tmp_path`.

A fork asks for a scope, runs its tests in order, and asks for the next scope before the last of
them, so that fixtures shared by both stay alive. Each test's reports go to the parent process, as
if the test had run there. If a fork dies, the test that it was running fails; the rest of its scope
goes to a replacement.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ScopeOf = Callable[[str], str]
"""The scope of a node id: tests that belong together and run in one fork."""
END_S_MAX = 60.0
"""For a fork that was told to end."""


@dataclass(slots=True)
class _Fork:
    process: BaseProcess
    todo: deque[int]
    """The tests assigned to it and not finished; it is running the first one."""


class Forks:
    """The parent's side."""

    def __init__(self, count: int, scope_of: ScopeOf) -> None:
        self._count = count
        self._scope_of = scope_of
        self._scopes: deque[deque[int]] = deque()
        self._forks: dict[Connection, _Fork] = {}
        self._started = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None  # pytest knows what to do
        self._scopes.extend(self._found_scopes(session.items))
        if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.showfspath = False  # files alternate
        # Before any fork requests a folder of its own.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(min(self._count, len(self._scopes))):
                self._start(session)
            while self._forks:
                for one in wait(list(self._forks)):
                    assert isinstance(one, Connection)
                    self._hear(session, one)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
                    if session.shouldstop:
                        raise session.Interrupted(session.shouldstop)
        except BaseException as error:
            self._end_all(was_by_terminal=isinstance(error, KeyboardInterrupt))
            raise
        return True

    def _found_scopes(self, items: Iterable[pytest.Item]) -> Iterable[deque[int]]:
        found: dict[str, deque[int]] = {}
        for index, item in enumerate(items):
            found.setdefault(self._scope_of(item.nodeid), deque()).append(index)
        return found.values()

    def _start(self, session: pytest.Session) -> None:
        ours, theirs = multiprocessing.Pipe()
        number = self._started
        self._started += 1
        process = multiprocessing.get_context("fork").Process(
            target=_run, args=(session, theirs, number, [*self._forks, ours])
        )
        with warnings.catch_warnings():
            # About threads started during collection: no fork has or needs them.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._forks[ours] = _Fork(process, deque())

    def _hear(self, session: pytest.Session, fork_end: Connection) -> None:
        fork = self._forks[fork_end]
        try:
            told = fork_end.recv()
        except (EOFError, ConnectionResetError):
            self._ended(session, fork_end)
            return
        if told is None:
            given = self._scopes.popleft() if self._scopes else deque[int]()
            fork.todo.extend(given)
            fork_end.send(list(given))
            return
        hook = session.config.hook
        reports = [
            hook.pytest_report_from_serializable(config=session.config, data=data) for data in told
        ]
        self._report(session, session.items[fork.todo.popleft()], reports)

    def _report(
        self, session: pytest.Session, item: pytest.Item, reports: Iterable[pytest.TestReport]
    ) -> None:
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _ended(self, session: pytest.Session, fork_end: Connection) -> None:
        fork = self._forks.pop(fork_end)
        fork_end.close()
        fork.process.join(END_S_MAX)
        if not fork.todo:
            assert not fork.process.exitcode, f"the end of a fork failed: {fork.process.exitcode}"
            return
        item = session.items[fork.todo.popleft()]
        told = f"the fork that ran it ended with {fork.process.exitcode}"
        crash = pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
        self._report(session, item, [crash])
        if fork.todo:
            self._scopes.appendleft(fork.todo)
        if self._scopes:
            self._start(session)

    def _end_all(self, *, was_by_terminal: bool) -> None:
        """As Ctrl-C does, which a terminal sends to all of them on its own."""
        for fork in self._forks.values():
            if not was_by_terminal and fork.process.pid is not None:
                os.kill(fork.process.pid, signal.SIGINT)
        for fork in self._forks.values():
            fork.process.join(END_S_MAX)
            fork.process.kill()


class _Reporter:
    """In a fork: runs a test as usual, but sends its reports instead of logging them."""

    def __init__(self, config: pytest.Config, end: Connection) -> None:
        self._config = config
        self._end = end

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        write = self._config.hook.pytest_report_to_serializable
        self._end.send([write(config=self._config, report=report) for report in reports])
        return True


def _run(session: pytest.Session, end: Connection, number: int, others: list[Connection]) -> None:
    """What a fork does. It keeps no pipe ends except its own: if the parent is killed, sending to
    it fails."""
    for other in others:
        other.close()
    # The parent uses it to end this process; background processes may ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config = session.config
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    # Captured output goes to a file, which this process would otherwise share with the others.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    paths = config._tmp_path_factory  # type: ignore[attr-defined]
    paths._basetemp = paths.getbasetemp() / f"fork{number}"
    paths._basetemp.mkdir(mode=0o700)
    config.pluginmanager.register(_Reporter(config, end))
    given = _given(session, end)
    item = next(given, None)
    try:
        while item is not None:
            nextitem = next(given, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            item = nextitem
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)


def _given(session: pytest.Session, end: Connection) -> Iterator[pytest.Item]:
    """The tests of one scope, one after another."""
    while True:
        end.send(None)
        if not (indices := end.recv()):
            return
        yield from (session.items[index] for index in indices)
