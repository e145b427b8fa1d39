"""How aerobee.v1 says an error, on gRPC: the one table, and its reverse for clients.

An error that a servicer raises ends its call with the status of the table below, the message, and
the code, a number of aerobee.v1.Code, in the trailing metadata `aerobee-code`. Answers about many
things carry the code in themselves. The numbers are plain integers so that this package needs no
protobuf of ours; a test keeps them equal to common.proto.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import grpc

from aerobee.runtime import errors
from aerobee.runtime.rpc import ErrorBorder

CODE_METADATA_KEY = "aerobee-code"


class Said(NamedTuple):
    """How an error is said."""

    code: int
    """Of aerobee.v1.Code."""
    status: grpc.StatusCode


ERRORS: dict[type[errors.MqError], Said] = {
    errors.InvalidArgument: Said(100, grpc.StatusCode.INVALID_ARGUMENT),
    errors.IllegalName: Said(101, grpc.StatusCode.INVALID_ARGUMENT),
    errors.TopicNotFound: Said(102, grpc.StatusCode.NOT_FOUND),
    errors.QueueNotFound: Said(103, grpc.StatusCode.NOT_FOUND),
    errors.GroupNotFound: Said(104, grpc.StatusCode.NOT_FOUND),
    errors.MessageIllegal: Said(105, grpc.StatusCode.INVALID_ARGUMENT),
    errors.MessageTooLarge: Said(106, grpc.StatusCode.INVALID_ARGUMENT),
    errors.PropertiesTooLarge: Said(107, grpc.StatusCode.INVALID_ARGUMENT),
    errors.CorruptBody: Said(108, grpc.StatusCode.DATA_LOSS),
    errors.TopicExists: Said(109, grpc.StatusCode.ALREADY_EXISTS),
    errors.FilterIllegal: Said(110, grpc.StatusCode.INVALID_ARGUMENT),
    errors.NotWritableTopic: Said(111, grpc.StatusCode.PERMISSION_DENIED),
    errors.NotReadableTopic: Said(112, grpc.StatusCode.PERMISSION_DENIED),
    errors.NoBrokerAvailable: Said(113, grpc.StatusCode.FAILED_PRECONDITION),
    errors.MessageNotFound: Said(114, grpc.StatusCode.NOT_FOUND),
    errors.OutOfSequence: Said(115, grpc.StatusCode.FAILED_PRECONDITION),
    errors.LimitReached: Said(116, grpc.StatusCode.RESOURCE_EXHAUSTED),
    errors.ForeignCluster: Said(120, grpc.StatusCode.FAILED_PRECONDITION),
    errors.ReplicaDiverged: Said(121, grpc.StatusCode.FAILED_PRECONDITION),
    errors.ReplicationGap: Said(122, grpc.StatusCode.ABORTED),
    errors.CorruptFrame: Said(123, grpc.StatusCode.DATA_LOSS),
    errors.ReplicaIncomplete: Said(124, grpc.StatusCode.FAILED_PRECONDITION),
    errors.NotMaster: Said(200, grpc.StatusCode.FAILED_PRECONDITION),
    errors.StaleEpoch: Said(201, grpc.StatusCode.FAILED_PRECONDITION),
    errors.LeaseHeld: Said(202, grpc.StatusCode.FAILED_PRECONDITION),
    errors.LeaseExpired: Said(203, grpc.StatusCode.ABORTED),
    errors.DuplicateClient: Said(204, grpc.StatusCode.ALREADY_EXISTS),
    errors.DuplicateBroker: Said(205, grpc.StatusCode.ALREADY_EXISTS),
    errors.UnknownMember: Said(206, grpc.StatusCode.FAILED_PRECONDITION),
    errors.GroupInUse: Said(207, grpc.StatusCode.FAILED_PRECONDITION),
    errors.GroupDeleted: Said(208, grpc.StatusCode.FAILED_PRECONDITION),
    errors.ShuttingDown: Said(300, grpc.StatusCode.UNAVAILABLE),
    errors.NotWritable: Said(301, grpc.StatusCode.RESOURCE_EXHAUSTED),
    errors.Busy: Said(302, grpc.StatusCode.RESOURCE_EXHAUSTED),
    errors.StoreFailed: Said(303, grpc.StatusCode.UNAVAILABLE),
    errors.RegistryUnavailable: Said(304, grpc.StatusCode.UNAVAILABLE),
    errors.DeadlineExceeded: Said(305, grpc.StatusCode.DEADLINE_EXCEEDED),
    errors.NotEnoughReplicas: Said(306, grpc.StatusCode.UNAVAILABLE),
    errors.ReplicaBehind: Said(307, grpc.StatusCode.UNAVAILABLE),
    errors.Unreachable: Said(398, grpc.StatusCode.UNAVAILABLE),
    errors.MqError: Said(399, grpc.StatusCode.INTERNAL),
}

_CLASSES: dict[int, type[errors.MqError]] = {said.code: kind for kind, said in ERRORS.items()}


def code_of(error: errors.MqError) -> int:
    """The number of aerobee.v1.Code for an error."""
    return _said(error).code


def error_from_code(code: int, message: str) -> errors.MqError:
    """The typed error for a code that came over the wire; unknown codes give MqError."""
    kind = _CLASSES.get(code, errors.MqError)
    if not message:
        meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
        message = f"{kind.__name__} without a reason: {meaning}"
    return kind(message)


def _said(error: errors.MqError) -> Said:
    # A client's own classes derive from those of the table.
    return next(ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS)


async def answer_error(
    context: grpc.aio.ServicerContext[Any, Any], error: errors.MqError
) -> NoReturn:
    """End a call with the status, message and code of a typed error."""
    said = _said(error)
    await context.abort(
        said.status,
        str(error),
        trailing_metadata=((CODE_METADATA_KEY, str(said.code)),),
    )


BORDER = ErrorBorder(answer_error)
unary = BORDER.unary
stream = BORDER.stream


_BROKEN = ("Internal error from Core", "RST_STREAM")
"""How gRPC calls it when a connection ends in the middle of a call: no server has said so."""


def error_from_rpc(error: grpc.aio.AioRpcError, address: str) -> errors.MqError:
    """The typed error of a failed call: the mirror of `answer_error`."""
    metadata = error.trailing_metadata()
    if metadata is not None:
        for key, value in metadata:
            if key == CODE_METADATA_KEY and str(value).isdigit():
                return error_from_code(int(str(value)), error.details() or "")
    status = error.code()
    if status == grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.DeadlineExceeded(f"{address} did not answer in time")
    details = error.details() or ""
    is_broken = status == grpc.StatusCode.INTERNAL and any(one in details for one in _BROKEN)
    if is_broken or status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        broke = is_broken or not details
        why = "the connection broke" if broke else _cause(details, address)
        return errors.Unreachable(f"cannot reach {address}: {why}")
    return errors.MqError(f"{address} failed with {status.name}: {error.details()}")


# How gRPC's resolvers begin what they say of a name that they cannot look up.
_LOOKUP_FAILED = ("DNS resolution failed", "errors resolving", "address lookup failed")


def _cause(details: str, address: str) -> str:
    """A name that does not resolve is told as such; the rest in gRPC's words."""
    if any(begin in details for begin in _LOOKUP_FAILED):
        return f"the host name {address.rpartition(':')[0]} cannot be resolved"
    return details
