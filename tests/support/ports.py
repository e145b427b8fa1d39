"""Ports that nothing listens on, and that no connection is given before a test uses them."""

from __future__ import annotations

import contextlib
import random
import socket

from aerobee.cli.local_cluster.ports import AUTO_END, AUTO_FIRST

RANGE = range(AUTO_FIRST, AUTO_END)
"""Below Linux's ephemeral ports: a connection could take one of those between the moment when it
was found free and the moment when a process listens there."""


def free_ports(count: int) -> list[int]:
    """Distinct free ports of 127.0.0.1."""
    chosen = random.SystemRandom()
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", chosen.choice(RANGE)))
                found.append(int(one.getsockname()[1]))
        return found


def free_port() -> int:
    """A free port of 127.0.0.1."""
    return free_ports(1)[0]
