"""Who refuses a connection for a moment is asked again, and one that is gone is told as gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aerobee.client_core.audit import Audit
from aerobee.offset_audit.sources.live import asking
from aerobee.offset_audit.sources.live.asking import BrokerAddress, BrokerAnswer
from aerobee.offset_audit.sources.live.options import parse_options
from aerobee.runtime import errors
from aerobee.v1 import audit_pb2

ASKED = BrokerAddress("127.0.0.1:1", "aerobee")


async def ask(monkeypatch: pytest.MonkeyPatch, refusals: int) -> tuple[BrokerAnswer, int]:
    """Of a broker that refuses so many times, and how often it was asked."""
    times = 0

    async def snapshot(*_: object) -> AsyncIterator[audit_pb2.SnapshotPart]:
        nonlocal times
        times += 1
        if times <= refusals:
            raise errors.Unreachable("cannot reach 127.0.0.1:1: Connection refused")
        return
        yield

    monkeypatch.setattr(Audit, "snapshot", snapshot)
    monkeypatch.setattr(asking, "BUSY_PAUSE_S", 0.02)
    monkeypatch.setattr(asking, "REFUSED_S", 0.2)
    options = parse_options({"brokers": ASKED.address})
    answer = await asyncio.to_thread(asking.ask_broker, ASKED, options, [])
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
