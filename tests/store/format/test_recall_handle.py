"""Recall handles: as Apache's broker writes them, and whatever else clients may send instead."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.recall_handle import (
    HANDLE_CHARACTERS_MAX,
    RecallHandle,
    RecallHandleIllegal,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=127)


def test_a_handle_looks_as_documented() -> None:
    handle = RecallHandle(
        "TopicTest", "broker-a", 1_700_000_100_001, "C0A8000B30393764D8BE2A139A000007"
    )
    text = (
        "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAxMDAw"
        "MDEgQzBBODAwMEIzMDM5Mzc2NEQ4QkUyQTEzOUEwMDAwMDc="
    )
    assert handle.encode() == text
    assert RecallHandle.decode(text) == handle
    assert RecallHandle.decode(text.rstrip("=")) == handle, "some clients cut the padding off"


@pytest.mark.parametrize("name", ["clean-small", "retained", "ipv6-v2"])
def test_each_handle_that_apache_gave_comes_back_as_it_was(name: str) -> None:
    manifest: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    sends = [send for send in manifest["specialSends"] if "recallHandle" in send]
    assert len(sends) > 10
    for send in sends:
        handle = RecallHandle.decode(send["recallHandle"])
        assert handle.encode() == send["recallHandle"]
        assert (handle.topic, handle.unique_key) == (send["topic"], send["uniqKey"])
        assert handle.broker_name == "golden-a"
        assert handle.deliver_ms % 1_000 == 1


@given(WORDS, WORDS, st.integers(0, (1 << 63) - 1), WORDS)
def test_a_handle_comes_back(topic: str, broker: str, deliver_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, deliver_ms, key)
    assert RecallHandle.decode(handle.encode()) == handle


def _encoded(plain: str | bytes) -> str:
    data = plain.encode() if isinstance(plain, str) else plain
    return base64.urlsafe_b64encode(data).decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("x" * (HANDLE_CHARACTERS_MAX + 1), "2049 characters"),
        ("not base64!", "not URL-safe Base64"),
        ("djEg/+8=", "not URL-safe Base64"),
        ("A", "not URL-safe Base64 of text"),
        (_encoded(b"v1 \xff b 1 k"), "not URL-safe Base64 of text"),
        (_encoded("v2 topic broker 1 key"), "begin with v1"),
        (_encoded("v1 topic broker 1"), "does not name"),
        (_encoded("v1 topic broker 1 key more"), "does not name"),
        (_encoded("v1 topic  broker 1 key"), "does not name"),
        (_encoded("v1 topic broker soon key"), "time"),
        (_encoded("v1 topic broker -1 key"), "time"),
        (_encoded("v1 topic broker ١٢ key"), "time"),
        (_encoded("v1 topic broker " + "9" * 19 + " key"), "ms since 1970"),
        (_encoded("v1  broker 1 key"), "topic ''"),
        (_encoded("v1 to\npic broker 1 key"), "topic"),
        (_encoded("v1 topic broker 1 k\x1b[0mey"), "unique key"),
    ],
)
def test_what_is_no_handle_is_refused_and_says_why(text: str, reason: str) -> None:
    with pytest.raises(RecallHandleIllegal, match=reason):
        RecallHandle.decode(text)


@given(st.text() | st.binary().map(_encoded) | st.text().map(_encoded))
def test_no_text_leads_to_any_other_error(text: str) -> None:
    try:
        handle = RecallHandle.decode(text)
    except RecallHandleIllegal:
        return
    assert RecallHandle.decode(handle.encode()) == handle


def test_parts_that_would_not_come_back_are_refused() -> None:
    with pytest.raises(RecallHandleIllegal, match="without spaces"):
        RecallHandle("a topic", "broker", 1, "key")
    with pytest.raises(RecallHandleIllegal, match="characters"):
        RecallHandle("t" * 2_000, "broker", 1, "key").encode()
