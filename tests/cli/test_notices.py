"""What the libraries log while a client command runs: one line for a person, said once."""

from __future__ import annotations

import logging

import pytest

from aerobee.cli.notices import NoticeHandler
from aerobee.runtime.errors import Unreachable
from aerobee.runtime.log import log_event


@pytest.fixture
def log() -> logging.Logger:
    log = logging.Logger("aerobee.consumer_client.group_session")
    log.addHandler(NoticeHandler())
    return log


def test_a_notice_names_what_it_is_about_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log_event(
        log,
        "the session of group billing broke",
        level=logging.WARNING,
        group="billing",
        broker="broker-a",
        request_id="17",
        error=Unreachable("cannot reach 127.0.0.1:1\x1b[2J"),
    )
    assert capsys.readouterr().err == (
        "aerobee: the session of group billing broke (broker broker-a): cannot reach 127.0.0.1:1"
        "\\x1b[2J\n"
    )


def test_the_same_notice_is_given_once(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        log_event(log, "group session broke", level=logging.WARNING, group="billing")
    log_event(log, "group session broke", level=logging.WARNING, group="g")
    log_event(log, "joined", group="billing")
    assert capsys.readouterr().err.splitlines() == [
        "aerobee: group session broke (group billing)",
        "aerobee: group session broke (group g)",
    ]


def test_a_session_that_breaks_again_and_again_is_told_once_for_each_broker(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    for kept_s in (4.9, 3.7, 2.1):
        for broker in ("broker-1", "broker-2"):
            log_event(
                log,
                "group session broke, joining again",
                level=logging.WARNING,
                group="billing",
                broker=broker,
                queues_kept_for_s=kept_s,
                reason=Unreachable(f"no answer within {1_000 * kept_s:.0f} ms"),
            )
    assert capsys.readouterr().err.splitlines() == [
        f"aerobee: group session broke, joining again (group billing, broker {broker}, queues kept "
        "for 4.9 s): no answer within 4900 ms"
        for broker in ("broker-1", "broker-2")
    ]


def test_a_bug_of_another_library_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("asyncio")
    log.addHandler(NoticeHandler())
    try:
        raise ZeroDivisionError("bug")
    except ZeroDivisionError:
        log.exception("Task exception was never retrieved")
    assert "Traceback" in capsys.readouterr().err
