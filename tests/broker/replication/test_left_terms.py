"""A hand-over that is called off at any moment of a duty's work loses and repeats nothing: what was
begun under a term that was left commits nothing, and what the break kept from being done is done
once the term is resumed.

Each duty runs on, while its term is left after so many turns of the loop and resumed after some
more: all pairs of such moments until its work is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.broker.popping.revivals import Revivals
from aerobee.broker.reading.confirmed_records import ConfirmedReader, ConfirmedRecords
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.duties import Duty
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.feature import Transactions
from aerobee.runtime.errors import NotWritable
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.record_view import Record
from aerobee.store.format.transaction_records import OP_TOPIC, op_of
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import StartBroker
from tests.support.journal_log import MemoryLog
from tests.support.notebook import NotedReplica
from tests.support.transactions import ORDERS, end, half_message, seen, stored, transactional
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until


def breaks(turns: int, longest: int) -> Iterator[tuple[int, int]]:
    """When a term is left, and how long it stays so, in turns of the loop."""
    for begin in range(turns):
        for length in range(longest):
            yield begin, length


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def call_off(duty: Duty, begin: int, length: int, written: Callable[[], Any]) -> None:
    """Leave the term after `begin` turns, and resume it after `length` more."""
    await turns(begin)
    await duty.leave()
    before = written()
    await turns(length)
    assert written() == before, "it acts in a term that was left"
    duty.resume()


@contextlib.asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


# ------------------------------------------------------------------------------------ Apache's POP


HOST = HostAddress.parse("127.0.0.1:10911")
REVIVE_LOG, RETRIES = "rmq_sys_REVIVE_LOG_hive", "%RETRY%billing_orders"
LATER_MS = 2_000_000


def record(topic: str, body: bytes, offset: int, properties: bytes = b"") -> bytes:
    data = bytearray(
        encode_record(
            topic=topic.encode(),
            body=body,
            properties=properties,
            born_timestamp_ms=1,
            born_host=HOST,
            store_host_ipv6=False,
        )
    )
    data[20:28] = offset.to_bytes(8, "big")  # its queue offset
    return bytes(data)


def checkpoint(offset: int, message: int, pop_ms: int) -> Record:
    """One message that Apache's broker handed out."""
    told = {"c": "billing", "t": "orders", "q": 0, "so": message, "pt": pop_ms, "n": 1}
    body = json.dumps({**told, "bm": 0, "it": 1_000, "d": [0]}).encode()
    return Record(record(REVIVE_LOG, body, offset, b"TAGS\x01ck\x02"))


class TakenOver:
    """A folder that Apache's broker has left, whose every read waits for a turn of the loop."""

    def __init__(self, *queues: Sequence[Record]) -> None:
        self.queues = queues
        self.copied: list[str] = []
        self.committed: dict[int, int] = {}
        self.lost: list[str] = []
        """Messages that a committed offset left out."""
        self.now_ms = 1_000_000
        self.on_grown: list[Callable[[Sequence[tuple[str, int]]], None]] = []
        self.store_host_ipv6 = False
        topics = {
            REVIVE_LOG: SimpleNamespace(read_queue_count=len(queues)),
            RETRIES: SimpleNamespace(read_queue_count=1),
        }
        parts: Any = SimpleNamespace(
            store=SimpleNamespace(on_grown=self.on_grown.append),
            roles=None,
            reads=None,
            journal=SimpleNamespace(writer=lambda: None),
            topics=_Topics(topics),
            queues=SimpleNamespace(
                bounds=lambda topic, queue_id: (0, len(queues[queue_id])), record=self.message
            ),
            offsets=SimpleNamespace(query=lambda key: self.committed.get(key[2]), commit=self.note),
            clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            guard=SimpleNamespace(check_master=lambda: None),
            writes=self,
        )
        self.revivals = Revivals(parts)

    async def read(self, topic: str, queue_id: int, at: int, **limits: int) -> ConfirmedRecords:
        await turns(1)
        found = [*self.queues[queue_id][at : at + 2]]
        return ConfirmedRecords(found, at + len(found), False)

    async def message(self, topic: str, queue_id: int, offset: int) -> bytes:
        await turns(1)
        return record(topic, b"message %d" % offset, offset)

    def append_copies(self, topic: str, queue_id: int, records: list[bytes], runs: object) -> None:
        self.copied.append(bytes(Record(records[0]).body).decode())

    publishing = contextlib.nullcontext()

    def note(self, key: Any, offset: int, claim: object) -> asyncio.Future[None]:
        self.committed[key[2]] = offset
        for each in self.queues[key[2]][: offset + 1]:
            message = f"message {json.loads(bytes(each.body))['so']}"
            if message not in self.copied:
                self.lost.append(message)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(written.set_result, None)
        return written


class _Topics(dict[str, Any]):
    def names(self) -> list[str]:
        return [REVIVE_LOG]


async def test_a_break_in_a_hand_over_loses_and_repeats_no_message_that_apache_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder: TakenOver
    monkeypatch.setattr(
        ConfirmedReader, "read", lambda _, *place, **limits: folder.read(*place, **limits)
    )
    for begin, length in breaks(30, 20):
        folder = TakenOver(
            [checkpoint(0, 0, 1), checkpoint(1, 1, 2), checkpoint(2, 2, 3)],
            [checkpoint(0, 3, 1), checkpoint(1, 4, LATER_MS), checkpoint(2, 5, 1)],
        )
        revivals = folder.revivals
        term: Any = object()
        revivals.begin(term)
        async with running(revivals.run()):
            await call_off(revivals, begin, length, folder.copied.copy)
            await until(lambda folder=folder: folder.lost or folder.committed == {0: 2, 1: 0})
            folder.now_ms = LATER_MS + 10_000
            for told in folder.on_grown:
                told([(REVIVE_LOG, 0)])
            await until(lambda folder=folder: folder.lost or folder.committed == {0: 2, 1: 2})
        found = sorted(folder.copied), folder.lost
        assert found == ([f"message {each}" for each in range(6)], []), (begin, length)


# ------------------------------------------------------------------------------------ a journal


class SlowLog(MemoryLog):
    """Each read waits for a turn of the loop."""

    async def read(self, queue_offset: int) -> Any:
        await turns(1)
        return await super().read(queue_offset)


async def test_a_break_in_a_hand_over_loses_nothing_of_a_journal() -> None:
    first = NotedReplica(written := MemoryLog())
    async with running(first.journal.run()):
        first.take_role(1)
        await until(lambda: first.journal.is_ready)
        for number in range(12):
            await first.write(f"page {number}", str(number))
    expected = {f"page {number}": str(number) for number in range(12)}
    for begin, length in breaks(16, 6):
        log = SlowLog(list(written.bodies), list(written.ends))
        log.confirm()
        replica = NotedReplica(log)
        journal, removed = replica.journal, log.records_end
        async with running(journal.run()):
            replica.take_role(2)
            log.is_sync = False  # what is written waits, so that an image takes several turns
            removal = asyncio.ensure_future(journal.prepare_removal(log.end, _nothing))
            await call_off(journal, begin, length, log.bodies.copy)
            await until(lambda journal=journal, log=log: _confirmed(log) and journal.is_ready)
            log.is_sync = True
            await removal
            assert replica.notebook.pages == expected
            await replica.write("page 0", "anew")
            assert await journal.prepare_removal(log.end, _nothing) == ""
        log.remove_below(removed)
        late = NotedReplica(log)
        async with running(late.journal.run()):
            await until(lambda late=late, log=log: late.notebook.next_offset == log.records_end)
        assert late.notebook.pages == {**expected, "page 0": "anew"}, (begin, length)
        assert late.notebook.is_whole


def _confirmed(log: MemoryLog) -> bool:
    log.confirm()
    log.flush()
    return True


async def _nothing() -> None: ...


# ------------------------------------------------------------------------------------ transactions


@pytest.mark.slow
async def test_a_break_in_a_hand_over_ends_each_transaction_once(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(topics={ORDERS: transactional()})
    client, transactions = V2(broker.channel), broker.feature(Transactions)
    read, append, is_full = QueueReader.record, OwnWrites.append, False

    async def reads(queues: QueueReader, *place: Any, **how: Any) -> bytes | None:
        await turns(2)
        return await read(queues, *place, **how)

    def refuses(self: OwnWrites, topic: str, *args: Any, **changes: Any) -> Any:
        if is_full and topic == OP_TOPIC:
            raise NotWritable("the disk is full")
        return append(self, topic, *args, **changes)

    monkeypatch.setattr(QueueReader, "record", reads)
    monkeypatch.setattr(OwnWrites, "append", refuses)
    ids = []
    for begin, length in breaks(8, 8):
        ids.append(f"T-{begin}-{length}")
        assert codes((await client.send(half_message(ids[-1], ids[-1].encode()))).entries) == [
            v2.OK
        ]
        is_full = True
        assert (await end(client, ids[-1], v2.COMMIT)).code == v2.OK
        await transactions.leave()  # its op message is missing now, as after a death
        is_full = False
        transactions.resume()
        ops = lambda: broker.store.queues.bounds(OP_TOPIC, 0).max_offset  # noqa: E731
        await call_off(transactions, begin, length, ops)
        await until(lambda: transactions.ends.is_ready and not len(transactions.pending))
    assert await seen(broker) == sorted(each.encode() for each in ids)
    named = [offset for each in await stored(broker, OP_TOPIC, 1) for offset in op_of(each)[0]]
    assert named == list(range(len(ids)))
