"""The console that `aerobee up` offers: it listens at once, and is loaded when a browser comes.

So it costs a cluster that nobody looks at a socket, and neither time nor memory. It is a part of
this process, as what it needs is loaded already or never; if it fails, the cluster goes on.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import socket
from typing import Final

from aerobee.cli.lazy_group import CONSOLE_PACKAGES
from aerobee.cli.local_cluster.plan import ClusterPlan
from aerobee.cli.output import remark
from aerobee.console.listening import listening_socket
from aerobee.console.settings import PORT, ConsoleSettings
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.errors import InvalidArgument

HOST: Final = "127.0.0.1"


class LocalConsole:
    """Listens from the start until `serve` returns."""

    def __init__(self, plan: ClusterPlan, *, port: int = PORT) -> None:
        """`port`: if it is taken, any free one takes its place.

        Raises:
            InvalidArgument: no address can be used.
        """
        self._plan = plan
        try:
            self._listener = listening_socket(HOST, port)
        except InvalidArgument:
            self._listener = listening_socket(HOST, 0)

    @property
    def address(self) -> str:
        """For browsers."""
        return f"http://{HOST}:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Instead of `serve`."""
        self._listener.close()

    async def serve(self, stop: asyncio.Event) -> None:
        """Returns after `stop`, or once the console has failed."""
        try:
            if await _comes_before(stop, self._listener):
                await self._serve(stop)
        except Exception as error:
            remark(f"the console ended: {error}; `aerobee console` starts another one")
        finally:
            self._listener.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        await asyncio.to_thread(_load)
        from aerobee.cli.console_pages import console_on
        from aerobee.console.serving import serve

        plan = self._plan
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        settings = ConsoleSettings(host=HOST, port=self._listener.getsockname()[1])
        pages = console_on(plan.nameserver_address, plan.cluster, tls_of(plan), settings)
        await serve(pages, settings, stop, listener=self._listener, on_ready=lambda _: None)


def missing_for(plan: ClusterPlan) -> str:
    """Why this cluster has no console; empty: it can have one."""
    if any(importlib.util.find_spec(each) is None for each in CONSOLE_PACKAGES):
        return "not installed; to have it, pip install '.[console]' in a checkout"
    if plan.access and _needs_certificate(plan):
        return "off: by its certificate it would be an operator for every visitor"
    return ""


def tls_of(plan: ClusterPlan) -> TlsConfig | bool:
    """Without the client's certificate, by which every visitor would be an operator, unless nodes
    accept nobody without one."""
    if not plan.is_encrypted or _needs_certificate(plan):
        return plan.client_tls
    return TlsConfig(ca=plan.tls.ca)


def _needs_certificate(plan: ClusterPlan) -> bool:
    return plan.is_encrypted and plan.broker_settings.get("tls.client_auth") == "required"


def _load() -> None:
    """In a thread: for half a second."""
    importlib.import_module("aerobee.console.pages")
    importlib.import_module("aerobee.console.serving")


async def _comes_before(stop: asyncio.Event, listener: socket.socket) -> bool:
    """Whether a browser comes before the end."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listener, came.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            waits = [tasks.create_task(each.wait()) for each in (came, stop)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
    finally:
        loop.remove_reader(listener)
    return not stop.is_set()
