"""Receipt handles come back as they were given, and nothing else is one."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.rules.handles import HANDLE_CHARACTERS_MAX, ReceiptHandle
from aerobee.rocketmq_api.rules.refusals import Refused
from apache.rocketmq.v2 import definition_pb2 as v2

HANDLE = ReceiptHandle("broker-a", "orders", "billing", 2, 41, 7, 1_800_000_000_000)
NAMES = st.text("abcXYZ019_-%|", min_size=1, max_size=250)
NUMBERS = st.integers(0, (1 << 63) - 1)


def refused_reason(text: str) -> str:
    with pytest.raises(Refused) as refused:
        ReceiptHandle.decode(text)
    assert status_of(refused.value).code == v2.INVALID_RECEIPT_HANDLE
    return str(refused.value)


@given(st.builds(ReceiptHandle, NAMES, NAMES, NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_a_handle_comes_back(handle: ReceiptHandle) -> None:
    text = handle.encode()
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= HANDLE_CHARACTERS_MAX
    assert ReceiptHandle.decode(text) == handle


def test_a_handle_is_a_few_words() -> None:
    text = "1 broker-a orders billing 2 41 7 1800000000000 "
    assert HANDLE.encode().startswith(text)
    assert len(HANDLE.encode()) == len(text) + 8


@given(st.text() | st.text("0123456789 abf-", max_size=60))
def test_any_other_text_is_refused_by_its_code(text: str) -> None:
    refused_reason(text)


def test_a_handle_that_was_cut_or_changed_is_refused() -> None:
    text = HANDLE.encode()
    for at in range(len(text)):
        refused_reason(text[:at])
        refused_reason(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    refused_reason(text + " ")
    refused_reason(" " + text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("x" * (HANDLE_CHARACTERS_MAX + 1), "has 1025 characters"),
        ("2 broker-a orders billing 2 41 7 1 00000000", "does not begin with 1"),
        # The handle of Apache's broker, which a client may still have after a take-over.
        ("0 1700000000000 15000 3 0 broker-a 2 41 8812", "does not begin with 1"),
    ],
)
def test_the_reason_is_told_and_the_text_is_not(text: str, reason: str) -> None:
    told = refused_reason(text)
    assert reason in told
    assert len(text) < 5 or text not in told


@pytest.mark.parametrize("number", ["-1", "01", "1e3", "٣", "", str(1 << 63), "9" * 19])
def test_numbers_have_one_spelling_and_fit(number: str) -> None:
    for at in range(4, 8):
        words = HANDLE.encode().split(" ")[:-1]
        words[at] = number
        text = " ".join(words)
        refused_reason(f"{text} {zlib.crc32(text.encode()):08x}")


def test_a_handle_serves_its_group_and_topic_only() -> None:
    HANDLE.check_used_by("orders", "billing")
    retried = HANDLE._replace(topic="%RETRY%billing")
    retried.check_used_by("orders", "billing", retry_topics=("%RETRY%billing",))
    for handle, topic, group in (
        (HANDLE, "payments", "billing"),
        (HANDLE, "orders", "audit"),
        (retried, "orders", "billing"),
    ):
        with pytest.raises(Refused) as refused:
            handle.check_used_by(topic, group)
        assert status_of(refused.value).code == v2.INVALID_RECEIPT_HANDLE


def test_a_handle_ends_with_the_invisible_time() -> None:
    HANDLE.check_current(HANDLE.visible_ms - 1)
    with pytest.raises(Refused, match="receipt handle is expired"):
        HANDLE.check_current(HANDLE.visible_ms)
    HANDLE._replace(visible_ms=0).check_current(1 << 62)
