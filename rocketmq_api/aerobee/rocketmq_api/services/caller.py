"""Who calls, as the metadata of a call tells it, and what of it goes to another node.

A node passes a call on at most once: two nodes whose routes differ would pass it on to each other
without end. The mark of such a call is the address of its first caller, whom the message is from.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

from aerobee.rocketmq_api.codes import Refused
from aerobee.runtime.errors import DeadlineExceeded
from apache.rocketmq.v2 import definition_pb2 as v2

CLIENT_ID_KEY: Final = "x-mq-client-id"
LANGUAGE_KEY: Final = "x-mq-language"
VERSION_KEY: Final = "x-mq-client-version"
NAMESPACE_KEY: Final = "x-mq-namespace"
FORWARDED_KEY: Final = "x-mq-forwarded"

_PASSED_ON: Final = (CLIENT_ID_KEY, LANGUAGE_KEY, VERSION_KEY, NAMESPACE_KEY)
_CLIENT_ID_LENGTH_MAX: Final = 1_024
_UNLIMITED_MS: Final = 3_000
"""For calls without a deadline, which only streams have; other clients wait for 3 s."""
_ANSWER_MS: Final = 150
"""Kept of a caller's time for the way back."""


class Caller(NamedTuple):
    """One call's."""

    client_id: str
    language: str
    version: str
    namespace: str
    peer: str
    """gRPC's name of the client's address, also where another node passed the call on."""
    remaining_ms: int
    """Until the client gives up, when the call came."""
    was_forwarded: bool

    @classmethod
    def of(cls, context: Any) -> Self:
        """Raises Refused with CLIENT_ID_REQUIRED."""
        metadata = dict(context.invocation_metadata() or ())
        client_id = metadata.get(CLIENT_ID_KEY, "").strip()
        if not client_id or len(client_id) > _CLIENT_ID_LENGTH_MAX:
            raise Refused(
                v2.CLIENT_ID_REQUIRED,
                f"the call has no client id of at most {_CLIENT_ID_LENGTH_MAX} characters; send it "
                f"as metadata {CLIENT_ID_KEY}",
            )
        forwarded = metadata.get(FORWARDED_KEY, "")
        remaining_s = context.time_remaining()
        return cls(
            client_id=client_id,
            language=metadata.get(LANGUAGE_KEY, ""),
            version=metadata.get(VERSION_KEY, ""),
            namespace=metadata.get(NAMESPACE_KEY, ""),
            peer=forwarded or context.peer(),
            remaining_ms=_UNLIMITED_MS if remaining_s is None else int(remaining_s * 1_000),
            was_forwarded=bool(forwarded),
        )

    @property
    def answer_in_ms(self) -> int:
        """How long the work may take. Raises DeadlineExceeded if that is no time."""
        left_ms = self.remaining_ms - _ANSWER_MS
        if left_ms <= 0:
            raise DeadlineExceeded(
                f"the call's deadline is in {self.remaining_ms} ms, which is too soon; set a "
                "longer timeout"
            )
        return left_ms

    def passed_on(self) -> tuple[tuple[str, str], ...]:
        """The metadata of this call to another node."""
        own = (self.client_id, self.language, self.version, self.namespace)
        told = tuple((key, value) for key, value in zip(_PASSED_ON, own, strict=True) if value)
        return (*told, (FORWARDED_KEY, self.peer))
