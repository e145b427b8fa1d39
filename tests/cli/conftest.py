"""A cluster of processes that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.local_up import Up, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two broker groups that all tests of a file share; each has its own topics."""
    arguments = ("--brokers", "2", "--outside-host", "localhost", "--metrics")
    with running(tmp_path_factory.mktemp("up"), *arguments) as up:
        yield up
