"""A file that declares topics, groups, quotas and policies: what it says, and all that is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cli.declared.file import Problem, read_wish
from aerobee.cli.declared.plan import Key, Kind

WHOLE = """
topics:
  - name: orders
    queues: 8
    permission: rw
    type: FIFO
    ordered: true
    keep: 6h
    keepBytes: 1GiB
    attributes: {keep_unread_max_bytes: 1000000, owner: "", flag: yes}
  - name: 0123
groups:
  - {name: billing, retriesMax: 5, ordered: false, backOff: exponential, initial: 1s}
  - {name: plain, backOff: levels}
quotas:
  - {user: shop, limits: {send_bytes: 1000000, connections: none}}
  - {default: true, limits: {send_requests: 50}}
policies:
  - {user: shop, resource: "topic:orders*", actions: [sub, Pub], sources: [10.1.0.0/16, 10.0.0.1]}
  - {user: shop, resource: "*", actions: All, decision: deny, default: true}
"""


def test_all_that_can_be_declared() -> None:
    wish, problems = read_wish(WHOLE)
    assert problems == []
    assert wish.sections == set(Kind)
    assert wish.things[Key(Kind.TOPIC, ("orders",))] == {
        "queues": 8,
        "permission": "rw",
        "type": "FIFO",
        "ordered": True,
        "attributes.keep_ms": "21600000",
        "attributes.keep_bytes": "1073741824",
        "attributes.keep_unread_max_bytes": "1000000",
        "attributes.owner": None,
        "attributes.flag": "yes",
    }
    assert wish.things[Key(Kind.TOPIC, ("0123",))] == {}
    assert wish.things[Key(Kind.GROUP, ("billing",))] == {
        "retriesMax": 5,
        "ordered": False,
        "backOff": "exponential",
        "initialMs": 1_000,
        "longestMs": 7_200_000,
        "multiplier": 2,
    }
    assert wish.things[Key(Kind.GROUP, ("plain",))] == {"backOff": "levels"}
    quota = wish.things[Key(Kind.QUOTA, ("user", "shop"))]
    assert (quota["send_bytes"], quota["connections"], quota["read_bytes"]) == (10**6, 0, None)
    assert wish.things[Key(Kind.QUOTA, ("default",))]["send_requests"] == 50
    assert wish.things[Key(Kind.POLICY, ("shop", "Topic:orders*"))] == {
        "actions": "Pub,Sub",
        "decision": "Allow",
        "sources": "10.0.0.1/32,10.1.0.0/16",
    }
    assert wish.things[Key(Kind.POLICY, ("shop", "*", "default"))]["decision"] == "Deny"


def test_the_file_that_the_documentation_shows_can_be_applied() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
    (shown,) = re.findall(r"(?ms)^```yaml\n(.*?)^```", page.read_text())
    wish, problems = read_wish(shown)
    assert problems == []
    assert {key.kind for key in wish.things} == set(Kind)


def test_json_is_read_as_well() -> None:
    text = json.dumps({"topics": [{"name": "orders", "queues": 2, "ordered": False}]}, indent=1)
    wish, problems = read_wish(text)
    assert problems == []
    assert wish.things == {Key(Kind.TOPIC, ("orders",)): {"queues": 2, "ordered": False}}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "the file is empty"),
        ("topics: [", 1, "not YAML"),
        ("a: 1\n---\nb: 2", 2, "not YAML"),
        ("- topics", 1, "the file is written as topics: ..., not as a list"),
        ("topic:\n- name: a", 1, "unknown key 'topic' of the file; did you mean 'topics'?"),
        ("topics:\n", 1, "topics must be a list, not nothing; write [] for none"),
        (
            "topics:\n- name: a\n  queus: 3",
            3,
            "unknown key 'queus' of a topic; did you mean 'queues'?",
        ),
        ("topics:\n- name: a\n  queues: 3\n  queues: 4", 4, "queues is there twice; remove one"),
        (
            "topics:\n- name: a\n- queues: 3\n  name: a",
            3,
            "topic a is declared twice; first in line 2",
        ),
        ("topics:\n- queues: 3", 2, "a topic needs name: add it"),
        ("topics:\n- name: a\n  queues: 0", 3, "queues must be a number from 1"),
        ("topics:\n- name: a\n  queues: many", 3, "not 'many'"),
        ("topics:\n- name: a\n  queues: [1]", 3, "not a list"),
        ("topics:\n- name: a\n  ordered: yes", 3, "ordered must be true or false, not 'yes'"),
        ("topics:\n- name: a\n  type: FIFA", 3, "type cannot be 'FIFA'; did you mean 'FIFO'?"),
        ("topics:\n- name: a b", 2, "topic name 'a b' is illegal"),
        ("topics:\n- name: TBW102", 2, "made by brokers themselves"),
        ("topics:\n- name: '%RETRY%g'", 2, "made by brokers themselves"),
        ("topics:\n- name: a\n  attributes:\n    message.type: FIFO", 4, "write type:"),
        ("topics:\n- name: a\n  attributes: {keep_unread_max_bytes: x}", 2, "a number of bytes"),
        ("topics:\n- name: a\n  keep: soon", 3, "keep: 'soon' is no length of time"),
        ("topics:\n- name: a\n  keep: 5ms", 2, "1000 or more"),
        ("topics:\n- name: a\n  keepBytes: 1GB", 3, "keepBytes: '1GB' is no size"),
        (
            "topics:\n- {name: a, keep: 1h, attributes: {keep_ms: 1000}}",
            2,
            "keep_ms is there twice",
        ),
        ("groups:\n- name: g\n  retriesMax: -1", 3, "retriesMax must be a number from 0"),
        ("groups:\n- name: g\n  initial: 5s", 2, "only for backOff: exponential"),
        ("groups:\n- {name: g, backOff: exponential, initial: soon}", 2, "no length of time"),
        ("groups:\n- {name: g, backOff: exponential, initial: 3h}", 2, "end with as much or more"),
        ("quotas:\n- limits: {send_bytes: 1}", 2, "say whose quota it is"),
        ("quotas:\n- user: a\n  group: b\n  limits: {send_bytes: 1}", 2, "say whose quota it is"),
        ("quotas:\n- user: a\n  limits: {sendbytes: 1}", 3, "did you mean 'send_bytes'?"),
        ("quotas:\n- user: a\n  limits: {send_bytes: 0}", 3, "from 1 on, or none"),
        ("quotas:\n- group: a\n  limits: {send_bytes: 1}", 2, "a group has no quota of send_bytes"),
        ("policies:\n- {user: a, resource: orders, actions: Pub}", 2, "names no resource"),
        ("policies:\n- {user: a, resource: '*', actions: Send}", 2, "'Send' is not an action"),
        ("policies:\n- {user: a, resource: '*'}", 2, "a policy needs actions: add it"),
        (
            "policies:\n- {user: a, resource: '*', actions: All, secret: x}",
            2,
            "unknown key 'secret'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, said: str) -> None:
    _, problems = read_wish(text)
    assert [each.line for each in problems][:1] == [line], problems
    assert said in problems[0].text


def test_all_that_is_wrong_is_said_at_once() -> None:
    _, problems = read_wish("topics:\n- nme: a\n- {name: b, queues: x}\ngrops: []\n")
    assert [each.line for each in problems] == [2, 2, 3, 4]


@given(st.text() | st.text("topicsgruename:-[]{}&*!|>,' \n", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    _, problems = read_wish(text)
    assert all(isinstance(each, Problem) and each.line >= 1 for each in problems)


def test_nesting_without_end_is_refused() -> None:
    _, problems = read_wish("[" * 10_000)
    assert "not YAML" in problems[0].text
