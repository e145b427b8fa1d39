"""How aerobee.v1 reports an error over gRPC: the single table, and its reverse for clients.

An error raised by a servicer ends its call with the status from the table below, the message, and
the code, a number of aerobee.v1.Code, in the trailing metadata `aerobee-code`; the time to retry,
if known, in `aerobee-retry-after-ms`; what a missing right applies to in `aerobee-denied-resource`.
Answers about several things carry code and message themselves. The numbers are plain integers so
that this package does not need our protobuf; a test keeps them equal to common.proto.
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.status import RpcError, Status
from aerobee.runtime import errors

CODE_METADATA_KEY = "aerobee-code"
RETRY_METADATA_KEY = "aerobee-retry-after-ms"
RESOURCE_METADATA_KEY = "aerobee-denied-resource"
RESOURCE_LENGTH_MAX = 512
"""Names are shorter. One that breaks the rules appears only in the message."""


class Said(NamedTuple):
    """How an error is reported."""

    code: int
    """A number of aerobee.v1.Code."""
    status: Status


ERRORS: dict[type[errors.AerobeeError], Said] = {
    errors.InvalidArgument: Said(100, Status.INVALID_ARGUMENT),
    errors.IllegalName: Said(101, Status.INVALID_ARGUMENT),
    errors.TopicNotFound: Said(102, Status.NOT_FOUND),
    errors.QueueNotFound: Said(103, Status.NOT_FOUND),
    errors.GroupNotFound: Said(104, Status.NOT_FOUND),
    errors.MessageIllegal: Said(105, Status.INVALID_ARGUMENT),
    errors.MessageTooLarge: Said(106, Status.INVALID_ARGUMENT),
    errors.PropertiesTooLarge: Said(107, Status.INVALID_ARGUMENT),
    errors.CorruptBody: Said(108, Status.DATA_LOSS),
    errors.TopicExists: Said(109, Status.ALREADY_EXISTS),
    errors.FilterIllegal: Said(110, Status.INVALID_ARGUMENT),
    errors.NotWritableTopic: Said(111, Status.PERMISSION_DENIED),
    errors.NotReadableTopic: Said(112, Status.PERMISSION_DENIED),
    errors.NoBrokerAvailable: Said(113, Status.FAILED_PRECONDITION),
    errors.MessageNotFound: Said(114, Status.NOT_FOUND),
    errors.OutOfSequence: Said(115, Status.FAILED_PRECONDITION),
    errors.LimitReached: Said(116, Status.RESOURCE_EXHAUSTED),
    errors.Unauthenticated: Said(117, Status.UNAUTHENTICATED),
    errors.AccessDenied: Said(118, Status.PERMISSION_DENIED),
    errors.ForeignCluster: Said(120, Status.FAILED_PRECONDITION),
    errors.ReplicaDiverged: Said(121, Status.FAILED_PRECONDITION),
    errors.ReplicationGap: Said(122, Status.ABORTED),
    errors.CorruptFrame: Said(123, Status.DATA_LOSS),
    errors.ReplicaIncomplete: Said(124, Status.FAILED_PRECONDITION),
    errors.ScheduleExists: Said(125, Status.ALREADY_EXISTS),
    errors.ScheduleNotFound: Said(126, Status.NOT_FOUND),
    errors.NotMaster: Said(200, Status.FAILED_PRECONDITION),
    errors.StaleEpoch: Said(201, Status.FAILED_PRECONDITION),
    errors.LeaseHeld: Said(202, Status.FAILED_PRECONDITION),
    errors.LeaseExpired: Said(203, Status.ABORTED),
    errors.DuplicateClient: Said(204, Status.ALREADY_EXISTS),
    errors.DuplicateBroker: Said(205, Status.ALREADY_EXISTS),
    errors.UnknownMember: Said(206, Status.FAILED_PRECONDITION),
    errors.GroupInUse: Said(207, Status.FAILED_PRECONDITION),
    errors.GroupDeleted: Said(208, Status.FAILED_PRECONDITION),
    errors.StaleHandle: Said(209, Status.FAILED_PRECONDITION),
    errors.ScheduleChanged: Said(210, Status.ABORTED),
    errors.ShuttingDown: Said(300, Status.UNAVAILABLE),
    errors.NotWritable: Said(301, Status.RESOURCE_EXHAUSTED),
    errors.Busy: Said(302, Status.RESOURCE_EXHAUSTED),
    errors.StoreFailed: Said(303, Status.UNAVAILABLE),
    errors.RegistryUnavailable: Said(304, Status.UNAVAILABLE),
    errors.DeadlineExceeded: Said(305, Status.DEADLINE_EXCEEDED),
    errors.NotEnoughReplicas: Said(306, Status.UNAVAILABLE),
    errors.ReplicaBehind: Said(307, Status.UNAVAILABLE),
    errors.QuotaExceeded: Said(308, Status.RESOURCE_EXHAUSTED),
    errors.TierUnavailable: Said(309, Status.UNAVAILABLE),
    errors.TierDamaged: Said(310, Status.DATA_LOSS),
    errors.Unreachable: Said(398, Status.UNAVAILABLE),
    errors.AerobeeError: Said(399, Status.INTERNAL),
}

_CLASSES: dict[int, type[errors.AerobeeError]] = {said.code: kind for kind, said in ERRORS.items()}


def code_of(error: errors.AerobeeError) -> int:
    """The number of aerobee.v1.Code for an error."""
    return _said(error).code


def error_from_code(code: int, message: str) -> errors.AerobeeError:
    """The typed error for a code received over the wire; unknown codes give AerobeeError."""
    kind = _CLASSES.get(code, errors.AerobeeError)
    if not message:
        meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
        message = f"{kind.__name__} without a reason: {meaning}"
    return kind(message)


def _said(error: errors.AerobeeError) -> Said:
    # A client's own classes derive from those in the table.
    return next(ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS)


def say_error(error: errors.AerobeeError) -> RpcError:
    """The end of a call with the status, message and code of a typed error."""
    said = _said(error)
    trailers: tuple[tuple[str, str], ...] = ((CODE_METADATA_KEY, str(said.code)),)
    if isinstance(error, errors.Busy):
        trailers = (*trailers, (RETRY_METADATA_KEY, str(error.retry_after_ms)))
    if isinstance(error, errors.AccessDenied) and _is_resource(error.resource):
        trailers = (*trailers, (RESOURCE_METADATA_KEY, error.resource))
    return RpcError(said.status, str(error), trailers=trailers)


def error_from_call(error: CallError, address: str) -> errors.AerobeeError:
    """The typed error of a failed call: the reverse of `say_error`."""
    told = {key: int(str(value)) for key, value in error.trailers if _is_number(value)}
    if CODE_METADATA_KEY in told:
        typed = error_from_code(told[CODE_METADATA_KEY], error.message)
        if isinstance(typed, errors.Busy):
            typed.retry_after_ms = told.get(RETRY_METADATA_KEY, typed.retry_after_ms)
        if isinstance(typed, errors.AccessDenied):
            typed.resource = str(dict(error.trailers).get(RESOURCE_METADATA_KEY, ""))
        return typed
    status = error.status
    if status is Status.DEADLINE_EXCEEDED:
        return errors.DeadlineExceeded(f"{address} did not answer in time")
    is_broken = status is Status.INTERNAL and not error.is_answer
    if is_broken or status in (Status.UNAVAILABLE, Status.CANCELLED):
        why = error.message.removeprefix(f"{address}: ") or "the connection broke"
        return errors.Unreachable(f"cannot reach {address}: {why}")
    return errors.AerobeeError(f"{address} failed with {status.name}: {error.message}")


def _is_resource(text: str) -> bool:
    """Whether metadata can carry it."""
    return 0 < len(text) <= RESOURCE_LENGTH_MAX and text.isascii() and text.isprintable()


def _is_number(value: str | bytes) -> bool:
    """Whether it is short enough to parse."""
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
