"""What pages say: numbers, order, what is unknown, and how often they ask."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from aerobee import MessageQueue, QueueBounds
from aerobee.client_core.admin_access import User
from aerobee.client_core.admin_topics import Topic
from aerobee.client_core.audit_logs import AuditLines
from aerobee.runtime import errors
from tests.console.conftest import Open
from tests.console.fake_admin import (
    Cluster,
    a_client,
    a_group,
    a_schedule,
    an_audit_line,
    letter,
    message,
    summary,
)

QUEUE = MessageQueue("orders", "broker-a", 0)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_groups_with_the_most_unread_come_first(cluster: Cluster, browse: Open) -> None:
    cluster.summaries = (summary("a", 1), summary("b", None, unread_min=0), summary("c", 1_234))
    page = (await (await browse()).get("/groups")).text
    assert re.findall(r'href="/groups/(\w+)"', page) == ["b", "c", "a"]
    assert "1,234" in page
    assert "unknown" in page


async def test_ten_thousand_groups_are_one_question_and_one_page(
    cluster: Cluster, browse: Open
) -> None:
    cluster.summaries = tuple(summary(f"group-{number:05}", number) for number in range(10_000))
    page = await (await browse()).get("/groups")
    assert cluster.asked == ["summaries"]
    assert page.text.count("<tr>") == 51
    assert len(page.content) < 64_000
    assert "1 to 50 of 10,000 groups" in text_of(page.text)


async def test_without_groups_a_page_says_how_to_begin(cluster: Cluster, browse: Open) -> None:
    assert "aerobee consume TOPIC --group NAME" in (await (await browse()).get("/groups")).text


async def test_a_broker_that_is_away_makes_numbers_unknown_and_is_named(
    cluster: Cluster, browse: Open
) -> None:
    cluster.unanswered = ("broker-b",)
    cluster.summaries = (summary("a", None, unread_min=7, in_flight=None, oldest_age_ms=None),)
    browser = await browse()
    said = text_of((await browser.get("/groups")).text)
    assert "broker-b did not answer: what is there is unknown" in said
    assert "at least 7" in said
    cluster.summaries = ()
    said = text_of((await browser.get("/groups")).text)
    assert "No groups yet" not in said
    cluster.topics = {"orders": Topic("orders", {"broker-b": 2}, "rw", False, {})}
    said = text_of((await browser.get("/topics")).text)
    assert "broker-b did not answer" in said
    assert "orders 2 normal send, read unknown" in said
    for path in ("/scheduled", "/transactions", "/groups/g/dead-letters"):
        said = text_of((await browser.get(path)).text)
        assert "broker-b did not answer" in said, path
        assert "No message waits" not in said
        assert "no matching" not in said


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.Unreachable("no nameserver answers"), 503),
        (errors.NoBrokerAvailable("no broker answers"), 503),
        (errors.AccessDenied("this needs Get on Group:*"), 403),
        (errors.StoreFailed("the disk is broken"), 502),
    ],
)
async def test_a_failure_is_a_page_in_the_words_of_the_cluster(
    cluster: Cluster, browse: Open, error: errors.AerobeeError, status: int
) -> None:
    cluster.refused = {"summaries": error}
    answer = await (await browse()).get("/groups")
    assert answer.status_code == status
    assert str(error) in answer.text
    assert ('http-equiv="refresh"' in answer.text) == (status == 503)


async def test_a_bug_is_a_page_too_and_shows_nothing_of_the_inside(
    cluster: Cluster, browse: Open
) -> None:
    cluster.groups = {"g": None}  # type: ignore[dict-item]
    answer = await (await browse()).get("/groups/g")
    assert answer.status_code == 500
    assert "its log has the reason" in answer.text
    assert "AttributeError" not in answer.text


async def test_a_group_says_why_it_stands_still(cluster: Cluster, browse: Open) -> None:
    cluster.groups = {"g": a_group("g")}
    cluster.summaries = (summary("g", 3, oldest_age_ms=61_000, dead_letters=2),)
    said = text_of((await (await browse()).get("/groups/g")).text)
    assert "no member is connected, and 3 messages wait : start a consumer" in said
    assert "2 messages failed too often and are dead letters" in said
    assert "Oldest unread 1 min 1 s" in said
    assert sorted(cluster.asked) == ["describe", "summaries"]


async def test_who_may_see_one_group_can_open_it(cluster: Cluster, browse: Open) -> None:
    browser = await browse()
    answer = await browser.get("/open?group=%25g|1")
    assert answer.headers["Location"] == "/groups/%25g%7C1"
    assert (await browser.get("/open?group=//evil")).status_code == 400


async def test_a_reset_shows_what_comes_again_before_it_is_done(
    cluster: Cluster, browse: Open
) -> None:
    cluster.groups = {"g": a_group("g")}
    cluster.topics = {"orders": Topic("orders", {"broker-a": 1}, "rw", False, {})}
    cluster.bounds = {QUEUE: QueueBounds(10, 90, 1)}
    cluster.committed = {QUEUE: 60}
    cluster.messages = [message(offset=20), message(offset=59)]
    browser = await browse(allow_changes=True)
    path = "/groups/g/reset?topic=orders&to=offset+20"
    page = (await browser.get(path)).text
    said = text_of(page)
    assert "Come again 40 Are skipped 0 Unread afterwards 70 Queues changed 1 of 1" in said
    assert cluster.changes == []
    place = re.search(r'name="place" value="([^"]+)"', page)
    assert place is not None
    fields = {"topic": "orders", "confirm": "g", "place": place[1]}
    done = await browser.post("/groups/g/reset", {**fields, **await browser.tokens(path)})
    assert cluster.changes == [("reset", {QUEUE: 20})]
    assert "broker-a 0 60 20" in text_of(done.text)


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        ("to=yesterday", "is not a point in time"),
        ("to=offset+x", "names no offset"),
        ("to=first&queue=broker-a:9", "has no queue"),
        ("to=first&topic=nowhere", "there is no topic"),
    ],
)
async def test_a_reset_that_cannot_be_says_why(
    cluster: Cluster, browse: Open, wish: str, problem: str
) -> None:
    cluster.groups = {"g": a_group("g")}
    cluster.topics = {"orders": Topic("orders", {"broker-a": 1}, "rw", False, {})}
    cluster.bounds = {QUEUE: QueueBounds(0, 9, 1)}
    topic = "" if "topic=" in wish else "topic=orders&"
    page = (await (await browse()).get(f"/groups/g/reset?{topic}{wish}")).text
    assert problem in text_of(page)
    assert "Set these offsets" not in page


async def test_a_group_that_does_not_exist_is_not_made(cluster: Cluster, browse: Open) -> None:
    browser = await browse(allow_changes=True)
    for path in ("/groups/typo", "/groups/typo/reset", "/groups/typo/dead-letters"):
        assert (await browser.get(path)).status_code == 404
    tokens = await browser.tokens("/scheduled")
    tokens = tokens or {"form_token": (await browser.tokens("/sign-in"))["form_token"]}
    fields = {"topic": "orders", "confirm": "typo", "place": "0 1 broker-a", "once": "1"}
    answer = await browser.post("/groups/typo/reset", {**fields, **tokens})
    assert answer.status_code == 404
    assert cluster.changes == []


async def test_chosen_dead_letters_are_resent_to_their_group_with_a_result_for_each(
    cluster: Cluster, browse: Open
) -> None:
    cluster.letters = [letter(number) for number in range(60)]
    browser = await browse(allow_changes=True)
    page = (await browser.get("/groups/g/dead-letters")).text
    assert page.count('name="letter"') == 50
    assert 'rel="next"' in page
    assert (await browser.get("/groups/g/dead-letters?page=2")).text.count('name="letter"') == 10
    fields = {"act": "resend", "to": "group", "letter": ["3 broker-a", "7 broker-a", "99 broker-a"]}
    tokens = await browser.tokens("/groups/g/dead-letters")
    done = await browser.post("/groups/g/dead-letters", {**fields, **tokens})
    ((act, sent),) = cluster.changes
    assert (act, [each.message.queue_offset for each in sent[:-1]]) == ("resend", [3, 7])
    assert sent[-1] is False, "to the group alone"
    assert "1 letter had been settled meanwhile" in text_of(done.text)


async def test_a_message_says_where_it_is_for_each_group(cluster: Cluster, browse: Open) -> None:
    cluster.messages = [message(body=b'{"order": 7}', offset=4, KEYS="order-7")]
    cluster.summaries = (summary("billing", 1), summary("mail", 1, members=2))
    cluster.committed = {QUEUE: 5}
    browser = await browse()
    found = (await browser.get("/messages?topic=orders&by=key&value=order-7")).text
    link = re.search(r'class="id" href="([^"]+)"', found)
    assert link is not None
    said = text_of((await browser.get(link[1].replace("&amp;", "&"))).text)
    assert "billing finished finished: the group is at offset 5" in said
    assert "&#34;order&#34;: 7" in said
    cluster.committed = {QUEUE: 2}
    said = text_of((await browser.get(link[1].replace("&amp;", "&"))).text)
    assert "billing waiting not finished: 2 messages of this queue before it; no member" in said
    cluster.messages.append(message("%DLQ%billing", offset=0))
    said = text_of((await browser.get(link[1].replace("&amp;", "&"))).text)
    assert "billing dead letter failed too often" in said
    assert cluster.changes == []
    assert not {"reset", "commit"} & set(cluster.asked), "looking changes nothing"


async def test_the_cluster_shows_replicas_that_are_away_or_do_not_answer(
    cluster: Cluster, browse: Open
) -> None:
    said = text_of((await (await browse()).get("/cluster")).text)
    assert "broker-a/0 master no answer" in said
    assert "broker-a/1 away" in said
    assert "unknown" in said
    assert "not registered" in said


async def test_every_page_reads_without_scripts(cluster: Cluster, browse: Open) -> None:
    """Links and forms do all of it."""
    page = (await (await browse()).get("/groups")).text
    assert page.count("<script") == 2
    assert "hx-post" not in page


async def test_clients_are_one_question_and_a_page_follows_the_last_row(
    cluster: Cluster, browse: Open
) -> None:
    cluster.clients = tuple(a_client(f"client-{number:05}") for number in range(10_000))
    browser = await browse()
    page = (await browser.get("/clients")).text
    assert cluster.asked == ["list"]
    assert page.count("<tr>") == 51
    following = re.search(r'rel="next" href="(\?[^"]+)"', page)
    assert following is not None
    page = (await browser.get(f"/clients{unescape(following[1])}")).text
    assert ">client-00050" in page
    assert ">client-00049" not in page


async def test_a_client_says_where_it_is_and_what_it_holds(cluster: Cluster, browse: Open) -> None:
    silent = a_client(
        "silent", protocol="remoting", version="", addresses=(), last_heard_age_ms=40_000
    )
    cluster.clients = (a_client("c"), silent)
    said = text_of((await (await browse()).get("/clients")).text)
    assert "c g consumer Aerobee PYTHON 0.2.0 10.0.0.7:4711 orders 2 900 ms ago" in said
    assert "PYTHON unknown unknown orders no leases 40 s ago" in said


async def test_the_audit_log_says_who_did_what_and_which_nodes_are_missing(
    cluster: Cluster, browse: Open
) -> None:
    refused = an_audit_line(
        event="refusal", result="access_denied", caller="user eve", content={"why": "no policy"}
    )
    cluster.audit = AuditLines(
        (an_audit_line(), refused),
        {"10.0.3.2:8081": "1:77@n", "10.0.3.3:9091": "1:5@b"},
        "2026-11-26T22:40:00.000Z",
        {"broker-b/1": "no connection"},
        ("broker-a/0",),
        {"nameserver 10.0.3.2:8081": 1},
    )
    browser = await browse()
    page = await browser.get("/audit-log?caller=user&since=2026-11-26T00:00Z&refused=1")
    text = text_of(page.text)
    for said in (
        "user ada 10.0.0.7:1 CreateTopic Create on Topic:orders",
        "refused user eve",
        "no policy",
        "broker-b/1 : no connection",
        "No audit log is kept by broker-a/0",
        "nameserver 10.0.3.2:8081 were changed or damaged",
        "read back to 2026-11-26 22:40:00.000 UTC",
    ):
        assert said in text
    assert cluster.asked == ["last"]
    (first,) = cluster.wanted
    assert (first["caller"], first["only_refusals"], first["older"]) == ("user", True, None)
    assert first["begin_ms"] == 1_795_651_200_000
    match = re.search(r'rel="next" href="([^"]+)"', page.text)
    assert match is not None
    await browser.get(unescape(match[1]))
    assert cluster.wanted[1] == {**first, "older": cluster.audit.older}
    assert "hx-get" not in page.text, "it does not refresh itself"


async def test_an_audit_log_without_lines_says_how_far_was_looked(
    cluster: Cluster, browse: Open
) -> None:
    browser = await browse()
    assert "in the files that the nodes keep" in (await browser.get("/audit-log")).text
    cluster.audit = AuditLines((), {"a:1": "1:2@n"}, "2026-11-26T22:40:00.000Z", {}, (), {})
    page = text_of((await browser.get("/audit-log?caller=x")).text)
    assert "No line that fits since 2026-11-26 22:40:00.000 UTC: older ones" in page
    assert "Older lines" in page


async def test_schedules_say_when_they_run_and_what_holds_them_up(
    cluster: Cluster, browse: Open
) -> None:
    cluster.recurring = (
        a_schedule("daily", every_ms=0, cron="0 8 * * *", zone="Europe/Berlin"),
        a_schedule("stuck", trouble="topic orders is gone"),
        a_schedule("rests", is_paused=True, next_ms=0),
    )
    browser = await browse()
    said = text_of((await browser.get("/scheduled/recurring")).text)
    assert "daily orders 0 8 * * * (Europe/Berlin) 2030-03-17" in said
    assert "held up" in said
    assert "paused" in said
    one = text_of((await browser.get("/scheduled/recurring/one?name=stuck")).text)
    assert "cannot be sent now: topic orders is gone" in one
    assert "tick" in one
    hidden = await browse(show_bodies=False)
    assert "tick" not in (await hidden.get("/scheduled/recurring/one?name=stuck")).text


async def test_a_change_is_shown_before_it_is_done(cluster: Cluster, browse: Open) -> None:
    topic = Topic("orders", {"broker-a": 4}, "rw", False, {"note": "old", "gone": "x"})
    cluster.topics = {"orders": topic}
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/topics/orders/change")
    fields = {**tokens, "queues": "8", "permission": "r", "attributes": "note=new\r\nmore=y"}
    shown = await browser.post("/topics/orders/change", {**fields, "act": "look"})
    said = text_of(shown.text)
    for row in (
        *("Queues 4 8", "Clients may send, read read", "Attribute note old new"),
        *("Attribute gone x -", "Attribute more - y", "producers can no longer send"),
    ):
        assert row in said, row
    assert cluster.changes == []
    seen = re.search(r'name="seen" value="(\w+)"', shown.text)
    once = re.search(r'name="once" value="([^"]+)"', shown.text)
    assert seen is not None
    assert once is not None
    confirmed = {**fields, "seen": seen[1], "once": once[1], "act": "do"}
    cluster.topics = {"orders": replace(topic, queues_by_broker={"broker-a": 6})}
    meanwhile = await browser.post("/topics/orders/change", confirmed)
    assert meanwhile.status_code == 409
    assert "changed meanwhile" in meanwhile.text
    assert cluster.changes == []
    cluster.topics = {"orders": topic}
    done = await browser.post("/topics/orders/change", {**confirmed, "once": "another"})
    assert done.status_code == 200
    wanted = {"note": "new", "more": "y", "gone": ""}
    assert cluster.changes == [
        (
            "update",
            ("orders", {"queues": 8, "permission": "r", "ordered": None, "attributes": wanted}),
        )
    ]


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("/new-topic", {"name": "a b", "permission": "rw"}, "topic name"),
        ("/new-topic", {"name": "orders", "permission": "rw"}, "is there already"),
        ("/new-topic", {"name": "n", "permission": "rw", "queues": "x"}, "write a whole number"),
        ("/topics/orders/change", {"permission": "rw", "queues": "1"}, "never fewer"),
        ("/topics/orders/change", {"permission": "rw", "queues": "4", "attributes": "x"}, "NAME="),
        ("/topics/orders/send", {"body": ""}, "the body is empty"),
        ("/new-group", {"group": "g"}, "choose at least one"),
        ("/new-group", {"group": "g", "initial": "5s"}, "growing times"),
        ("/scheduled/recurring/new", {"schedule": "s", "topic": "t"}, "either a cron expression"),
        ("/scheduled/recurring/new",
         {"schedule": "s", "topic": "t", "missed": "all", "every": "soon"}, "no length of time"),
        ("/new-user", {"user": ""}, "give the user a name"),
    ],
)  # fmt: skip
async def test_a_form_says_what_is_wrong_and_keeps_what_it_has(
    cluster: Cluster, browse: Open, path: str, fields: dict[str, str], said: str
) -> None:
    cluster.topics = {"orders": Topic("orders", {"broker-a": 4}, "rw", False, {})}
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/new-topic")
    answer = await browser.post(path, {**fields, **tokens, "act": "look"})
    assert answer.status_code == 400
    assert said in unescape(answer.text)
    for value in filter(None, fields.values()):
        assert value in answer.text
    assert cluster.changes == []


async def test_a_secret_is_shown_once_and_not_logged(
    cluster: Cluster, browse: Open, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.people = (User("grace", False, True, 1, ()),)
    browser = await browse(allow_changes=True)
    tokens = await browser.tokens("/users/grace")
    with caplog.at_level("INFO"):
        answer = await browser.post("/users/grace", {**tokens, "act": "rotate"})
    assert "the-new-secret" in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert "the-new-secret" not in caplog.text
    assert "the-new-secret" not in (await browser.get("/users/grace")).text


async def test_why_a_user_may_not_is_said(cluster: Cluster, browse: Open) -> None:
    cluster.people = (User("ada", False, True, 1, ()),)
    page = await (await browse()).get("/users?user=ada&resource=Topic:orders&actions=Pub")
    assert "Denied : no policy of ada allows Pub on Topic:orders" in text_of(page.text)


async def test_a_dead_letter_says_so_and_where_it_is_settled(
    cluster: Cluster, browse: Open
) -> None:
    dead = letter(0, UNIQ_KEY="ID-7")
    cluster.messages = [dead.message]
    query = "topic=%25DLQ%25g&broker=broker-a&queue=0&offset=0"
    page = (await (await browse()).get(f"/message?{query}")).text
    assert "A dead letter of g : resend or drop it , once" in text_of(page)
    assert 'href="/groups/g/dead-letters?key=ID-7"' in page
    assert "No group reads this topic" not in page
