"""Who polls is listed for a minute, and however many poll, little is kept."""

from __future__ import annotations

import pytest

from aerobee.broker.groups import receivers
from aerobee.broker.groups.receivers import SILENCE_S, Receiver, Receivers
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.wish import Wish


def poll(
    known: Receivers, group: str, client_id: str, now_s: float, topic: str = "t", wish: Wish = None
) -> None:
    known.heard(Receiver(group, client_id, "10.0.0.1:1", ""), topic, wish, now_s)


def ids(known: Receivers, group: str, now_s: float) -> list[str]:
    return [each.client_id for each in known.members(group, now_s)]


def test_a_member_is_one_with_all_its_topics() -> None:
    known = Receivers()
    poll(known, "g", "b", 0.0, "t", ("a", "b"))
    poll(known, "g", "a", 1.0)
    poll(known, "g", "b", 2.0, "u", SqlExpression("price > 5"))
    poll(known, "g", "b", 3.0, "t")
    first, second = known.members("g", 3.0)
    assert (first.client_id, second.client_id) == ("a", "b")
    assert second.subscriptions == {"t": None, "u": "price > 5"}
    assert second.heard_s == 3.0


def test_who_has_not_polled_for_a_minute_is_forgotten() -> None:
    known = Receivers()
    poll(known, "g", "a", 0.0)
    poll(known, "h", "a", 1.0)
    poll(known, "g", "b", 2.0)
    poll(known, "g", "a", 3.0)
    assert ids(known, "g", 2.0 + SILENCE_S) == ["a"]
    assert known.groups(2.0 + SILENCE_S) == ["g"]
    assert list(known.all(3.0 + SILENCE_S)) == []


def test_clients_that_take_another_name_for_each_call_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receivers, "RECEIVERS_MAX", 3)
    known = Receivers()
    for number in range(10):
        poll(known, "g", str(number), float(number))
    assert ids(known, "g", 10.0) == ["7", "8", "9"]
    poll(known, "g", "9", 10.0, "x" * 5_000)
    assert known.members("g", 10.0)[-1].subscriptions == {"t": None}
