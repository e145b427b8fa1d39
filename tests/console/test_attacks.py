"""What a console must withstand: texts of others, foreign pages, forged sessions, readers who try
to write, guessed secrets."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.routing import Route

from aerobee import Member, Message, MessageQueue, QueueBounds
from aerobee.client_core.admin_access import Policy, User
from aerobee.client_core.admin_topics import Topic
from aerobee.client_core.audit_logs import AuditLines
from aerobee.client_core.schedules import WaitingMessage
from aerobee.client_core.transactions import OpenTransaction
from aerobee.console.pages import Console
from aerobee.console.settings import ConsoleSettings
from aerobee.runtime import errors
from tests.console.conftest import ORIGIN, Browser, Open
from tests.console.fake_admin import (
    NASTY,
    Cluster,
    a_client,
    a_group,
    a_schedule,
    an_audit_line,
    letter,
    message,
    summary,
)
from tests.support.waiting import until

USERS = {"ada": "s3cret"}
QUEUE = MessageQueue("orders", "broker-a", 0)
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("/groups/g/reset", {"topic": "orders", "confirm": "g", "place": "0 1 broker-a"}),
    ("/groups/g/dead-letters", {"act": "resend", "letter": "0 broker-a"}),
    ("/groups/g/dead-letters", {"act": "drop", "confirm": "g", "letter": "0 broker-a"}),
    ("/scheduled", {"act": "recall", "handle": "h", "name": "m", "confirm": "recall"}),
    ("/scheduled", {"act": "now", "handle": "h", "name": "m"}),
    ("/scheduled", {"act": "move", "handle": "h", "name": "m", "to": "2030-01-01T00:00+00:00"}),
    ("/transactions", {"act": "commit", "topic": "t", "id": "x", "confirm": "commit"}),
    ("/transactions", {"act": "rollback", "topic": "t", "id": "x", "confirm": "rollback"}),
    ("/transactions", {"act": "check", "topic": "t", "id": "x"}),
    ("/scheduled/recurring/one", {"act": "pause", "name": "s"}),
    ("/scheduled/recurring/one", {"act": "resume", "name": "s"}),
    ("/scheduled/recurring/one", {"act": "run", "name": "s"}),
    ("/scheduled/recurring/one", {"act": "remove", "name": "s", "confirm": "s"}),
    ("/users/ada", {"act": "enable"}),
    ("/users/ada", {"act": "disable"}),
    ("/users/ada", {"act": "rotate"}),
    ("/users/ada", {"act": "forget"}),
    ("/users/ada", {"act": "remove policy", "resource": "Topic:t"}),
    ("/users/ada", {"act": "delete", "confirm": "ada"}),
    ("/topics/orders/delete", {"confirm": "orders"}),
    ("/groups/g/delete", {"confirm": "g", "members": "end"}),
    ("/new-topic", {"act": "do", "name": "new", "permission": "rw"}),
    ("/topics/orders/change", {"act": "do", "queues": "3", "permission": "rw"}),
    ("/topics/orders/send", {"act": "do", "body": "hello"}),
    ("/new-group", {"act": "do", "group": "new", "retries": "3"}),
    ("/groups/g/change", {"act": "do", "retries": "3"}),
    ("/scheduled/recurring/new", {"act": "do", "schedule": "new", "topic": "orders", "every": "1m",
                                  "missed": "skip", "body": "x"}),
    ("/scheduled/recurring/change?name=s", {"act": "do", "every": "2m", "missed": "skip"}),
    ("/new-user", {"act": "do", "user": "new"}),
    ("/users/ada/policy", {"act": "do", "resource": "Topic:t", "actions": "Sub",
                           "decision": "Allow"}),
]  # fmt: skip
"""Every form that changes something."""
NO_CHANGE = {"/sign-in", "/sign-out"}
"""Forms that change nothing in the cluster."""


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """Something nasty wherever others can put a text."""
    members = [Member(NASTY, {NASTY: NASTY}, False, 0, NASTY)]
    cluster.groups = {"g": a_group("g", members=members)}
    cluster.summaries = (summary("g", 3, dead_letters=1), summary(NASTY, 2))
    cluster.topics = {
        "orders": Topic("orders", {"broker-a": 1}, "rw", False, {"message.type": NASTY}),
        NASTY: Topic(NASTY, {NASTY: 1}, "rw", False, {}),
    }
    cluster.bounds = {QUEUE: QueueBounds(0, 9, 1)}
    cluster.messages = [
        message(body=NASTY.encode(), KEYS=NASTY, TAGS=NASTY, UNIQ_KEY=NASTY, more={NASTY: NASTY})
    ]
    cluster.letters = [letter(0, UNIQ_KEY=NASTY, REAL_TOPIC=NASTY)]
    cluster.waiting = (WaitingMessage(QUEUE, 1, 0, NASTY, NASTY, NASTY, (NASTY,), 1, 1, 1),)
    cluster.open = (OpenTransaction(QUEUE, NASTY, NASTY, 1, 1, 0, 0, 0),)
    nasty = Message("orders", NASTY.encode(), keys=["k"], properties={"note": NASTY})
    cluster.recurring = (
        a_schedule("s"),
        a_schedule(NASTY, message=nasty, trouble=NASTY, zone=NASTY, cron=NASTY),
    )
    cluster.clients = (
        a_client(
            NASTY, group=NASTY, version=NASTY, kind=NASTY, addresses=(NASTY,), topics=(NASTY,),
            language=NASTY, user=NASTY, protocol=NASTY,
        ),
    )  # fmt: skip
    cluster.people = (User("ada", False, True, 2, (NASTY,)), User(NASTY, True, False, 1, ()))
    cluster.audit = AuditLines(
        (
            an_audit_line(
                caller=NASTY, method=NASTY, event=NASTY, result=NASTY, node=NASTY, text=NASTY,
                time=NASTY, content={"from": NASTY, "why": NASTY, "request": {NASTY: NASTY}},
            ),
            an_audit_line(result=NASTY),
        ),
        {NASTY: NASTY},
        NASTY,
        {NASTY: NASTY},
        (NASTY,),
        {NASTY: 1},
    )  # fmt: skip
    cluster.policies = (Policy(user="ada", resource=NASTY, actions=NASTY, sources=(NASTY,)),)
    return cluster


PAGES = [
    "/groups",
    f"/groups?q={NASTY}",
    "/groups/g",
    f"/groups/{NASTY}",
    f"/groups/g/reset?topic={NASTY}&to={NASTY}&queue={NASTY}",
    "/groups/g/reset?topic=orders&to=first",
    f"/groups/g/dead-letters?topic=&key=&reason={NASTY}",
    "/groups/g/dead-letters",
    "/topics",
    "/topics/orders",
    f"/topics/{NASTY}",
    f"/messages?topic=orders&by=key&value={NASTY}",
    f"/messages?topic={NASTY}&by=time&value={NASTY}",
    "/message?topic=orders&broker=broker-a&queue=0&offset=0",
    f"/message?topic=orders&broker=broker-a&queue=0&offset=0&as=bytes&{NASTY}",
    "/cluster",
    f"/scheduled?topic={NASTY}",
    "/transactions",
    "/topics/orders/tail",
    f"/topics/orders/tail?tags={NASTY}&sql={NASTY}",
    "/new-topic",
    "/topics/orders/change",
    "/topics/orders/send",
    "/new-group",
    "/groups/g/change",
    "/scheduled/recurring",
    f"/scheduled/recurring?q={NASTY}",
    f"/scheduled/recurring/one?name={NASTY}",
    f"/scheduled/recurring/change?name={NASTY}",
    f"/scheduled/recurring/new?topic={NASTY}",
    "/clients",
    f"/clients?q={NASTY}",
    f"/clients?q=&after={NASTY}&group={NASTY}",
    "/topics/orders/delete",
    f"/topics/{NASTY}/delete",
    "/groups/g/delete",
    "/offset-audit",
    "/audit-log",
    f"/audit-log?caller={NASTY}&method={NASTY}&about={NASTY}",
    f"/audit-log?since={NASTY}&until={NASTY}",
    f"/audit-log?older={NASTY}",
    "/users",
    f"/users?user={NASTY}&resource={NASTY}&actions={NASTY}&source={NASTY}",
    "/users/ada",
    f"/users/ada/policy?resource={NASTY}",
    "/new-user",
    f"/sign-in?next={NASTY}",
    f"/{NASTY}",
]


class Tags(HTMLParser):
    """What a browser would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "script" and str(names.get("src")).startswith("/static/"):
            return
        runs = [name for name in names if name.startswith(("on", "hx-on"))]
        address = str(names.get("href") or names.get("action") or "")
        if tag in ("script", "img", "style", "iframe") or runs or "style" in names:
            self.found.append(tag)
        if address and not address.startswith(("/", "?", "#")):
            self.found.append(address)


@pytest.mark.parametrize("path", PAGES)
async def test_no_text_of_others_is_run(full: Cluster, browse: Open, path: str) -> None:
    browser: Browser = await browse(allow_changes=True)
    answer = await browser.get(path)
    tags = Tags()
    tags.feed(answer.text)
    assert tags.found == []
    assert "\u202e" not in tags.text, "no text of others turns the line round"
    assert answer.status_code in (200, 400, 404)


@pytest.mark.parametrize("path", ["/groups", "/nowhere", "/static/console.css", "/groups/none"])
async def test_every_answer_says_what_a_page_may_do(full: Cluster, browse: Open, path: str) -> None:
    answer = await (await browse()).get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] in ("no-store", "no-cache")


async def test_a_page_that_makes_another_name_point_here_gets_nothing(
    full: Cluster, browse: Open
) -> None:
    browser = await browse(names=("console.example",))
    for host, status in (
        ("evil.example", 421),
        ("console.example", 200),
        ("localhost:8088", 200),
        ("[::1]:8088", 200),
        ("", 421),
    ):
        assert (await browser.get("/groups", headers={"Host": host})).status_code == status


def test_no_form_and_no_page_is_left_out_here() -> None:
    """A route that is new is attacked, too."""
    console = Console(ConsoleSettings(), Cluster().client, cluster="aerobee")
    routes = [each for each in console.routes if isinstance(each, Route) and each.path != "/"]
    posts = [each for each in routes if "POST" in (each.methods or ())]
    written = {path.partition("?")[0] for path, _ in WRITES}
    assert [
        each.path
        for each in posts
        if each.path not in NO_CHANGE and not any(map(each.path_regex.match, written))
    ] == []
    seen = {path.partition("?")[0] for path in PAGES}
    unseen = [
        each.path
        for each in routes
        if each not in posts and not any(map(each.path_regex.match, seen))
    ]
    assert unseen == ["/open", "/topics/{name}/tail/events"]


@pytest.mark.parametrize(("path", "fields"), WRITES)
async def test_a_form_of_another_site_changes_nothing(
    full: Cluster, browse: Open, path: str, fields: dict[str, Any]
) -> None:
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/groups/g/reset?topic=orders&to=first")
    assert set(tokens) == {"form_token", "once"}
    foreign = {"Origin": "https://evil.example"}
    assert (await browser.post(path, {**fields, **tokens}, **foreign)).status_code == 403
    assert (await browser.post(path, {**fields, **tokens}, Origin="null")).status_code == 403
    assert (await browser.post(path, fields)).status_code == 403
    assert (await browser.post(path, {**fields, "form_token": "0" * 64})).status_code == 403
    # The token of another visitor is worth nothing with this cookie.
    other = await browse(allow_changes=True)
    theirs = await other.tokens("/groups/g/reset?topic=orders&to=first")
    assert (await browser.post(path, {**fields, **theirs})).status_code == 403
    assert full.changes == []


@pytest.mark.parametrize(("path", "fields"), WRITES)
async def test_who_only_looks_changes_nothing(
    full: Cluster, browse: Open, path: str, fields: dict[str, Any]
) -> None:
    browser = await browse()
    await browser.get("/groups")
    answer = await browser.post(path, fields)
    assert answer.status_code == 403
    assert "only shows" in answer.text
    assert full.changes == []


@pytest.mark.parametrize(("path", "fields"), WRITES)
async def test_our_own_form_does_it_once(
    full: Cluster, browse: Open, path: str, fields: dict[str, Any]
) -> None:
    browser = await browse(allow_changes=True)
    tokens = await looked_at(browser, path, fields)
    assert (await browser.post(path, {**fields, **tokens})).status_code == 200
    assert len(full.changes) == 1
    again = await browser.post(path, {**fields, **tokens})
    assert again.status_code == 403
    assert "sent before" in again.text
    assert len(full.changes) == 1


@pytest.mark.parametrize(
    ("path", "fields"),
    [each for each in WRITES if "confirm" in each[1]],
)
async def test_what_is_destructive_is_confirmed_by_its_name(
    full: Cluster, browse: Open, path: str, fields: dict[str, Any]
) -> None:
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/groups/g/reset?topic=orders&to=first")
    answer = await browser.post(path, {**fields, **tokens, "confirm": "yes"})
    assert answer.status_code == 400
    assert full.changes == []


@pytest.mark.parametrize(("path", "fields"), WRITES)
async def test_a_user_without_the_right_is_told_which_one(
    full: Cluster, browse: Open, path: str, fields: dict[str, Any]
) -> None:
    full.users = USERS
    denied = errors.AccessDenied("user ada may not: this needs Update on Group:g")
    calls = (
        *(
            "reset",
            "resend",
            "drop",
            "recall",
            "deliver_now",
            "move",
            "commit",
            "rollback",
            "check",
        ),
        *("pause", "resume", "run_now", "remove", "add", "change", "create", "update"),
        *("configure", "send", "enable", "rotate", "forget_former_secret", "delete", "put"),
    )
    full.refused = dict.fromkeys(calls, denied)
    browser = await browse()
    await sign_in(browser)
    tokens = await looked_at(browser, path, fields)
    answer = await browser.post(path, {**fields, **tokens})
    assert answer.status_code == 403
    assert "this needs Update on Group:g" in answer.text
    assert full.changes == []


async def looked_at(browser: Browser, path: str, fields: dict[str, Any]) -> dict[str, str]:
    """The hidden fields of a form; of one that shows what it would do, after that was seen."""
    tokens = await browser.tokens("/groups/g/reset?topic=orders&to=first")
    if fields.get("act") == "do":
        shown = await browser.post(path, {**fields, **tokens, "act": "look"})
        assert shown.status_code == 200, shown.text
        found = re.search(r'name="seen" value="(\w+)"', shown.text)
        assert found is not None, shown.text
        tokens["seen"] = found[1]
    return tokens


async def sign_in(browser: Browser, secret: str = "s3cret", **fields: str) -> Any:
    tokens = await browser.tokens("/sign-in")
    return await browser.post(
        "/sign-in", {"access_key": "ada", "secret_key": secret, **tokens, **fields}
    )


async def test_a_user_signs_in_and_out(full: Cluster, browse: Open) -> None:
    full.users = USERS
    browser = await browse()
    asked = await browser.get("/groups?q=x")
    assert (asked.status_code, asked.headers["Location"]) == (
        303,
        "/sign-in?next=%2Fgroups%3Fq%3Dx",
    )
    before = browser.http.cookies.get("aerobee-console")
    answer = await sign_in(browser, next="/groups?q=x")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/groups?q=x")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert browser.http.cookies.get("aerobee-console") != before, "no session is fixed beforehand"
    page = await browser.get("/groups")
    assert page.status_code == 200
    assert "ada" in page.text
    tokens = await browser.tokens("/groups")
    assert (await browser.post("/sign-out", tokens)).status_code == 303
    assert (await browser.get("/groups")).status_code == 303
    await until(lambda: full.opened == 1, "the user's client to be closed")


async def test_the_cookie_is_for_https_alone_where_there_is_https(
    full: Cluster, browse: Open
) -> None:
    answer = await (await browse(behind_tls=True)).get("/sign-in")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-aerobee-console=")
    assert "Secure" in cookie
    assert "Strict-Transport-Security" in answer.headers


async def test_a_wrong_secret_is_refused_and_soon_no_longer_tried(
    full: Cluster, browse: Open
) -> None:
    full.users = USERS
    browser = await browse()
    for _ in range(5):
        assert (await sign_in(browser, "guess")).status_code == 401
    limited = await sign_in(browser)
    assert limited.status_code == 429, "not even the right one"
    browser.clock.advance_ms(5_000)
    assert (await sign_in(browser)).status_code == 303


async def test_a_forged_or_old_session_is_none(full: Cluster, browse: Open) -> None:
    full.users = USERS
    browser = await browse()
    browser.http.cookies.set("aerobee-console", "forged")
    assert (await browser.get("/groups")).status_code == 303
    browser.http.cookies.clear()
    await sign_in(browser)
    assert (await browser.get("/groups")).status_code == 200
    browser.clock.advance_ms(30 * 60 * 1_000)
    assert (await browser.get("/groups")).status_code == 303


async def test_a_deleted_user_is_asked_to_sign_in(full: Cluster, browse: Open) -> None:
    full.users = dict(USERS)
    browser = await browse()
    await sign_in(browser)
    full.users = {"other": "x"}
    assert (await browser.get("/groups")).status_code == 303


async def test_nobody_signs_in_where_there_is_no_access_control(
    full: Cluster, browse: Open
) -> None:
    """Who could would be allowed to change things."""
    browser = await browse()
    assert (await sign_in(browser)).status_code == 400
    assert "read-only" in (await browser.get("/groups")).text


@pytest.mark.parametrize(
    "destination",
    ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb"],
)
async def test_signing_in_leads_nowhere_else(full: Cluster, browse: Open, destination: str) -> None:
    full.users = USERS
    answer = await sign_in(await browse(), next=destination)
    assert answer.headers["Location"] == "/groups"


async def test_a_form_without_end_is_refused(full: Cluster, browse: Open) -> None:
    browser = await browse(allow_changes=True)
    await browser.get("/groups")
    answer = await browser.post("/transactions", {"act": "x" * 600_000})
    assert answer.status_code == 400
    assert ORIGIN.startswith("http://")


async def test_who_may_look_but_not_receive_sees_no_body(full: Cluster, browse: Open) -> None:
    full.users = USERS
    full.messages = [message(body=b"salaries", UNIQ_KEY="ID-7")]
    full.refused = {"from_queue": errors.AccessDenied("this needs Sub on Topic:orders")}
    browser = await browse()
    await sign_in(browser)
    path = "/message?topic=orders&broker=broker-a&queue=0&offset=0"
    assert (await browser.get(path)).status_code == 403
    page = (await browser.get(f"{path}&id=ID-7")).text
    assert "salaries" not in page
    assert "this needs Sub on Topic:orders" in page
    found = (await browser.get("/messages?topic=orders&by=id&value=ID-7")).text
    assert "ID-7" in found
    assert "salaries" not in found


async def test_a_console_that_hides_bodies_shows_none(full: Cluster, browse: Open) -> None:
    full.messages = [message(body=b"salaries")]
    browser = await browse(show_bodies=False)
    for path in (
        "/message?topic=orders&broker=broker-a&queue=0&offset=0",
        "/messages?topic=orders&by=key&value=k",
    ):
        page = await browser.get(path)
        assert page.status_code == 200
        assert "salaries" not in page.text
