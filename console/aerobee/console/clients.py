"""The `AdminClient`s of a console: one for each visitor that signed in, and one for all others.

A client belongs to the task that opened it, so each has a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from aerobee.access.credentials import Anonymous, Credentials
from aerobee.client_core.admin_client import AdminClient

MakeAdmin = Callable[[Credentials], AdminClient]


class OpenClient:
    """A client until `close`."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin = admin
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Its task ends it."""
        self._closing.set()

    async def opened(self) -> Self:
        await self._opened.wait()
        return self

    async def run(self) -> None:
        async with self.admin:
            self._opened.set()
            await self._closing.wait()


class Clients:
    """Between `__aenter__` and `__aexit__`, in one task."""

    def __init__(self, make: MakeAdmin) -> None:
        self._make = make
        self._tasks = asyncio.TaskGroup()
        self._open: set[OpenClient] = set()
        self._anonymous: OpenClient | None = None

    @property
    def anonymous(self) -> AdminClient:
        """For visitors that have not signed in: it proves nothing."""
        assert self._anonymous is not None, "the console has not started"
        return self._anonymous.admin

    async def open(self, credentials: Credentials) -> OpenClient:
        """A client of its own for these credentials; close it."""
        client = OpenClient(self._make(credentials))
        self._tasks.create_task(self._run(client), name="console:client")
        return await client.opened()

    async def _run(self, client: OpenClient) -> None:
        self._open.add(client)
        try:
            await client.run()
        finally:
            self._open.discard(client)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._anonymous = await self.open(Anonymous())
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self._open:
            client.close()
        await self._tasks.__aexit__(None, None, None)
