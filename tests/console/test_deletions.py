"""Deleting says what would be lost before it is done, and is done by the name alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from aerobee import Member, MessageQueue, QueueBounds
from aerobee.client_core.admin_topics import Topic
from aerobee.client_core.schedules import WaitingMessage
from aerobee.runtime import errors
from tests.console.conftest import Open
from tests.console.fake_admin import Cluster, a_group, a_schedule, summary

QUEUE = MessageQueue("orders", "broker-a", 0)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.fixture
def shop(cluster: Cluster) -> Cluster:
    cluster.topics = {"orders": Topic("orders", {"broker-a": 1}, "rw", False, {})}
    cluster.bounds = {QUEUE: QueueBounds(5, 1_239, 1)}
    cluster.summaries = (summary("billing", 7), summary("mail", 0))
    cluster.groups = {"billing": a_group("billing", members=[Member("m", {}, False, 0, "")])}
    return cluster


async def test_a_topic_says_what_is_lost_with_it(shop: Cluster, browse: Open) -> None:
    shop.waiting = (WaitingMessage(QUEUE, 1, 0, "h", "m", "", (), 1, 1, 1),)
    shop.recurring = (a_schedule("hourly"),)
    page = text_of((await (await browse(allow_changes=True)).get("/topics/orders/delete")).text)
    for said in (
        "Messages 1,234",
        "Groups that read it 2",
        "Unread, over all groups 7",
        "lose their offsets on it: billing, mail",
        "messages that wait for their time are never delivered",
        "fail from then on: hourly",
    ):
        assert said in page
    assert shop.changes == []


async def test_with_a_broker_away_what_is_lost_is_unknown(shop: Cluster, browse: Open) -> None:
    shop.unanswered = ("broker-b",)
    page = text_of((await (await browse(allow_changes=True)).get("/topics/orders/delete")).text)
    assert "broker-b did not answer" in page
    assert "Messages unknown" in page


async def test_members_of_a_group_are_ended_only_if_that_is_chosen(
    shop: Cluster, browse: Open
) -> None:
    browser = await browse(allow_changes=True)
    page = (await browser.get("/groups/billing/delete")).text
    assert "Members 1" in text_of(page)
    assert "end their sessions first" in page
    for chosen, is_forced in (("", False), ("end", True)):
        tokens = await browser.tokens("/groups/billing/delete")
        fields = {"confirm": "billing", "members": chosen, **tokens}
        assert (await browser.post("/groups/billing/delete", fields)).status_code == 200
        assert shop.changes.pop() == ("delete group", ("billing", is_forced))


async def test_a_group_in_use_stays(shop: Cluster, browse: Open) -> None:
    shop.refused["delete"] = errors.GroupInUse("billing has 1 member, and nothing was deleted")
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/groups/billing/delete")
    answer = await browser.post("/groups/billing/delete", {"confirm": "billing", **tokens})
    assert (answer.status_code, "nothing was deleted" in answer.text) == (409, True)


async def test_topics_of_brokers_and_topics_that_are_not_there_are_not_deleted(
    shop: Cluster, browse: Open
) -> None:
    browser = await browse(allow_changes=True)
    system = await browser.get("/topics/AEROBEE_OFFSET_JOURNAL/delete")
    assert (system.status_code, "never deleted" in system.text) == (400, True)
    assert (await browser.get("/topics/nowhere/delete")).status_code == 404


async def test_a_console_that_only_shows_names_the_command(shop: Cluster, browse: Open) -> None:
    browser = await browse()
    assert "aerobee topic delete orders" in (await browser.get("/topics/orders/delete")).text
    assert "Delete…" not in (await browser.get("/topics/orders")).text
    shop.summaries = (replace(summary("billing"), dead_letters=3),)
    page = (await browser.get("/groups/billing/delete")).text
    assert "aerobee group delete billing" in page
    assert "can no longer be resent to it alone" in page
