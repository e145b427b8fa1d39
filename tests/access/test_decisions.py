"""ACL 2.0: the most specific policy that matches decides, and among equals Deny wins."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.access.policies import Decision, Policy
from aerobee.access.records import decode_policy, encode_policy
from aerobee.access.resources import ALL_ACTIONS, SEEING, Action, Kind, Need, Pattern, topic_need
from aerobee.access.rules import UserRules
from aerobee.runtime.errors import InvalidArgument

NAMES = st.text("ab*", min_size=1, max_size=3)
ADDRESSES = ("10.0.0.1", "10.0.1.1", "::1", "nonsense")
NETWORKS = ("10.0.0.0/24", "10.0.0.0/8", "10.0.1.1", "::1")


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    kind = draw(st.sampled_from(list(Kind)))
    name = draw(st.text("ab", max_size=3))
    text = "*" if kind is Kind.ANY else draw(st.sampled_from((name + "*", name or "a")))
    return Policy(
        "someone",
        Pattern(kind, text),
        Action(draw(st.integers(1, 127))),
        draw(st.sampled_from(list(Decision))),
        tuple(
            ipaddress.ip_network(one)
            for one in draw(st.lists(st.sampled_from(NETWORKS), max_size=2))
        ),
        draw(st.booleans()),
    )


def model(rules: Sequence[Policy], need: Need, source: str) -> bool:
    """As the documents of ACL 2.0 say it, one sentence after the other."""

    def comes_from(policy: Policy) -> bool:
        if not policy.sources:
            return True
        if source == "nonsense":
            return policy.decision is Decision.DENY
        return any(ipaddress.ip_address(source) in network for network in policy.sources)

    def rank(policy: Policy) -> tuple[bool, int, bool]:
        text = policy.pattern.text
        length = len(text) if text.endswith("*") else 1_000
        return (policy.pattern.kind is not Kind.ANY, length, policy.decision is Decision.DENY)

    for action in Action:
        if action not in need.actions:
            continue
        matching = [
            policy
            for policy in rules
            if policy.pattern.kind in (Kind.ANY, need.kind)
            and (
                need.name == policy.pattern.text
                or (
                    policy.pattern.text[-1] == "*"
                    and need.name.startswith(policy.pattern.text[:-1])
                )
            )
            and policy.actions & action
            and comes_from(policy)
        ]
        customs = [policy for policy in matching if not policy.is_default]
        counting = customs or matching
        if counting and max(counting, key=rank).decision is Decision.ALLOW:
            return True
    return False


@given(
    st.lists(policies(), max_size=8),
    st.sampled_from((Kind.TOPIC, Kind.GROUP, Kind.CLUSTER)),
    NAMES,
    st.integers(1, 127),
    st.sampled_from(ADDRESSES),
)
def test_the_decision_is_that_of_the_model(
    rules: list[Policy], kind: Kind, name: str, actions: int, source: str
) -> None:
    need = Need(kind, name, Action(actions))
    ruling = UserRules(rules).decide(need, source)
    assert ruling.is_allowed is model(rules, need, source)
    if ruling.rule is None:
        assert not ruling.is_allowed
        assert ruling.why
    else:
        assert ruling.rule in rules
        assert ruling.rule.decision is (Decision.ALLOW if ruling.is_allowed else Decision.DENY)


TOPIC_NAMES = ["".join(letters) for size in range(1, 6) for letters in product("ab", repeat=size)]


@given(st.lists(policies(), max_size=6), st.sampled_from(ADDRESSES))
def test_what_shows_all_topics_needs_that_none_is_hidden(rules: list[Policy], source: str) -> None:
    """No topic of any name is denied."""
    user = UserRules([*rules, Policy.parse("someone", "Cluster:hive", "Get", "Allow")])
    need = Need(Kind.CLUSTER, "hive", Action.GET)
    hides = any(
        user.decide(Need(Kind.TOPIC, name, SEEING), source).is_denied for name in TOPIC_NAMES
    )
    is_allowed = user.decide(need, source).is_allowed
    found = user.decide(need._replace(shows_all_topics=True), source)
    assert found.is_allowed is (is_allowed and not hides)
    assert found.is_denied is not found.is_allowed


@given(policies())
def test_a_policy_is_read_as_it_was_written(policy: Policy) -> None:
    assert decode_policy(encode_policy(policy)) == policy


def allows(*rules: Policy, need: Need, source: str = "10.0.0.1") -> bool:
    return UserRules(rules).decide(need, source).is_allowed


def test_rules_that_people_write() -> None:
    orders = Policy.parse("u", "Topic:orders*", "Pub,Sub", "Allow")
    secret = Policy.parse("u", "Topic:orders-secret", "All", "Deny")
    office = Policy.parse("u", "*", "All", "Deny", sources=("192.168.0.0/16",))
    send = Need(Kind.TOPIC, "orders-1", Action.PUB)
    assert allows(orders, secret, office, need=send)
    assert not allows(orders, need=send._replace(name="other"))
    assert not allows(orders, need=send._replace(kind=Kind.GROUP))
    assert not allows(orders, need=send._replace(actions=Action.DELETE))
    assert not allows(orders, secret, need=send._replace(name="orders-secret"))
    assert not allows(office, need=send, source="192.168.3.4")
    ruling = UserRules([orders, secret]).decide(send._replace(name="orders-secret"), "10.0.0.1")
    assert str(ruling) == (
        "Pub on Topic:orders-secret is denied: Deny All on Topic:orders-secret to u"
    )


def test_a_groups_own_topics_are_the_groups() -> None:
    assert topic_need("%RETRY%billing", Action.SUB) == Need(Kind.GROUP, "billing", Action.SUB)
    assert topic_need("%DLQ%billing", Action.SUB) == Need(Kind.GROUP, "billing", Action.SUB)
    assert topic_need("billing", ALL_ACTIONS) == Need(Kind.TOPIC, "billing", ALL_ACTIONS)


@pytest.mark.parametrize(
    "words",
    [
        ("Topic", "Pub", "Allow", ()),
        ("Topic:", "Pub", "Allow", ()),
        ("Topic:a*b", "Pub", "Allow", ()),
        ("Queue:a", "Pub", "Allow", ()),
        ("Topic:a", "Write", "Allow", ()),
        ("Topic:a", "", "Allow", ()),
        ("Topic:a", "Pub", "Perhaps", ()),
        ("Topic:a", "Pub", "Allow", ("10.0.0.300",)),
        ("Topic:a", "Pub", "Allow", ("10.0.0.1",) * 65),
    ],
)
def test_words_that_make_no_rule_are_refused(words: tuple[str, str, str, tuple[str, ...]]) -> None:
    resource, actions, decision, sources = words
    with pytest.raises(InvalidArgument):
        Policy.parse("u", resource, actions, decision, sources=sources)
