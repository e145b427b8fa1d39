"""Message ids of both kinds."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.message_id import (
    MessageIdIllegal,
    UniqueIdGenerator,
    offset_message_id,
    parse_offset_message_id,
)
from aerobee.store.format.record import HostAddress

NOW_MS = 1_700_000_000_000
IP = bytes([192, 168, 0, 11])


def generator(ip: bytes = IP, process_id: int = 12_345) -> UniqueIdGenerator:
    return UniqueIdGenerator(random.Random(1), ip=ip, process_id=process_id)


@given(st.data(), st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_offset_id_gives_host_and_offset_back(
    hosts: st.SearchStrategy[HostAddress], data: st.DataObject, offset: int
) -> None:
    host = data.draw(hosts)
    text = offset_message_id(host, offset)
    assert len(text) == (56 if host.is_ipv6 else 32)
    assert text == text.upper()
    assert parse_offset_message_id(text) == (host, offset)


@pytest.mark.parametrize("text", ["", "0A" * 15, "0G" * 16, "0A" * 17, "0A " * 16, "A" * 33])
def test_other_texts_are_no_offset_ids(text: str) -> None:
    with pytest.raises(MessageIdIllegal):
        parse_offset_message_id(text)


def test_a_unique_key_says_where_and_when_it_was_made() -> None:
    ids = generator()
    data = bytes.fromhex(ids.next_id(NOW_MS))
    local = time.localtime(NOW_MS // 1000)
    elapsed_s = ((local.tm_mday - 1) * 24 + local.tm_hour) * 3600 + local.tm_min * 60 + local.tm_sec
    assert data[:4] == IP
    assert int.from_bytes(data[4:6], "big") == 12_345
    # Clock changes for daylight saving would move this by an hour.
    assert abs(int.from_bytes(data[10:14], "big") - elapsed_s * 1000) in (0, 3_600_000)
    assert data[14:] == bytes(2)
    assert ids.next_id(NOW_MS).endswith("0001")


def test_an_ipv6_key_is_longer_and_the_process_id_is_cut_to_two_bytes() -> None:
    text = generator(ip=bytes(15) + b"\1", process_id=0x12345).next_id(NOW_MS)
    assert len(text) == 56
    assert text == text.upper()
    assert text[32:36] == "2345"


def test_keys_do_not_repeat_when_the_counter_runs_out_or_the_clock_steps_back() -> None:
    ids = generator()
    made = [ids.next_id(NOW_MS) for _ in range(70_000)]
    made += [ids.next_id(NOW_MS - 3_600_000) for _ in range(70_000)]
    made += [ids.next_id(NOW_MS + step) for step in range(100)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("month", [2, 12])
def test_the_time_in_keys_begins_anew_each_month(month: int) -> None:
    begin_ms = int(time.mktime((2026, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
    following = (2026, month + 1) if month < 12 else (2027, 1)
    end_ms = int(time.mktime((*following, 1, 0, 0, 0, 0, 0, -1))) * 1000
    ids = generator()

    def elapsed_ms(now_ms: int) -> int:
        return int(ids.next_id(now_ms)[20:28], 16)

    assert elapsed_ms(begin_ms) == 0
    assert elapsed_ms(end_ms - 1) == end_ms - 1 - begin_ms
    assert elapsed_ms(end_ms) == 0


def test_generators_differ_even_with_the_same_address_and_process() -> None:
    source = random.Random(1)
    made = {UniqueIdGenerator(source, ip=IP, process_id=1).next_id(NOW_MS) for _ in range(1_000)}
    assert len(made) == 1_000


def test_many_keys_at_once_are_the_keys_one_by_one() -> None:
    together, single = generator(), generator()
    now_ms = NOW_MS
    for count in (0, 1, 255, 256, 3, 65_000, 1_000, 140_000):
        now_ms += count % 2
        made = together.next_ids(now_ms, count)
        assert made == [single.next_id(now_ms) for _ in range(count)]
        assert together.next_id(now_ms) == single.next_id(now_ms)
