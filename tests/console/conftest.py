"""Consoles over a cluster in memory, and browsers without JavaScript."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from aerobee.console.pages import Console
from aerobee.console.settings import ConsoleSettings
from aerobee.runtime.clock import ManualClock
from tests.console.fake_admin import Cluster

ORIGIN = "http://127.0.0.1:8088"


@dataclass
class Browser:
    """Keeps cookies; sends the forms that pages have."""

    http: httpx2.AsyncClient
    clock: ManualClock

    async def get(self, path: str, **kwargs: Any) -> httpx2.Response:
        return await self.http.get(path, **kwargs)

    async def post(self, path: str, fields: dict[str, Any], **headers: str) -> httpx2.Response:
        return await self.http.post(
            path,
            content=urlencode(fields, doseq=True),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": ORIGIN,
                **headers,
            },
        )

    async def tokens(self, path: str) -> dict[str, str]:
        """The hidden fields by which the page's form is known."""
        page = (await self.get(path)).text
        names = ("form_token", "once")
        found = {name: re.search(f'name="{name}" value="([^"]+)"', page) for name in names}
        return {name: match[1] for name, match in found.items() if match is not None}


Open = Callable[..., Any]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def browse(cluster: Cluster) -> AsyncIterator[Open]:
    """Opens a console over the cluster, and a browser on it."""
    async with AsyncExitStack() as stack:

        async def opened(**settings: Any) -> Browser:
            clock = ManualClock()
            console = Console(
                ConsoleSettings(**settings), cluster.client, cluster="aerobee", clock=clock
            )
            await stack.enter_async_context(console.opened())
            transport = httpx2.ASGITransport(console.app, raise_app_exceptions=False)
            http = httpx2.AsyncClient(transport=transport, base_url=ORIGIN)
            await stack.enter_async_context(http)
            return Browser(http, clock)

        yield opened
    assert cluster.opened == 0, "every client is closed"
