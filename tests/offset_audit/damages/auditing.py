"""One run of the audit, as the command makes it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import SilentProgress
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.runtime.clock import SystemClock, system_random
from tests.support.command_parsing import parsed


class Meanwhile(SilentProgress):
    """Does something else whenever a stage of the run begins."""

    def __init__(self, does: Mapping[str, Callable[[], object]]) -> None:
        self._does = does

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        if title in self._does:
            self._does[title]()
        yield


def audit(
    engine: RunEngine,
    request: AuditRequest,
    meanwhile: Mapping[str, Callable[[], object]] | None = None,
) -> Summary:
    """All of its findings are in the summary, or the test is told that they are too many; each of
    their commands is one that there is."""
    summary = run_audit(
        engine,
        request,
        clock=SystemClock(),
        chance=system_random(),
        progress=Meanwhile(meanwhile or {}),
    )
    assert summary.findings_total == len(summary.findings)
    for one in summary.findings:
        parsed(shlex.split(one["command"])[1:])
    return summary
