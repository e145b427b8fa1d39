"""How each call of the service reports an error: in an answer of its own type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.services.methods import SERVICE
from aerobee.rocketmq_api.times import timestamp
from aerobee.rpc.call_border import AnswerError
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError
from apache.rocketmq.v2 import service_pb2

_ECHOED: Final = frozenset(("ChangeInvisibleDuration",))
"""Clients store the handle of the answer before they check its status."""


def answer_errors(clock: Clock) -> dict[str, AnswerError]:
    """By gRPC's path of each method."""
    table = {
        f"/{SERVICE.full_name}/{method.name}": _with_status(
            GetMessageClass(method.output_type), echoes_handle=method.name in _ECHOED
        )
        for method in SERVICE.methods
    }

    def received(error: AerobeeError, request: Any) -> Sequence[Message]:
        # Some clients drop the whole answer without the second part.
        return (
            service_pb2.ReceiveMessageResponse(status=status_of(error)),
            service_pb2.ReceiveMessageResponse(delivery_timestamp=timestamp(clock.now_ms())),
        )

    table[f"/{SERVICE.full_name}/ReceiveMessage"] = received
    return table


def _with_status(answer: Any, *, echoes_handle: bool) -> AnswerError:
    def answers(error: AerobeeError, request: Any) -> Sequence[Message]:
        failed = answer(status=status_of(error))
        if echoes_handle and request is not None:
            failed.receipt_handle = request.receipt_handle
        return (failed,)

    return answers
