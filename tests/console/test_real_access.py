"""The console of `aerobee up --access`: each visitor is a user, whose policies decide."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from aerobee.console.sessions import new_token
from tests.console.test_attacks import WRITES
from tests.support.local_up import Up, received, running, sent

pytestmark = pytest.mark.slow

LOOKS = "Get,List"


@dataclass
class Guarded:
    """The cluster, and the secrets of its users."""

    up: Up
    secrets: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A topic, a group that has read some of it, a schedule, and two users."""
    with running(tmp_path_factory.mktemp("up"), "--access", with_console=True) as up:
        up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access" / "cluster-secret")
        up.run("topic", "create", "orders", "--queues", "2")
        sent(up, "orders", ["one", "two", "three"])
        received(up, "orders", "g", 2)
        up.run("schedule", "add", "s", "orders", "--every", "1h", "--body", "tick")
        secrets = {name: up.json("user", "create", name)["secret"] for name in ("reader", "keeper")}
        for kind in ("Topic", "Group", "Cluster"):
            up.run("acl", "add", "reader", f"{kind}:*", LOOKS)
        up.run("acl", "add", "keeper", "Topic:orders", "All")
        yield Guarded(up, secrets)


@dataclass
class Visitor:
    """A browser of a user that has signed in."""

    http: httpx2.AsyncClient
    origin: str

    async def tokens(self, path: str) -> dict[str, str]:
        page = (await self.http.get(path)).text
        names = ("form_token", "once", "seen")
        found = {name: re.search(f'name="{name}" value="([^"]+)"', page) for name in names}
        return {name: match[1] for name, match in found.items() if match is not None}

    async def post(self, path: str, fields: dict[str, Any]) -> httpx2.Response:
        return await self.http.post(
            path,
            content=urlencode(fields, doseq=True),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": self.origin,
            },
        )

    async def write(self, path: str, fields: dict[str, Any]) -> httpx2.Response:
        """Sends a form as its page would: one that shows what it would do is looked at first."""
        tokens = await self.tokens("/sign-in")
        tokens["once"] = new_token()  # the page to sign in has none
        if fields.get("act") == "do":
            shown = await self.post(path, {**fields, **tokens, "act": "look"})
            seen = re.search(r'name="seen" value="(\w+)"', shown.text)
            if seen is None:
                return shown
            tokens["seen"] = seen[1]
        return await self.post(path, {**fields, **tokens})


@asynccontextmanager
async def visiting(guarded: Guarded, user: str) -> AsyncIterator[Visitor]:
    origin, secret = guarded.up.document()["console"], guarded.secrets[user]
    async with httpx2.AsyncClient(base_url=origin, timeout=60) as http:
        visitor = Visitor(http, origin)
        tokens = await visitor.tokens("/sign-in")
        answer = await visitor.post(
            "/sign-in", {"access_key": user, "secret_key": secret, **tokens}
        )
        assert answer.status_code == 303, answer.text
        yield visitor


def state(up: Up) -> list[Any]:
    """What any of the forms would change."""
    return [
        up.json("topic", "list"),
        up.json("group", "list"),
        up.json("group", "lag", "g"),
        up.json("user", "list"),
        up.json("acl", "list"),
        [each["paused"] for each in up.json("schedule", "recurring")["schedules"]],
    ]


async def test_a_reader_sees_everything_but_bodies_and_changes_nothing(guarded: Guarded) -> None:
    before = state(guarded.up)
    async with visiting(guarded, "reader") as reader:
        for path in ("/groups", "/groups/g", "/topics/orders", "/cluster", "/clients"):
            assert (await reader.http.get(path)).status_code == 200, path
        message = await reader.http.get("/messages?topic=orders&by=time&value=first")
        assert (message.status_code, "Sub on Topic:orders" in message.text) == (403, True)
        log = await reader.http.get("/audit-log")
        assert (log.status_code, "Get on AuditLog:aerobee" in log.text) == (403, True)
        refused = 0
        for path, fields in WRITES:
            answer = await reader.write(path, fields)
            assert answer.status_code >= 400, (path, fields, answer.text)
            refused += answer.status_code == 403
        assert refused >= 15, "most name things that are there"
    assert state(guarded.up) == before


async def test_a_user_changes_what_its_policies_allow(guarded: Guarded) -> None:
    async with visiting(guarded, "keeper") as keeper:
        grown = {"act": "do", "queues": "3", "permission": "rw"}
        done = await keeper.write("/topics/orders/change", grown)
        assert (done.status_code, "Done" in done.text) == (200, True), done.text
        sent_one = await keeper.write("/topics/orders/send", {"act": "do", "body": "hello"})
        assert sent_one.status_code == 200, sent_one.text
        other = await keeper.write("/new-topic", {"act": "do", "name": "x", "permission": "rw"})
        assert other.status_code == 403
        assert "Create on Topic:x" in other.text
    (orders,) = [each for each in guarded.up.json("topic", "list") if each["topic"] == "orders"]
    assert orders["queues"] == 3


async def test_without_signing_in_nothing_is_seen(guarded: Guarded) -> None:
    async with httpx2.AsyncClient(base_url=guarded.up.document()["console"], timeout=60) as http:
        for path in ("/groups", "/topics", "/clients", "/users", "/topics/orders/tail/events"):
            answer = await http.get(path)
            assert (answer.status_code, answer.headers["Location"][:8]) == (303, "/sign-in"), path
