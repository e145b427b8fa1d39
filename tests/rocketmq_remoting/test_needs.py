"""Every request of remoting has a stated need, whatever it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.access.needs import Who
from aerobee.access.resources import Action, Kind, Need
from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.guarding import guarded
from aerobee.rocketmq_remoting.needs import AUTH, remoting_needs
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from tests.support.known_users import KnownUsers

NEEDS = remoting_needs("hive")
OURS = {
    Ask.CHECK_TRANSACTION_STATE,
    Ask.NOTIFY_CONSUMER_IDS_CHANGED,
    Ask.RESET_CONSUMER_CLIENT_OFFSET,
    Ask.GET_CONSUMER_STATUS_FROM_CLIENT,
    Ask.PUSH_REPLY_MESSAGE_TO_CLIENT,
}
"""What brokers ask clients."""


OF_SUPER_USERS = set(AUTH)


def needs_of(code: Ask, **fields: str) -> set[Need]:
    return set(NEEDS[code].of(Command(code, fields), ""))


def test_each_request_has_a_need() -> None:
    assert NEEDS.keys() == set(Ask) - OURS
    assert {each.who for code, each in NEEDS.items() if code not in OF_SUPER_USERS} == {Who.USERS}
    assert {NEEDS[code].who for code in OF_SUPER_USERS} == {Who.SUPER_USERS}
    assert {int(code) for code in OF_SUPER_USERS} == {*range(3001, 3011)}


def test_an_empty_request_never_passes_as_one_without_needs() -> None:
    free = set()
    for code in NEEDS.keys() - OF_SUPER_USERS:
        try:
            if not needs_of(Ask(code)):
                free.add(Ask(code))
        except AerobeeError:
            pass  # a name is missing, which is answered so
    assert free == {
        Ask.UNREGISTER_CLIENT,  # only of its own connection
        Ask.END_TRANSACTION,  # judged once the message is found
        Ask.VIEW_MESSAGE_BY_ID,  # likewise
    }


def test_a_send_needs_the_topic_that_it_is_stored_in() -> None:
    named = {"a": "PG", "b": "t", "topic": "other"}
    sent = Need(Kind.TOPIC, "t", Action.PUB)
    given_up = Need(Kind.GROUP, "g", Action.SUB)
    assert needs_of(Ask.SEND_MESSAGE_V2, b="t") == {sent}
    assert needs_of(Ask.SEND_MESSAGE, topic="t", b="other") == {sent}
    assert needs_of(Ask.SEND_MESSAGE_V2, **named) == {Need(Kind.TOPIC, "other", Action.PUB)}
    assert needs_of(Ask.SEND_BATCH_MESSAGE, b="%RETRY%g") == {given_up}


def test_the_name_by_which_topics_are_created_is_no_topic() -> None:
    assert needs_of(Ask.GET_ROUTEINFO_BY_TOPIC, topic="TBW102") == set()
    assert len(needs_of(Ask.GET_ROUTEINFO_BY_TOPIC, topic="t")) == 1


async def test_a_node_that_serves_a_request_without_a_need_does_not_start(tmp_path: Path) -> None:
    access = KnownUsers(tmp_path).node()
    with pytest.raises(InvalidArgument, match="no entry"):
        guarded({Ask.PULL_MESSAGE: lambda connection, request: None}, {}, access)
