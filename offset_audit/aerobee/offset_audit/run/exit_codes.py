"""How a run of the audit ends: why it could not be made, and the exit code for scripts.

0 to 3 are the worst severity found (`outputs.summary.EXIT_CODES`); 64 and above mean that there is
no result, and never a finding. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from aerobee.runtime import errors
from aerobee.runtime.errors import AerobeeError


class NotReady(AerobeeError):
    """This machine lacks something that Spark needs; the sentence says what to install."""


class NothingToAudit(AerobeeError):
    """There is neither a cluster nor a store where the caller said."""


class SparkFailed(AerobeeError):
    """Spark itself did not start or broke down; the sentence ends with its own last words."""


USAGE = 64
NOTHING_THERE = 66
UNAVAILABLE = 69
"""Java or pyspark is missing, or the cluster does not answer."""
BROKE_OFF = 70
CANNOT_WRITE = 73
INTERRUPTED = 130

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.InvalidArgument, USAGE),
    (NothingToAudit, NOTHING_THERE),
    (NotReady, UNAVAILABLE),
    (errors.Unreachable, UNAVAILABLE),
    (errors.DeadlineExceeded, UNAVAILABLE),
    (errors.RegistryUnavailable, UNAVAILABLE),
    (errors.NoBrokerAvailable, UNAVAILABLE),
    (OSError, CANNOT_WRITE),
    (KeyboardInterrupt, INTERRUPTED),
)


def exit_code_of(error: BaseException) -> int:
    """The exit code for the error that ended a run."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), BROKE_OFF)


def is_understood(error: BaseException) -> bool:
    """Whether its message is all that a person needs; anything else is a bug with a traceback."""
    return isinstance(error, errors.AerobeeError | OSError)
