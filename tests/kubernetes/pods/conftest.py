"""Remembers how each test ended, so that fixtures can tell of the cause while it can be seen."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.kubernetes.pods.outcome import note_outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    note_outcome(item, report)
    return report
