"""A blocking client takes what its asynchronous twin takes, and hands all of it over.

Their lists of arguments are written out, so that editors and `help` show them.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from aerobee import (
    AdminClient,
    BlockingAdminClient,
    BlockingPullConsumer,
    BlockingPushConsumer,
    PullConsumer,
    PushConsumer,
)

OF_TESTS = {"clock", "chance"}
"""What only tests give."""


def arguments_of(kind: type) -> list[inspect.Parameter]:
    parameters = inspect.signature(kind).parameters.values()
    return [each for each in parameters if each.name not in OF_TESTS]


@pytest.mark.parametrize(
    ("blocking", "twin"),
    [
        (BlockingPullConsumer, PullConsumer),
        (BlockingPushConsumer, PushConsumer),
        (BlockingAdminClient, AdminClient),
    ],
)
def test_a_blocking_client_hands_all_arguments_of_its_twin_over(
    blocking: type, twin: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert arguments_of(blocking) == arguments_of(twin)
    given: dict[str, Any] = {each.name: object() for each in arguments_of(blocking)}
    received: dict[str, Any] = {}
    bind = inspect.signature(twin).bind

    def record(_: object, *args: Any, **keywords: Any) -> None:
        received.update(bind(*args, **keywords).arguments)

    monkeypatch.setattr(twin, "__init__", record)
    made = blocking(**given)
    if not received:
        made._thread._make()  # It is made in the client's own thread.
    assert received == given
