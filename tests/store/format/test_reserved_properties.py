"""The table of reserved property names, and its fast way through a batch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.store.format.batch import BatchFault, BatchIllegal
from aerobee.store.format.batch_properties import BatchProperties
from aerobee.store.format.client_records import check_client_records
from aerobee.store.format.properties import PropertyIllegal, PropertyName, encode_properties
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.reserved_properties import (
    NAMES,
    PREFIXES,
    allowed_of,
    check_property,
    may_be_illegal,
    without_received,
)
from tests.support.stores import batch_with

HEX = "C0A8000B30393764D8BE2A139A000007"
VALUES = st.one_of(
    st.sampled_from(["true", "False", "7", "0123456789", HEX, "订单" * 99, "a b", "x" * 256, "\n"]),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=40),
)
OWN_NAMES = ["carrier", "DELAYED", "T", "_x", "UNIQ", "UNIQ_KEY2", "1", "WAITING", "MY_DELAY"]
PROPERTIES = st.dictionaries(
    st.sampled_from([*NAMES, *(f"{prefix}x" for prefix in PREFIXES), *OWN_NAMES]),
    VALUES,
    max_size=5,
)


def is_legal(properties: dict[str, str]) -> bool:
    try:
        for name, value in properties.items():
            check_property(name, value)
    except PropertyIllegal:
        return False
    return True


def test_the_table_has_every_name_that_anybody_acts_on() -> None:
    known = {value for name, value in vars(PropertyName).items() if not name.startswith("_")}
    assert set(NAMES) == known
    assert allowed_of("carrier") is None


def test_the_page_of_limits_shows_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "limits.md").read_text()
    section = page.partition("## Reserved property names")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*) \| (.*) \|$", section, re.MULTILINE)
    shown = {name: what for names, what in rows for name in re.findall("`([^`]+)`", names)}
    for name, allowed in NAMES.items():
        if not name.startswith(tuple(PREFIXES)):
            assert shown[name].startswith("nothing: ") == (not allowed.form), name
            assert shown[name].startswith("anything; ") == (allowed.form == ".*"), name
    assert set(PREFIXES) <= set(shown) <= set(NAMES) | set(PREFIXES)


@given(st.lists(PROPERTIES, min_size=1, max_size=5), st.booleans())
@example([{"TAGS": "a"}, {"DELAY": "3"}], False)
@example([{"UNIQ_KEY": HEX + "0"}], True)
def test_a_batch_is_refused_exactly_if_a_property_of_it_is(
    batch: list[dict[str, str]], has_end: bool
) -> None:
    encoded = [encode_properties(properties) for properties in batch]
    if not has_end:
        encoded = [properties.removesuffix(b"\x02") for properties in encoded]
    wrong = [index for index, properties in enumerate(batch) if not is_legal(properties)]
    checked = batch_with("t", encoded * 10)  # as many as are checked with arrays
    if not wrong:
        check_client_records(checked)
        return
    assert may_be_illegal(BatchProperties.of(encoded).joined)
    with pytest.raises(BatchIllegal) as refused:
        check_client_records(checked)
    assert (refused.value.kind, refused.value.index) == (BatchFault.RESERVED, wrong[0])


def test_usual_messages_are_found_legal_without_a_look_at_each_property() -> None:
    usual = {"UNIQ_KEY": HEX, "TAGS": "new", "KEYS": "a b", "WAIT": "true", "carrier": "UA"}
    usual |= dict.fromkeys(OWN_NAMES, "x") | {"__SHARDINGKEY": "s", "CLUSTER": "c"}
    assert not may_be_illegal(BatchProperties.of([encode_properties(usual)] * 3).joined)
    later = {"UNIQ_KEY": HEX, "DELAY": "18", "TIMER_DELIVER_MS": "1700000000000", "carrier": "UA"}
    assert not may_be_illegal(BatchProperties.of([encode_properties(later)] * 3).joined)


@pytest.mark.parametrize(
    ("message_id", "may_be"),
    [
        (HEX, True),
        ("01" + HEX, True),
        ("order-7", True),
        ('~!"#', True),
        ("订单-7", False),
        ("x" * 255, True),
        ("x" * 256, False),
        ("a b", False),
        ("a\x7f", False),
        ("a\n", False),
    ],
)
def test_message_ids_are_texts_of_their_senders(message_id: str, may_be: bool) -> None:
    assert is_legal({"UNIQ_KEY": message_id}) == may_be
    if may_be:
        assert RecallHandle("t", "broker-a", 1, message_id).encode()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DELAY", "-3", "property DELAY must be the number of a delay level"),
        ("TIMER_DELIVER_MS", "1.5", "property TIMER_DELIVER_MS must be a whole number"),
        ("TIMER_OUT_MS", "3", "property TIMER_OUT_MS is set only by brokers"),
        ("TIMER_TO_COME", "3", "property TIMER_TO_COME is set only by brokers"),
        ("TRAN_MSG", "true", "property TRAN_MSG is set by brokers when a message begins"),
        ("UNIQ_KEY", "order 7", "must be a message id of 1 to 255 visible ASCII characters"),
        ("WAIT", "maybe", "property WAIT must be true or false"),
        ("POP_CK", "1", "property POP_CK is set only by brokers"),
        ("INNER_MULTI_DISPATCH", "%LMQ%a", "light queues"),
    ],
)
def test_a_refusal_names_the_property_and_says_what_to_do(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(PropertyIllegal) as refused:
        check_property(name, value)
    assert sentence in str(refused.value)
    assert "leave it out" in str(refused.value)
    assert value == "1" or value == "3" or value not in str(refused.value)


def test_what_brokers_and_readers_added_is_dropped_and_nothing_else() -> None:
    mine = encode_properties({"UNIQ_KEY": HEX, "mine": "POP_CK", "MIN_OFFSETS": "7"})
    added = encode_properties({"POP_CK": "1", "TIMER_NEW": "2", "MAX_OFFSET": "3"})
    assert without_received(mine) is mine
    assert without_received(added + mine) == without_received(mine + added) == mine
    wrong = encode_properties({"DELAY": "soon"})
    assert without_received(wrong) == wrong, "it is for others to refuse"
    assert without_received(b"") == b""
