"""Who refuses a connection for a moment is asked again, and one that is gone is told as gone."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.sources.live import asking
from aerobee.offset_audit.sources.live.asking import BrokerAddress, BrokerAnswer
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import audit_pb2

ASKED = BrokerAddress("127.0.0.1:1", "aerobee")


async def ask(monkeypatch: pytest.MonkeyPatch, refusals: int) -> tuple[BrokerAnswer, int]:
    """Of a broker that refuses so many times, and how often it was asked."""
    times = 0

    async def read(_audit: Any, _answer: Any, _request: Any, _clock: Any) -> None:
        nonlocal times
        times += 1
        if times <= refusals:
            raise errors.Unreachable("cannot reach 127.0.0.1:1: Connection refused")

    monkeypatch.setattr(asking, "_read", read)
    monkeypatch.setattr(asking, "BUSY_PAUSE_S", 0.02)
    monkeypatch.setattr(asking, "REFUSED_S", 0.2)
    answer = await asking._ask(ASKED, audit_pb2.SnapshotRequest(), 10_000, SystemClock())
    return answer, times


async def test_a_broker_that_opens_its_folder_again_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, times = await ask(monkeypatch, 2)
    assert (answer.error, times) == ("", 3)


async def test_a_broker_that_is_gone_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, times = await ask(monkeypatch, 1_000)
    assert "Connection refused" in answer.error
    assert 2 <= times <= 11
