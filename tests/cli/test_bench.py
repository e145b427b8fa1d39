"""The benchmarks start clusters with settings of their own: they run as a user runs them."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.local_up import AEROBEE

pytestmark = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("what", "names"),
    [
        (
            "produce",
            ("produce, batches of 500, 6 in flight, fsync", "produce, single, 1 in flight"),
        ),
        ("consume", ("bare stream, 512 KiB frames down", "consume, push listener")),
        ("cold", ("cold queue and log, one consumer", "beside ", "sends alone, 64 in flight")),
    ],
    ids=["produce", "consume", "cold"],
)
def test_a_small_run_ends_with_figures_of_messages_that_were_sent(
    what: str, names: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [*AEROBEE, "bench", what, "--scale", "0.01", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    for name in names:
        row = next(rows[each] for each in rows if each.startswith(name))
        assert row["messages"] > 0
        assert row["messages_per_s"] > 0
