"""Every failure that a user of Aerobee can cause or meet, as one shallow tree.

Servers raise these and know no protocol. At its border, each protocol has one table of how to
report them; that of aerobee.v1 is in `aerobee.rpc.own_protocol`, where clients turn its answers
back into the same classes.

Users import them from `aerobee.errors`, and tracebacks show that name.
"""

from __future__ import annotations

from typing import ClassVar


class AerobeeError(Exception):
    """Base of all errors that Aerobee reports on purpose.

    The message is one sentence for a person: what was wrong and what to do about it.
    """

    retryable: ClassVar[bool] = False
    request_id: str = ""
    """For an error of a call: the id by which the services' logs name the call; otherwise empty."""


def error_name(error: AerobeeError) -> str:
    """`TopicNotFound` is `topic_not_found` in metrics and in the audit log."""
    letters = type(error).__name__
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in letters)[1:]


class InvalidArgument(AerobeeError):
    """A request or an option that can never work."""


class IllegalName(InvalidArgument):
    """A topic, group or client id that breaks the naming rules."""


class TopicNotFound(AerobeeError):
    """No such topic here; routes that are seconds old may cause it just after creation."""


class QueueNotFound(AerobeeError):
    """The queue id is outside the topic's range on this broker."""


class GroupNotFound(AerobeeError):
    """The consumer group has neither members nor offsets."""


class MessageIllegal(AerobeeError):
    """A message or batch whose bytes are inconsistent: lengths, magic, topic, sizes."""


class MessageTooLarge(MessageIllegal):
    """Body, record or batch above the broker's limit."""


class PropertiesTooLarge(MessageIllegal):
    """Properties above 32,767 bytes."""


class CorruptBody(MessageIllegal):
    """The body's CRC does not match: it changed between producer and broker."""


class TopicExists(AerobeeError):
    """The topic to be created is already there."""


class ScheduleExists(AerobeeError):
    """There is a schedule of this name."""


class ScheduleNotFound(AerobeeError):
    """There is no schedule of this name."""


class ScheduleChanged(AerobeeError):
    """The schedule was changed since it was looked at."""


class FilterIllegal(InvalidArgument):
    """A tag expression that cannot be parsed, or a filter type that is not served."""


class NotWritableTopic(AerobeeError):
    """The topic's permission forbids sending."""


class NotReadableTopic(AerobeeError):
    """The topic's permission forbids reading."""


class NoBrokerAvailable(AerobeeError):
    """No broker group is registered that could take it."""

    retryable = True


class MessageNotFound(AerobeeError):
    """No record at this offset, or retention removed it."""


class OutOfSequence(AerobeeError):
    """The producer's sequence number is older than everything the broker remembers, or overlaps a
    stored batch."""


class LimitReached(AerobeeError):
    """The cluster has as many topics, queues or groups as its settings allow."""


class Unauthenticated(AerobeeError):
    """The call does not prove who makes it."""


class AccessDenied(AerobeeError):
    """The caller may not do this; the message names the missing right or the rule."""

    def __init__(self, message: str, *, resource: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        """What the missing right applies to, such as `Topic:orders`; empty: nothing that has a
        name."""


class ForeignCluster(AerobeeError):
    """Replication with a broker of another cluster or group."""


class ReplicaDiverged(AerobeeError):
    """A replica's log is not a prefix of its master's: only an operator can decide which one
    counts."""


class ReplicationGap(AerobeeError):
    """Log bytes that do not follow the previous ones, or an acknowledgement after the log's end."""

    retryable = True


class CorruptFrame(AerobeeError):
    """A replication frame whose checksum does not match."""

    retryable = True


class ReplicaIncomplete(AerobeeError):
    """A replica's log ends before what it is known to have had: it must take a new incarnation."""


class NotMaster(AerobeeError):
    """A slave refuses writes; ask the route again."""

    retryable = True


class StaleEpoch(AerobeeError):
    """The broker group has a newer epoch."""

    retryable = True


class LeaseHeld(AerobeeError):
    """Another member holds the queue lease."""


class LeaseExpired(AerobeeError):
    """The caller's queue lease is not the current one."""


class DuplicateClient(AerobeeError):
    """A live member of the group uses the same client id."""


class DuplicateBroker(AerobeeError):
    """A live broker uses the same cluster, broker name and id."""


class UnknownMember(AerobeeError):
    """Not, or no longer, a member: join the group first."""

    retryable = True


class GroupDeleted(UnknownMember):
    """The group is being deleted together with its members: joining again creates a new group."""


class StaleHandle(AerobeeError):
    """The handle of a delivery that is no longer current: the message was delivered again, changed,
    or finished."""


class GroupInUse(AerobeeError):
    """The consumer group to be deleted has members."""


class ShuttingDown(AerobeeError):
    """The service is stopping."""

    retryable = True


class NotWritable(AerobeeError):
    """The store takes no writes now: disk full, or a derived file cannot be written."""

    retryable = True


class Busy(AerobeeError):
    """Back-pressure: try again after `retry_after_ms`, elsewhere if possible."""

    retryable = True

    def __init__(self, message: str, *, retry_after_ms: int = 50) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class QuotaExceeded(Busy):
    """The caller's quota is used up, and nothing was done; try again after `retry_after_ms`."""


class StoreFailed(AerobeeError):
    """A write or fsync failed; the broker stops, because it can no longer keep its promises."""

    retryable = True


class RegistryUnavailable(AerobeeError):
    """etcd is unreachable: what is known is still served, changes must wait."""

    retryable = True


class TierUnavailable(AerobeeError):
    """The object store of the tier did not do what was asked, or its answer was lost: what happened
    there is unknown."""

    retryable = True


class TierDamaged(AerobeeError):
    """The tier lacks what it should have, or has what belongs to another log: an operator
    decides."""


class DeadlineExceeded(AerobeeError, TimeoutError):
    """Not done within the caller's time; whether it took effect is unknown. Also a TimeoutError."""

    retryable = True


class NotEnoughReplicas(AerobeeError):
    """Fewer replicas are in sync than required; nothing was stored."""

    retryable = True


class ReplicaBehind(AerobeeError):
    """This replica does not know yet what is confirmed; ask another one, or try again soon."""

    retryable = True


class Unreachable(AerobeeError, ConnectionError):
    """No connection to the address; set by clients only. Also a ConnectionError."""

    retryable = True


for _kind in list(globals().values()):
    if isinstance(_kind, type) and issubclass(_kind, AerobeeError):
        _kind.__module__ = "aerobee.errors"
del _kind
