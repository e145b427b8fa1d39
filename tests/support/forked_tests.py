"""Tests in several processes, each a fork of the one that has found them: `pytest --forks N`.

Finding ten thousand tests takes as long as many of them together, so it is done once. Whatever is
not forked stays where pytest has it: the order, reports, results, the folder of all `tmp_path`.

A fork asks for a scope, runs its tests in order, and asks for the next one before the last of them,
so that fixtures which both share live on. Each test's reports go to the process that forked, for
which it is as if the test had run there. A fork that dies is a failure of the test that it ran; the
rest of its scope goes to a fork that takes its place.
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
"""The scope of a node id: what belongs together, and is run by one fork."""
END_S_MAX = 60.0
"""Of a fork that was told to end."""


@dataclass(slots=True)
class _Fork:
    process: BaseProcess
    todo: deque[int]
    """The tests that it was given and has not finished; it runs the first one."""


class Forks:
    """The side that forks."""

    def __init__(self, count: int, scope_of: ScopeOf) -> None:
        self._count = count
        self._scope_of = scope_of
        self._scopes: deque[deque[int]] = deque()
        self._forks: dict[Connection, _Fork] = {}
        self._started = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None  # pytest knows what is to be done
        self._scopes.extend(self._found_scopes(session.items))
        if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.showfspath = False  # files take turns
        # Before any fork asks for a folder of its own.
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
            # Of threads that were begun while tests were found: no fork has or needs them.
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
        """As Ctrl-C does, which a terminal sends to all of them by itself."""
        for fork in self._forks.values():
            if not was_by_terminal and fork.process.pid is not None:
                os.kill(fork.process.pid, signal.SIGINT)
        for fork in self._forks.values():
            fork.process.join(END_S_MAX)
            fork.process.kill()


class _Reporter:
    """In a fork: a test is run as ever, and its reports are sent instead of logged."""

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
    """What a fork does. Nothing in it holds the ends that are not its own: if the process that
    forked is killed, sending to it fails."""
    for other in others:
        other.close()
    # It is how the process that forked ends this one; what runs in the background may ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config = session.config
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    # What is captured goes to a file, whose end this process would else share with the others.
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
    """The tests of one scope after the other."""
    while True:
        end.send(None)
        if not (indices := end.recv()):
            return
        yield from (session.items[index] for index in indices)
