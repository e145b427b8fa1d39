"""How many files and connections this process may have open at the same time.

Connections and files share one budget. What the service needs for its own files is reserved, so
that clients can use up only the rest: a store that cannot open a file has to stop.
"""

from __future__ import annotations

import contextlib
import resource

from aerobee.runtime.errors import InvalidArgument

CONNECTIONS_MIN = 64
"""With fewer, a service is useless."""
_UNLIMITED = 1 << 20


def raise_limit() -> None:
    """Raise the limit of open files as far as allowed; shells often start with less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # a limit of the platform: it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_max(own_files: int) -> int:
    """How many clients may be connected in addition to `own_files` files of the service itself.

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
