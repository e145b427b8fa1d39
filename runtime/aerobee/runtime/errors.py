"""Every failure that a user of Aerobee can cause or meet, as one shallow tree.

Servers raise these; `aerobee.runtime.rpc` turns them into a gRPC status plus the numeric code of
`aerobee.v1.Code`; clients turn that back into the same class with `error_from_code`. The numbers
stand here as plain integers so that pure code and the store need no protobuf; a test keeps them
equal to common.proto.
"""

from __future__ import annotations

from typing import ClassVar


class MqError(Exception):
    """Base of all errors that Aerobee reports on purpose.

    The message is one sentence for a person: what was wrong and what to do about it.
    """

    code: ClassVar[int] = 399
    retryable: ClassVar[bool] = False
    request_id: str = ""
    """Of an error that a call brought: what the services' logs name the call; else empty."""


class InvalidArgument(MqError):
    """A request or an option that can never work."""

    code = 100


class IllegalName(InvalidArgument):
    """A topic, group or client id that breaks the naming rules."""

    code = 101


class TopicNotFound(MqError):
    """No such topic here; routes that are seconds old may cause it just after creation."""

    code = 102


class QueueNotFound(MqError):
    """The queue id is outside the topic's range on this broker."""

    code = 103


class GroupNotFound(MqError):
    """The consumer group has neither members nor offsets."""

    code = 104


class MessageIllegal(MqError):
    """A message or batch whose bytes are inconsistent: lengths, magic, topic, sizes."""

    code = 105


class MessageTooLarge(MessageIllegal):
    """Body, record or batch above the broker's limit."""

    code = 106


class PropertiesTooLarge(MessageIllegal):
    """Properties above 32,767 bytes."""

    code = 107


class CorruptBody(MessageIllegal):
    """The body's CRC does not match: it changed between producer and broker."""

    code = 108


class TopicExists(MqError):
    """The topic to be created is already there."""

    code = 109


class FilterIllegal(InvalidArgument):
    """A tag expression that cannot be parsed, or a filter type that is not served."""

    code = 110


class NotWritableTopic(MqError):
    """The topic's permission forbids sending."""

    code = 111


class NotReadableTopic(MqError):
    """The topic's permission forbids reading."""

    code = 112


class NoBrokerAvailable(MqError):
    """No broker group is registered that could take it."""

    code = 113
    retryable = True


class MessageNotFound(MqError):
    """No record at this offset, or retention removed it."""

    code = 114


class OutOfSequence(MqError):
    """A producer's sequence before all that the broker remembers, or that cuts a stored one."""

    code = 115


class LimitReached(MqError):
    """The cluster has as many topics, queues or groups as its settings allow."""

    code = 116


class ForeignCluster(MqError):
    """Replication with a broker of another cluster or group."""

    code = 120


class ReplicaDiverged(MqError):
    """A replica's log is not a part of its master's: only an operator can say which counts."""

    code = 121


class ReplicationGap(MqError):
    """Log bytes that do not follow those before, or an acknowledgement beyond the log's end."""

    code = 122
    retryable = True


class CorruptFrame(MqError):
    """A replication frame whose checksum does not match."""

    code = 123
    retryable = True


class ReplicaIncomplete(MqError):
    """A replica's log ends before what it is known to have had: it must take a new incarnation."""

    code = 124


class NotMaster(MqError):
    """A slave refuses writes; ask the route again."""

    code = 200
    retryable = True


class StaleEpoch(MqError):
    """The broker group has a newer epoch."""

    code = 201
    retryable = True


class LeaseHeld(MqError):
    """Another member holds the queue lease."""

    code = 202


class LeaseExpired(MqError):
    """The caller's queue lease is not the current one."""

    code = 203


class DuplicateClient(MqError):
    """A live member of the group uses the same client id."""

    code = 204


class DuplicateBroker(MqError):
    """A live broker uses the same cluster, broker name and id."""

    code = 205


class UnknownMember(MqError):
    """Not a member (any more): join the group first."""

    code = 206
    retryable = True


class GroupDeleted(UnknownMember):
    """The group is being deleted, and its members with it: who joins again begins a new group."""

    code = 208


class GroupInUse(MqError):
    """The consumer group to be deleted has members."""

    code = 207


class ShuttingDown(MqError):
    """The service is stopping."""

    code = 300
    retryable = True


class NotWritable(MqError):
    """The store takes no writes now: disk full, or a derived file cannot be written."""

    code = 301
    retryable = True


class Busy(MqError):
    """Back-pressure: try again after `retry_after_ms`, elsewhere if possible."""

    code = 302
    retryable = True

    def __init__(self, message: str, *, retry_after_ms: int = 50) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class StoreFailed(MqError):
    """A write or fsync failed; the broker stops, because it can no longer keep its promises."""

    code = 303
    retryable = True


class RegistryUnavailable(MqError):
    """etcd is away: what is known is still served, changes must wait."""

    code = 304
    retryable = True


class DeadlineExceeded(MqError):
    """Not done within the caller's time; whether it took effect is unknown."""

    code = 305
    retryable = True


class NotEnoughReplicas(MqError):
    """Fewer replicas are in sync than the broker must have; nothing was stored."""

    code = 306
    retryable = True


class ReplicaBehind(MqError):
    """This replica cannot tell yet what is confirmed; ask another one, or again soon."""

    code = 307
    retryable = True


class Unreachable(MqError):
    """No connection to the address; set by clients only."""

    code = 398
    retryable = True


def error_classes() -> dict[int, type[MqError]]:
    """Each code of this module with its class; what clients derive for themselves never travels."""
    found: dict[int, type[MqError]] = {MqError.code: MqError}
    pending = list(MqError.__subclasses__())
    while pending:
        error = pending.pop()
        if error.__module__ == __name__:
            found[error.code] = error
            pending.extend(error.__subclasses__())
    return found


def error_from_code(code: int, message: str) -> MqError:
    """The typed error for a code that came over the wire; unknown codes give MqError."""
    kind = error_classes().get(code, MqError)
    if not message:
        meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
        message = f"{kind.__name__}, and no reason was given: {meaning}"
    return kind(message)
