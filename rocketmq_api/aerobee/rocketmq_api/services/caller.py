"""Who is calling, according to a call's metadata, and which of that goes to another node.

A node passes a call on at most once: two nodes whose routes differ would otherwise pass it back and
forth without end. Such a call is marked with the address of its first caller, from whom the message
is, and with the user whom the first node has proved: a client id alone proves nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Self

from aerobee.access.running import FORWARDED_USER_KEY, user_of_call
from aerobee.rocketmq_api.clients.table import client_key
from aerobee.rocketmq_api.codes import Refused
from aerobee.rpc.served_method import metadata_named
from aerobee.runtime.errors import DeadlineExceeded
from apache.rocketmq.v2 import definition_pb2 as v2

CLIENT_ID_KEY: Final = "x-mq-client-id"
LANGUAGE_KEY: Final = "x-mq-language"
VERSION_KEY: Final = "x-mq-client-version"
NAMESPACE_KEY: Final = "x-mq-namespace"
FORWARDED_KEY: Final = "x-mq-forwarded"
TAKE_KEY: Final = "x-mq-take"
"""On a poll that another node passes on: take what is there, and do not wait."""

_PASSED_ON: Final = (CLIENT_ID_KEY, LANGUAGE_KEY, VERSION_KEY, NAMESPACE_KEY)
_READ: Final = {
    key.encode(): key for key in (*_PASSED_ON, FORWARDED_KEY, TAKE_KEY, FORWARDED_USER_KEY)
}
_CLIENT_ID_LENGTH_MAX: Final = 1_024
_UNLIMITED_MS: Final = 3_000
"""For calls without a deadline, which only streams have; other clients wait for 3 s."""
_ANSWER_MS: Final = 150
"""Reserved from a caller's time for the way back."""


class Caller(NamedTuple):
    """The caller of one call."""

    client_id: str
    language: str
    version: str
    namespace: str
    peer: str
    """The client's address in gRPC's notation, even if another node passed the call on."""
    remaining_ms: int
    """When the call arrived, the time until the client gives up."""
    was_forwarded: bool
    is_take: bool = False
    """A poll of another node that does not wait here."""
    user: str = ""
    """Who proved itself; empty without access control."""

    @classmethod
    def of(cls, context: Any) -> Self:
        """Raises Refused with CLIENT_ID_REQUIRED."""
        metadata = metadata_named(context, _READ)
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
            client_id,
            metadata.get(LANGUAGE_KEY, ""),
            metadata.get(VERSION_KEY, ""),
            metadata.get(NAMESPACE_KEY, ""),
            forwarded or context.peer(),
            _UNLIMITED_MS if remaining_s is None else int(remaining_s * 1_000),
            was_forwarded=bool(forwarded),
            is_take=bool(forwarded) and TAKE_KEY in metadata,
            user=user_of_call(metadata),
        )

    @property
    def client(self) -> str:
        """The key of this client in all tables."""
        return client_key(self.user, self.client_id)

    @property
    def answer_in_ms(self) -> int:
        """How long the work may take. Raises DeadlineExceeded if no time is left."""
        left_ms = self.remaining_ms - _ANSWER_MS
        if left_ms <= 0:
            raise DeadlineExceeded(
                f"the call's deadline is in {self.remaining_ms} ms, which is too soon; set a "
                "longer timeout"
            )
        return left_ms

    def passed_on(self) -> tuple[tuple[str, str], ...]:
        """The metadata for passing this call to another node."""
        own = (self.client_id, self.language, self.version, self.namespace)
        told = tuple((key, value) for key, value in zip(_PASSED_ON, own, strict=True) if value)
        user = ((FORWARDED_USER_KEY, self.user),) if self.user else ()
        return (*told, (FORWARDED_KEY, self.peer), *user)


def passed_on_by(node: str) -> tuple[tuple[str, str], ...]:
    """The metadata of what a node asks for all its clients together."""
    return ((CLIENT_ID_KEY, node), (FORWARDED_KEY, node))
