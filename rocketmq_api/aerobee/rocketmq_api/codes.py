"""How apache.rocketmq.v2 reports errors: the single table, its reverse, and the status messages.

A failed call ends with gRPC status OK and a Status in its answer. Many errors share a code, mostly
INTERNAL_SERVER_ERROR, on which clients retry. All but one of those that share a code start their
message with the error's name, so that people see what it was, and a node that forwarded the call
gets the same error back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerobee.rocketmq_api.rules import refusals
from aerobee.rocketmq_api.rules.refusals import Reason
from aerobee.runtime import errors
from apache.rocketmq.v2 import definition_pb2 as v2


class Refused(refusals.Refused):
    """A request that breaks a rule of this API alone, which has a specific code for it. The rules
    raise its base class: catch that one, unless the code matters."""

    def __init__(self, code: v2.Code, message: str) -> None:
        super().__init__(Reason.MALFORMED, message)
        self.code = code


_INTERNAL: Final = v2.INTERNAL_SERVER_ERROR

# The first error of each code is what the code means if the message does not say.
CODES: Final[dict[type[errors.AerobeeError], v2.Code]] = {
    errors.InvalidArgument: v2.BAD_REQUEST,
    errors.IllegalName: v2.BAD_REQUEST,
    errors.TopicNotFound: v2.TOPIC_NOT_FOUND,
    errors.QueueNotFound: v2.NOT_FOUND,
    errors.GroupNotFound: v2.CONSUMER_GROUP_NOT_FOUND,
    errors.MessageNotFound: v2.MESSAGE_NOT_FOUND,
    errors.MessageIllegal: v2.MESSAGE_CORRUPTED,
    errors.CorruptBody: v2.MESSAGE_CORRUPTED,
    errors.MessageTooLarge: v2.MESSAGE_BODY_TOO_LARGE,
    errors.PropertiesTooLarge: v2.MESSAGE_PROPERTIES_TOO_LARGE,
    errors.StaleHandle: v2.INVALID_RECEIPT_HANDLE,
    errors.FilterIllegal: v2.ILLEGAL_FILTER_EXPRESSION,
    errors.NotWritableTopic: v2.FORBIDDEN,
    errors.NotReadableTopic: v2.FORBIDDEN,
    # POP, or members with leases, own the queue.
    errors.LeaseHeld: v2.PRECONDITION_FAILED,
    errors.LeaseExpired: v2.PRECONDITION_FAILED,
    errors.Unauthenticated: v2.UNAUTHORIZED,
    errors.AccessDenied: v2.UNAUTHORIZED,
    # Clients wait before they send again.
    errors.Busy: v2.TOO_MANY_REQUESTS,
    errors.LimitReached: v2.TOO_MANY_REQUESTS,
    errors.QuotaExceeded: v2.TOO_MANY_REQUESTS,
    errors.NotEnoughReplicas: v2.HA_NOT_AVAILABLE,
    errors.DeadlineExceeded: v2.PROXY_TIMEOUT,
    # Clients try another queue, which is right for most of these.
    errors.AerobeeError: _INTERNAL,
    errors.NoBrokerAvailable: _INTERNAL,
    errors.NotMaster: _INTERNAL,
    errors.StaleEpoch: _INTERNAL,
    errors.ShuttingDown: _INTERNAL,
    errors.NotWritable: _INTERNAL,
    errors.StoreFailed: _INTERNAL,
    errors.RegistryUnavailable: _INTERNAL,
    errors.ReplicaBehind: _INTERNAL,
    errors.TierUnavailable: _INTERNAL,
    errors.TierDamaged: _INTERNAL,
    errors.Unreachable: _INTERNAL,
    # Never the result of this API's calls.
    errors.TopicExists: _INTERNAL,
    errors.ScheduleExists: _INTERNAL,
    errors.ScheduleNotFound: _INTERNAL,
    errors.ScheduleChanged: _INTERNAL,
    errors.OutOfSequence: _INTERNAL,
    errors.DuplicateClient: _INTERNAL,
    errors.DuplicateBroker: _INTERNAL,
    errors.UnknownMember: _INTERNAL,
    errors.GroupDeleted: _INTERNAL,
    errors.GroupInUse: _INTERNAL,
    errors.ForeignCluster: _INTERNAL,
    errors.ReplicaDiverged: _INTERNAL,
    errors.ReplicationGap: _INTERNAL,
    errors.CorruptFrame: _INTERNAL,
    errors.ReplicaIncomplete: _INTERNAL,
}
CODES_OF_REASONS: Final[dict[Reason, v2.Code]] = {
    Reason.MALFORMED: v2.BAD_REQUEST,
    Reason.ILLEGAL_TOPIC: v2.ILLEGAL_TOPIC,
    Reason.ILLEGAL_GROUP: v2.ILLEGAL_CONSUMER_GROUP,
    Reason.BODY_EMPTY: v2.MESSAGE_BODY_EMPTY,
    Reason.BODY_TOO_LARGE: v2.MESSAGE_BODY_TOO_LARGE,
    Reason.PROPERTIES_TOO_LARGE: v2.MESSAGE_PROPERTIES_TOO_LARGE,
    Reason.ILLEGAL_PROPERTY: v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
    Reason.ILLEGAL_TAG: v2.ILLEGAL_MESSAGE_TAG,
    Reason.ILLEGAL_KEY: v2.ILLEGAL_MESSAGE_KEY,
    Reason.ILLEGAL_MESSAGE_ID: v2.ILLEGAL_MESSAGE_ID,
    Reason.ILLEGAL_MESSAGE_GROUP: v2.ILLEGAL_MESSAGE_GROUP,
    Reason.ILLEGAL_DELIVERY_TIME: v2.ILLEGAL_DELIVERY_TIME,
    Reason.TYPE_CONFLICT: v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    Reason.ILLEGAL_FILTER: v2.ILLEGAL_FILTER_EXPRESSION,
    Reason.ILLEGAL_POLLING_TIME: v2.ILLEGAL_POLLING_TIME,
    Reason.ILLEGAL_INVISIBLE_TIME: v2.ILLEGAL_INVISIBLE_TIME,
    Reason.ILLEGAL_HANDLE: v2.INVALID_RECEIPT_HANDLE,
}
_REASONS: Final = {code: reason for reason, code in CODES_OF_REASONS.items()}
_MEANINGS: Final = {code: kind for kind, code in reversed(CODES.items())}
_NAMED: Final = {kind.__name__: kind for kind in CODES}
_SUCCESSES: Final = frozenset((v2.OK, v2.MULTIPLE_RESULTS))

OK: Final = v2.Status(code=v2.OK, message="OK")
"""The status of every successful call; copied into answers, never changed."""


def status_of(error: errors.AerobeeError) -> v2.Status:
    """The status for a typed error."""
    if isinstance(error, Refused):
        return v2.Status(code=error.code, message=str(error))
    if isinstance(error, refusals.Refused):
        return v2.Status(code=CODES_OF_REASONS[error.reason], message=str(error))
    # A subclass of one of the table's classes is reported as that class.
    kind = next(kind for kind in type(error).__mro__ if kind in CODES)
    code = CODES[kind]
    message = str(error) if _MEANINGS[code] is kind else f"{kind.__name__}: {error}"
    return v2.Status(code=code, message=message)


def error_of(status: v2.Status) -> errors.AerobeeError | None:
    """The typed error of another node's answer, the reverse of `status_of`; None: it succeeded.

    A code that is in no table gives Refused with that code, so that it can be passed on.
    """
    code, message = status.code, status.message
    if code in _SUCCESSES:
        return None
    kind = _MEANINGS.get(code)
    if kind is None:
        said = message or f"code {code} without a reason"
        reason = _REASONS.get(code)
        return Refused(code, said) if reason is None else refusals.Refused(reason, said)
    name, _, sentence = message.partition(": ")
    named = _NAMED.get(name, kind)
    if named is not kind and CODES[named] == code:
        return named(sentence)
    return kind(message or f"{kind.__name__} without a reason")


def common_status(statuses: Iterable[v2.Status]) -> v2.Status:
    """The status of an answer with several results: theirs if they agree, else MULTIPLE_RESULTS.

    Without any results it is an error: the call promised at least one.
    """
    found = list(statuses)
    if not found:
        return v2.Status(code=_INTERNAL, message="the call has no result")
    first = found[0]
    if all(status is first or status.code == first.code for status in found):
        return first
    return v2.Status(code=v2.MULTIPLE_RESULTS, message="results differ: see each of them")
