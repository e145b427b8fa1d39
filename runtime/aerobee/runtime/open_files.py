"""How many files and connections this process may have open at once.

Connections and files are of one budget. What the service needs for its own files is set aside, so
that clients can use up the rest and nothing else: a store that cannot open a file has to stop.
"""

from __future__ import annotations

import contextlib
import resource

from aerobee.runtime.errors import InvalidArgument

CONNECTIONS_MIN = 64
"""With less than that a service is of no use."""
_UNLIMITED = 1 << 20


def raise_limit() -> None:
    """Let this process open as many files as it is allowed to; shells often start with fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # a platform's own bound: it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_max(own_files: int) -> int:
    """How many clients may be connected beside `own_files` files of the service itself.

    Raises:
        InvalidArgument: the limit leaves no room for clients.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _UNLIMITED if soft == resource.RLIM_INFINITY else soft
    needed = own_files + CONNECTIONS_MIN
    if limit < needed:
        raise InvalidArgument(
            f"this process may open {limit} files and connections and needs at least {needed}: "
            "raise the limit of file descriptors (`ulimit -n`, LimitNOFILE of a systemd unit)"
        )
    return limit - own_files
