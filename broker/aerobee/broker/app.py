"""The broker's composition root and its life: open, serve, stop.

    open the folder (on a thread) -> listen -> register -> serve
    SIGTERM: refuse sends -> flush, acknowledge what waits -> end the streams -> leave the routes
             -> write tables -> close the store (removes `abort`)
    another replica became master, or the log must be cut: end the streams -> close the store
             -> cut -> open the folder again, as a new instance in the same process

A failed write or fsync ends the process: health turns NOT_SERVING, one line says why, and the exit
code is not zero. Nothing is retried, because nothing is known of the disk any more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from aerobee.broker.broker import Broker
from aerobee.broker.config import BrokerConfig
from aerobee.broker.replicated_folder import change_log, close_replicated, open_replicated
from aerobee.broker.store.disk import Disk, RealDisk
from aerobee.broker.threads import Threads
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.runtime.open_files import connections_max, raise_limit
from aerobee.runtime.supervise import ExitCode, Lifecycle, run_service
from aerobee.store_format.record_layout import HostAddress

log = logging.getLogger(__name__)

FILE_THREADS = 2
"""Threads that replace small files."""


def run_broker(config: BrokerConfig) -> ExitCode:
    """A whole broker process, until a signal or a failure ends it."""
    raise_limit()

    async def service(lifecycle: Lifecycle) -> None:
        await serve_broker(
            config,
            lifecycle,
            clock=SystemClock(),
            chance=system_random(),
            on_opened=_spare_collector,
        )

    return run_service("broker", service)


def _spare_collector() -> None:
    """What was opened lives as long as the process: with 80,000 queues, looking through it again
    and again would stop the loop for tens of milliseconds each time."""
    gc.unfreeze()  # of a store that was closed to be opened again
    gc.collect()
    gc.freeze()


async def serve_broker(
    config: BrokerConfig,
    lifecycle: Lifecycle,
    *,
    clock: Clock,
    chance: random.Random,
    disk: Disk | None = None,
    on_listening: Callable[[int], None] | None = None,
    on_opened: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `lifecycle.stop`; `on_listening` is told the port once clients are served.

    A replica may have to open its folder again, as a new instance on the same port; `on_opened` is
    called each time.

    `disk` replaces the file system below `config.store_root`, for tests.

    Raises:
        InvalidArgument: the folder cannot be used, the address cannot be listened on, or too few
            files may be open.
        DuplicateBroker: another live broker has this identity.
        StoreFailed: a write or fsync failed while running.
    """
    connections_max(config.own_files)
    disk = RealDisk(config.store_root) if disk is None else disk
    loop = asyncio.get_running_loop()
    store_host = await _store_host(config)
    store_config = replace(config.store, store_host=store_host)
    with (
        ThreadPoolExecutor(config.read_threads_max, thread_name_prefix="read") as reads,
        ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files") as files,
    ):
        while True:
            opened = await loop.run_in_executor(
                files, open_replicated, config, store_config, disk, clock, chance
            )
            try:
                broker = Broker(
                    config,
                    opened,
                    disk,
                    Threads(reads, files),
                    clock,
                    chance,
                    store_host=store_host,
                )
                reopening = await broker.run(lifecycle, on_listening, on_opened)
            finally:
                await loop.run_in_executor(files, close_replicated, disk, opened)
            if reopening is None:
                break
            await loop.run_in_executor(
                files, change_log, disk, store_config, reopening.change, chance
            )
            # Clients and replicas know the port; whoever started this broker was told of it.
            config, on_listening = replace(config, listen=broker.listens_on), None
    log_event(log, "broker stopped", broker=config.broker_name)


async def _store_host(config: BrokerConfig) -> HostAddress:
    """The address stamped into records.

    Raises:
        InvalidArgument: it is a name that cannot be resolved.
    """
    known = config.known_store_host()
    if known is not None:
        return known
    host, _, port = (config.address or config.listen).rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgument(
            f"cannot resolve {host!r} of the broker's address: {error}; set store_host to an IP "
            "address and port"
        ) from error
    return HostAddress(socket.inet_pton(found[0][0], str(found[0][4][0])), int(port))
