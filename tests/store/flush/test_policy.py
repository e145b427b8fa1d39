"""When a flush is due."""

from __future__ import annotations

import pytest

from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.flush.policy import FlushPolicy

SYNC = FlushPolicy(FlushMode.SYNC, interval_s=0.5, unflushed_bytes=1_000)
ASYNC = FlushPolicy(FlushMode.ASYNC, interval_s=0.5, unflushed_bytes=1_000)


@pytest.mark.parametrize(
    ("policy", "unflushed_bytes", "due"),
    [
        (SYNC, 0, False),
        (SYNC, 1, True),
        (ASYNC, 1, False),
        (ASYNC, 999, False),
        (ASYNC, 1_000, True),
    ],
)
def test_after_an_append(policy: FlushPolicy, unflushed_bytes: int, due: bool) -> None:
    assert policy.due_after_append(unflushed_bytes) is due


@pytest.mark.parametrize(
    ("policy", "unflushed_bytes", "since_flush_s", "checkpoint_due", "due"),
    [
        (SYNC, 0, 9.0, False, False),
        (SYNC, 1, 0.0, False, True),
        (ASYNC, 0, 9.0, False, False),
        (ASYNC, 1, 0.4, False, False),
        (ASYNC, 1, 0.5, False, True),
        (ASYNC, 0, 0.0, True, True),
        (SYNC, 0, 0.0, True, True),
    ],
)
def test_by_time(
    policy: FlushPolicy,
    unflushed_bytes: int,
    since_flush_s: float,
    checkpoint_due: bool,
    due: bool,
) -> None:
    assert policy.due_by_time(unflushed_bytes, since_flush_s, checkpoint_due=checkpoint_due) is due


def test_the_policy_is_that_of_the_stores_settings() -> None:
    config = StoreConfig(flush_mode=FlushMode.SYNC, flush_interval_ms=200, flush_unflushed_bytes=77)
    policy = FlushPolicy.of(config)
    assert policy == FlushPolicy(FlushMode.SYNC, interval_s=0.2, unflushed_bytes=77)
    assert policy.tick_s == 0.2
    assert FlushPolicy.of(StoreConfig(flush_interval_ms=60_000)).tick_s == 0.5
