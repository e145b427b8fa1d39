"""Which ports are free.

A free port is only free until somebody takes it: the check gives an early, clear sentence, and the
service that finally listens has the last word.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.plan import HOST, Ports

# Below the range from which Linux takes ports for outgoing connections (32768 and up), so that no
# client of the cluster takes the port of a broker that is being restarted.
AUTO_FIRST = 15_000
AUTO_END = 32_000
ATTEMPTS_MAX = 200


def is_free(port: int) -> bool:
    """Whether a server can listen on the loopback port now."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        # Connections of an ended server that are in TIME_WAIT do not make its port busy.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(
    *,
    brokers: int,
    chance: random.Random,
    replicas: int = 1,
    taken: Collection[int] = (),
) -> Ports:
    """Ports without a listener that are not `taken`, for a cluster beside others.

    Raises:
        EnvironmentFailure: there are none.
    """
    nameserver, etcd_client, *rest = free_numbers(
        brokers * replicas + 2, chance=chance, taken=taken
    )
    return Ports(
        nameserver=nameserver,
        etcd_client=etcd_client,
        brokers=tuple(
            tuple(rest[first : first + replicas]) for first in range(0, len(rest), replicas)
        ),
    )


def free_numbers(count: int, *, chance: random.Random, taken: Collection[int]) -> list[int]:
    """So many ports without a listener that are not `taken`. Raises EnvironmentFailure."""
    found: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        if len(found) == count:
            return found
        port = chance.randrange(AUTO_FIRST, AUTO_END)
        if port not in found and port not in taken and is_free(port):
            found.append(port)
    raise EnvironmentFailure(
        f"found no {count} free ports between {AUTO_FIRST} and {AUTO_END}; "
        "stop some of the servers on this machine"
    )


def check_free(ports: Ports) -> None:
    """Raises EnvironmentFailure that names every port in use, and for what it was meant."""
    busy = [f"{port} ({purpose})" for purpose, port in ports.named().items() if not is_free(port)]
    if busy:
        noun, verb = ("port", "is") if len(busy) == 1 else ("ports", "are")
        raise EnvironmentFailure(
            f"{noun} {', '.join(busy)} {verb} in use on {HOST}; stop what listens there "
            "(`aerobee up` may already be running), or take free ports with --ports auto"
        )
