"""The console in a browser: Debian's Chromium, on a real cluster with dead letters and a broker
that goes away. Skipped where there is no Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from aerobee import (
    AdminClient,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from tests.console.axe import axe_script
from tests.support.local_up import AEROBEE, Up, running
from tests.support.waiting import until, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
PAGES = (
    "/groups",
    "/groups/failing",
    "/groups/failing/dead-letters",
    "/groups/billing/reset?topic=orders&to=first",
    "/topics",
    "/topics/orders",
    "/messages?topic=orders&by=time&value=last",
    "/message?topic=orders&broker=broker-a&queue=0&offset=0",
    "/cluster?findings=1",
    "/scheduled",
    "/transactions",
    "/scheduled/recurring",
    "/scheduled/recurring/one?name=hourly",
    "/scheduled/recurring/change?name=hourly",
    "/clients",
    "/audit-log",
    "/audit-log?method=CreateTopic",
    "/new-topic",
    "/topics/orders/change",
    "/topics/orders/delete",
    "/groups/billing/delete",
    "/offset-audit",
    "/topics/orders/send",
    "/topics/orders/tail",
    "/groups/billing/change",
    "/sign-in",
    "/nowhere",
)


async def fill(nameserver: str) -> None:
    """Twenty orders, of which one group has read all and another can handle none."""
    async with AdminClient(nameserver) as admin, Producer(nameserver) as producer:
        await admin.topics.create("orders", queues=2)
        await admin.topics.create("later", queues=1, attributes={"message.type": "DELAY"})
        await admin.topics.create("paid", queues=1, attributes={"message.type": "TRANSACTION"})
        for number in range(20):
            body = json.dumps({"order": number, "note": "<b>bold</b>"}).encode()
            await producer.send(Message("orders", body, keys=[f"order-{number}"]))
        await producer.send(Message("later", b"late", delay=3_600.0))
        await producer.begin(Message("paid", b"half"), check_after_s=3_600)
        await admin.schedules.add("hourly", Message("later", b"tick"), every=3_600)
        await admin.groups.configure("failing", retries_max=0)

        def refuse(_: Sequence[ReceivedMessage]) -> None:
            raise ValueError("cannot parse <script>")

        failing = PushConsumer(
            "failing", refuse, nameservers=nameserver, start_from=StartFrom.FIRST
        )
        failing.subscribe("orders")
        billing = PullConsumer("billing", nameservers=nameserver, start_from=StartFrom.FIRST)
        billing.subscribe("orders")

        async def letters() -> bool:
            await billing.poll(10, timeout=0.1)
            return len([each async for each in admin.dead_letters.find("failing")]) == 20

        async with failing, billing:
            await until(letters, "the dead letters")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up"), "--brokers", "2") as up:
        asyncio.run(fill(up.document()["nameserver"]))
        yield up


@pytest.fixture(scope="module")
def address(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a console that allows changes."""
    log = tmp_path_factory.mktemp("console") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*AEROBEE, "console", "--port", "0", "--allow-changes"],
            stdout=output,
            stderr=output,
            env={**os.environ, "AEROBEE_NAMESERVER": up.document()["nameserver"]},
        )
        wait_until(lambda: "console: http" in log.read_text(), "the console")
        (line,) = [each for each in log.read_text().splitlines() if each.startswith("console:")]
        yield line.removeprefix("console: ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()


@pytest.fixture(scope="module")
def chromium(address: str) -> Iterator[Browser]:
    """After the cluster is filled, which needs an event loop of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """Fails if a page breaks its own policy or its scripts do."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    said: list[str] = []
    page = context.new_page()
    page.on("console", lambda each: said.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    expected = ("400", "404", "503")  # pages that say what is wrong
    assert [each for each in said if not any(code in each for code in expected)] == []


def opened(page: Page, address: str, path: str) -> Page:
    page.goto(address + path)
    return page


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        pytest.param(1440, "light", marks=pytest.mark.thorough),
        pytest.param(390, "light", marks=pytest.mark.thorough),
        pytest.param(1440, "dark", marks=pytest.mark.thorough),
    ],
)
def test_every_page_fits_and_is_accessible(
    chromium: Browser, address: str, width: int, scheme: Any
) -> None:
    script = axe_script()
    if script is None:
        pytest.skip("axe-core cannot be fetched: no npm")
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    for path in PAGES:
        opened(page, address, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.evaluate(script)
        found = page.evaluate("axe.run()")["violations"]
        assert [(path, each["id"], each["nodes"][0]["html"]) for each in found] == []
    context.close()


def test_the_way_to_a_lost_message(page: Page, address: str) -> None:
    opened(page, address, "/messages")
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("Value").fill("order-7")
    page.get_by_role("button", name="Find").click()
    page.locator("tbody a").click()
    expect(page.get_by_role("row", name="failing")).to_contain_text("dead letter")
    expect(page.locator("pre")).to_contain_text('"note": "<b>bold</b>"')
    assert page.locator("pre b").count() == 0


def test_groups_refresh_by_themselves(page: Page, address: str, up: Up) -> None:
    opened(page, address, "/topics/orders")
    figures = page.locator(".figures")
    before = figures.inner_text()
    up.run("produce", "orders", given="one more\n")
    expect(figures).not_to_have_text(before, timeout=20_000)


def test_letters_are_chosen_and_resent(page: Page, address: str) -> None:
    opened(page, address, "/groups/failing/dead-letters")
    boxes = page.get_by_role("checkbox")
    count = boxes.count()
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Resend").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Resent: 2 dead letters")
    expect(page.locator(".tag.good")).to_have_count(2)
    page.get_by_role("link", name="Back to the dead letters").click()
    expect(page.get_by_role("checkbox")).to_have_count(count - 2)


def test_a_reset_is_looked_at_confirmed_and_done(page: Page, address: str, up: Up) -> None:
    opened(page, address, "/groups/billing/reset")
    page.get_by_label("Topic").fill("orders")
    page.get_by_label("To", exact=True).fill("first")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator(".figures")).to_contain_text("Come again")
    page.get_by_label("To confirm").fill("billing")
    page.get_by_role("button", name="Set these offsets").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Offsets are set")
    (lag,) = [each for each in up.json("group", "lag", "billing") if each["topic"] == "orders"]
    assert lag["lag"] >= 20


def test_a_topic_is_looked_at_and_then_created(page: Page, address: str, up: Up) -> None:
    opened(page, address, "/topics")
    page.get_by_role("link", name="Create a topic").click()
    page.get_by_label("Name").fill("invoices")
    page.get_by_label("Queues").fill("3")
    page.get_by_label("Attributes").fill("owner=billing\nteam=a")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("row", name="Attribute owner")).to_contain_text("billing")
    assert "invoices" not in [each["topic"] for each in up.json("topic", "list")]
    page.get_by_role("button", name="Do this").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Done")
    (made,) = [each for each in up.json("topic", "list") if each["topic"] == "invoices"]
    assert (made["queues"], made["attributes"]["team"]) == (3, "a")


def test_a_group_is_deleted_by_its_name(page: Page, address: str, up: Up) -> None:
    up.run("group", "configure", "leaving", "--retries-max", "2")
    opened(page, address, "/groups/leaving/delete")
    page.get_by_label("To confirm").fill("leavin")
    page.get_by_role("button", name="Delete this group").click()
    expect(page.locator("main")).to_contain_text("nothing was deleted")
    opened(page, address, "/groups/leaving/delete")
    page.get_by_label("To confirm").fill("leaving")
    page.get_by_role("button", name="Delete this group").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Done")
    assert "leaving" not in json.dumps(up.json("group", "list"))


def test_who_changed_something_is_found(page: Page, address: str, up: Up) -> None:
    """The nodes of this cluster keep no audit log, and the page says so."""
    opened(page, address, "/audit-log")
    expect(page.locator("main")).to_contain_text("No audit log is kept by")


def test_a_tail_shows_what_comes_also_after_the_nameserver_was_restarted(
    page: Page, address: str, up: Up
) -> None:
    up.run("topic", "create", "watched", "--queues", "4")
    opened(page, address, "/topics/watched/tail?tags=red")
    expect(page.locator("#tail-state")).to_have_text("Waiting for messages.", timeout=20_000)
    lines = "first <b>bold</b>\n"
    up.run("produce", "watched", "--tag", "red", given=lines)
    up.run("produce", "watched", "--tag", "blue", given="not this\n")
    expect(page.locator("#tail tbody tr")).to_have_count(1, timeout=20_000)
    expect(page.locator("#tail tbody tr")).to_contain_text("first <b>bold</b>")
    before = up.document()["pids"]["nameserver"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: up.document()["pids"]["nameserver"] not in (None, before), "a nameserver")
    # The command says at once that a nameserver does not know the routes yet.
    wait_until(lambda: up.run("topic", "list", expect=range(256)).returncode == 0, "routes")
    up.run("produce", "watched", "--tag", "red", "--timeout-ms", "30000", given="second\n")
    expect(page.locator("#tail tbody tr")).to_have_count(2, timeout=30_000)
    page.locator("#tail tbody a").first.click()
    expect(page.locator("pre")).to_contain_text("second")


def test_it_reads_without_scripts(chromium: Browser, address: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    opened(page, address, "/groups")
    page.get_by_role("link", name="Members").click()
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")
    context.close()


def test_a_broker_that_goes_away_is_named_and_comes_back(page: Page, address: str, up: Up) -> None:
    """Last: the others need both brokers."""
    pid = up.document()["pids"]["broker-b"]
    os.kill(pid, signal.SIGSTOP)
    try:
        opened(page, address, "/groups")
        expect(page.locator("#live")).to_contain_text("broker-b did not answer", timeout=30_000)
        expect(page.locator("#live")).to_contain_text("at least")
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(page.locator("#live")).not_to_contain_text("did not answer", timeout=60_000)
