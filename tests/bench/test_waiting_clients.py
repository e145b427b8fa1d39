"""What the loads of `aerobee bench v2` are made of, and the rows that they give."""

from __future__ import annotations

import os

from aerobee.rpc.core.hpack import Decoder, Field, SharedStrings
from peers.idle_clients import FieldTable, request_fields
from peers.parts import (
    IDLE_CLIENTS,
    V2_IDLE,
    V2_JAVA,
    V2_JAVA_PINNED,
    Answer,
    Part,
    Way,
)
from peers.processes import anonymous_bytes
from peers.rocketmq_idle import total_of
from peers.run import started_on
from peers.table import Comparison

HISTOGRAM = """\
 num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:         52934        4632720  [B (java.base@17.0.15)
Total        312047       17459856
"""


def fields_only(fields: list[Field]) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value, *_ in fields]


def test_a_server_reads_the_fields_of_waiting_clients_also_when_its_table_is_full() -> None:
    table, decoder = FieldTable(), Decoder(SharedStrings(), fields_only)
    sizes = []
    for number in range(200):
        fields = list(request_fields("ReceiveMessage", "127.0.0.1:1", "client", number))
        block = table.block(fields)
        sizes.append(len(block))
        assert decoder.decode(block) == fields
    assert min(sizes) < sizes[0] / 3, "what was said before is one byte"


def test_a_shorter_run_has_fewer_waiting_clients_and_a_longer_one_no_more() -> None:
    part = Part(Way.GATHER, clients=IDLE_CLIENTS)
    assert part.scaled(0.05).clients == IDLE_CLIENTS * 0.05
    assert part.scaled(3).clients == IDLE_CLIENTS
    assert Part.from_json(part.as_json()) == part


def test_waiting_clients_have_rows_for_memory_and_processor_time() -> None:
    compared = Comparison(["Aerobee"])
    _, gather, idle, _ = V2_IDLE
    compared.add("Aerobee", gather, Answer(0, 9.0, 10, 0.0, 0.0, 700.0, server_bytes=10 * 25_600))
    compared.add("Aerobee", idle, Answer(0, 40.0, 1, 0.0, 0.0, server_us=8e6))
    rows = compared.as_markdown().splitlines()[2:]
    assert rows == [
        "| a client that comes to wait, memory, KiB | 25.0 |  |",
        "| a client that comes to wait, server's CPU, µs | 700 |  |",
        f"| {IDLE_CLIENTS:,} waiting clients, server's CPU, % of a core | 20.0 |  |",
    ]


def test_what_only_prepares_the_next_part_has_no_row() -> None:
    compared = Comparison(["Aerobee"])
    (fill, *_) = (named for named in V2_JAVA if named.part.way is Way.FILL)
    compared.add("Aerobee", fill, Answer(1, 1.0, 1, 0.0, 0.0))
    assert compared.parts == []
    assert compared.answers == {}


def test_the_capacity_of_a_core_is_what_its_time_would_do() -> None:
    compared = Comparison(["Aerobee", "A"])
    (named,) = V2_JAVA_PINNED
    for title, server_us in (("Aerobee", 50.0), ("A", 100.0)):
        compared.add(title, named, Answer(10, 1.0, 10, 0.0, 0.0, server_us))
    (row,) = (line for line in compared.as_markdown().splitlines() if "capacity" in line)
    assert row.endswith("| 20,000 | 10,000 | 2.00 |")


def test_what_a_jvm_holds_is_the_total_of_its_histogram() -> None:
    assert total_of(HISTOGRAM) == 17_459_856


def test_the_memory_of_a_process_is_that_of_its_own_pages() -> None:
    before = anonymous_bytes(os.getpid())
    held = bytearray(b"x" * (32 << 20))
    assert anonymous_bytes(os.getpid()) - before > len(held) // 2


def test_what_is_started_on_a_core_stays_there_and_the_others_do_not() -> None:
    before = os.sched_getaffinity(0)
    with started_on(max(before)):
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before
    with started_on(None):
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(0) == before
