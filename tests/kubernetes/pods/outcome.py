"""Whether the test that a fixture serves has failed."""

from __future__ import annotations

import pytest

_FAILED = pytest.StashKey[bool]()


def note_outcome(item: pytest.Item, report: pytest.TestReport) -> None:
    """Told of each part of a test: set-up, call, tear-down."""
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed


def has_failed(item: pytest.Item) -> bool:
    return item.stash.get(_FAILED, False)
