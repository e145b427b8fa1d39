"""What an expression is said to cost grows as its evaluation does, whatever it does with a text."""

from __future__ import annotations

import time

import pytest

from aerobee.broker.reading.sql_filter import SqlFilter
from aerobee.domain.sql_filter.expression import CHARACTERS_PER_STEP, SqlExpression
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import Record, encode_record
from aerobee.store.format.record_layout import HostAddress
from tests.support.loop_price import slowness

LONG = 30_000
STEP_S_MAX = 1.5e-6
"""The CPU time that a step may take on a processor of usual speed; it is mostly 0.3 us."""

COSTLY = [
    ("a CONTAINS 'yyyyyyyyyyyyyyayyyyyyyyyyyyy'", "y" * LONG),
    ("NOT (a CONTAINS 'yya')", "y" * LONG),
    ("a STARTSWITH 'yyya'", "y" * LONG),
    ("a NOT ENDSWITH 'yyya'", "y" * LONG),
    ("a = '" + "y" * 16_000 + "a'", "y" * 16_001),
    ("a <> b", "y" * (LONG // 2)),
    ("a IN ('x', 'y')", "y" * LONG),
    ("a NOT IN ('x', 'y')", "y" * LONG),
    ("a BETWEEN 1.5 AND 2.5", "1." + "9" * LONG),
    ("a NOT BETWEEN 1 AND 2", "0" * LONG + "3"),
    ("a > 5", "0" * LONG + "3"),
    ("a >= 5.5", "0." + "9" * LONG),
    ("5.5 > a", " " * LONG + "1"),
    ("a < b", "9" * (LONG // 2)),
    ("a = 5", "0" * LONG + "5"),
    ("a = 5.5", "0x1." + "f" * LONG + "p3"),
    ("a = TRUE", "Σ" * (LONG // 2)),
    ("a IS NULL", "y" * LONG),
]


def cpu_s(text: str, value: str) -> tuple[float, int]:
    """The least CPU time of evaluating a whole record, and its price."""
    properties = encode_properties(
        {"b": value[:-1] + "x", "a": value} if "b" in text else {"a": value}
    )
    data = bytes(
        encode_record(
            topic=b"t",
            body=b"x",
            properties=properties,
            born_timestamp_ms=1,
            born_host=HostAddress(b"\x7f\x00\x00\x01", 1),
            flag=0,
            sys_flag=0,
            store_host_ipv6=False,
        )
    )
    passing = SqlFilter(SqlExpression(text))
    times = []
    price = 0
    for _ in range(20):
        record = Record(data, 0, len(data))
        began_s = time.thread_time()
        _, price = passing.verdict(record)
        times.append(time.thread_time() - began_s)
    return min(times), price


@pytest.mark.parametrize(("text", "value"), COSTLY, ids=[text[:30] for text, _ in COSTLY])
def test_each_operator_is_charged_for_the_characters_that_it_looks_at(
    text: str, value: str
) -> None:
    slow = slowness()
    took_s, price = cpu_s(text, value)
    assert took_s / price < STEP_S_MAX * max(slow, slowness()), f"{took_s * 1e6:.0f} us, {price}"
    short = SqlExpression(text).steps(["y", "y"][: len(SqlExpression(text).names)])
    assert price - short >= len(value) // CHARACTERS_PER_STEP


def test_an_expression_that_reads_a_property_many_times_is_charged_each_time() -> None:
    once = SqlExpression("a CONTAINS 'x'").steps(["y" * 6_400])
    often = SqlExpression(" OR ".join(f"a CONTAINS 'x{n}'" for n in range(24))).steps(["y" * 6_400])
    assert often > 12 * once


@pytest.mark.parametrize("names", [1, 8, 9])
def test_thousands_of_tiny_properties_are_charged_whatever_their_names(names: int) -> None:
    text = " OR ".join(f"n{number} = 'x'" for number in range(names))
    properties = b"".join(b"n\x01\x02" for _ in range(8_000))
    data = bytes(
        encode_record(
            topic=b"t",
            body=b"x",
            properties=properties,
            born_timestamp_ms=1,
            born_host=HostAddress(b"\x7f\x00\x00\x01", 1),
            flag=0,
            sys_flag=0,
            store_host_ipv6=False,
        )
    )
    passing = SqlFilter(SqlExpression(text))
    slow = slowness()
    times, price = [], 0
    for _ in range(5):
        began_s = time.thread_time()
        _, price = passing.verdict(Record(data, 0, len(data)))
        times.append(time.thread_time() - began_s)
    assert min(times) / price < STEP_S_MAX * max(slow, slowness())
    assert price >= 2_000
