"""Programs that the fault tests start, pause and kill, and a plain client to ask them with.

Owns: the processes. Each is tied to the process of the tests, so that none outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from aerobee.cli.local_cluster.child import spawn_tied
from aerobee.runtime.errors import AerobeeError
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.store.format.record import HostAddress, Record, iterate_records
from aerobee.store.format.record_encode import encode_batch
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2
from tests.support.grpcio_client import build_channel, error_from_rpc
from tests.support.waiting import until

PATIENCE_S = 30.0
KIB = 1024
MIB = 1024 * KIB
BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
_PORT = re.compile(r"broker serves .*\bport=(\d+)")


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * KIB
    return 0


def batch_of(
    topic: str, queue_id: int, *bodies: bytes, properties: bytes = b"", sequence: int = 0
) -> broker_pb2.RecordBatch:
    """A batch as a producer makes it."""
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=bodies,
        properties=[properties] * len(bodies),
        born_timestamp_ms=1_700_000_000_000,
        born_host=BORN_HOST,
    )
    return broker_pb2.RecordBatch(
        sequence=sequence, topic=topic, queue_id=queue_id, records=records, record_sizes=sizes
    )


def write_topics(
    root: Path, topics: Mapping[str, int], perm: Mapping[str, int] | None = None
) -> None:
    """topics.json as an earlier run of the broker would have left it; queue counts by topic."""
    table = TopicTable()
    for name, queues in topics.items():
        table.put(
            TopicConfig(
                name=name,
                read_queue_count=queues,
                write_queue_count=queues,
                perm=(perm or {}).get(name, 6),
            )
        )
    root.mkdir(parents=True, exist_ok=True)
    replace_atomically(RealDisk(root), TOPICS_PATH, table.snapshot_bytes(1_700_000_000_000))


class Client:
    """Stubs of one broker, and what the tests ask again and again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = build_channel(address)
        self.send_service = broker_pb2_grpc.SendServiceStub(self.channel)
        self.pull_service = broker_pb2_grpc.PullServiceStub(self.channel)
        self.offsets = broker_pb2_grpc.OffsetServiceStub(self.channel)
        self.groups = broker_pb2_grpc.GroupServiceStub(self.channel)
        self.admin = broker_pb2_grpc.AdminServiceStub(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.channel.close()

    async def stats(self) -> broker_pb2.BrokerStats:
        stats: broker_pb2.BrokerStats
        stats = await self.admin.GetStats(broker_pb2.GetStatsRequest(), timeout=10)
        return stats

    async def log_end(self) -> int:
        return (await self.stats()).log_appended_end

    async def exchange(self, *batches: broker_pb2.RecordBatch) -> list[broker_pb2.SendAck]:
        """Send batches in one frame; their acknowledgements."""
        call = self.send_service.SendStream(timeout=20)
        await call.write(broker_pb2.SendFrame(batches=batches))
        await call.done_writing()
        acks: list[broker_pb2.SendAck] = []
        while (answer := await call.read()) is not grpc.aio.EOF:
            acks.extend(answer.acks)
        return acks

    async def send(self, topic: str, queue_id: int, *bodies: bytes) -> broker_pb2.SendAck:
        (ack,) = await self.exchange(batch_of(topic, queue_id, *bodies))
        return ack

    async def exchange_or_nothing(
        self, topic: str, queue_id: int, *bodies: bytes
    ) -> broker_pb2.SendAck | None:
        """The acknowledgement, or None if the broker went away before it answered."""
        try:
            acks = await self.exchange(batch_of(topic, queue_id, *bodies))
        except grpc.aio.AioRpcError as failure:
            if failure.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return None
        return acks[0] if acks else None

    async def pull(
        self, topic: str, queue_id: int, offset: int = 0, **changes: Any
    ) -> broker_pb2.PullResult:
        result: broker_pb2.PullResult = await self.pull_service.Pull(
            broker_pb2.PullRequest(topic=topic, queue_id=queue_id, offset=offset, **changes),
            timeout=20,
        )
        return result

    async def records(self, topic: str, queue_id: int, first: int = 0) -> list[Record]:
        """Everything from an offset on; each queue offset must follow the one before."""
        found: list[Record] = []
        offset = first
        while True:
            result = await self.pull(topic, queue_id, offset, max_bytes=4 * MIB)
            if result.code != common_pb2.OK:
                return found
            for record in iterate_records(result.records):
                assert record.queue_offset == offset, "a queue has a gap or a repetition"
                found.append(record)
                offset += 1

    async def bodies(self, topic: str, queue_id: int, first: int = 0) -> list[bytes]:
        return [bytes(record.body) for record in await self.records(topic, queue_id, first)]

    async def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        epoch: int = 0,
        member: str = "",
    ) -> common_pb2.Status:
        response: broker_pb2.CommitOffsetsResponse = await self.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group=group,
                client_id=member,
                offsets=[
                    broker_pb2.QueueOffset(
                        topic=topic, queue_id=queue_id, offset=offset, lease_epoch=epoch
                    )
                ],
            ),
            timeout=10,
        )
        return response.results[0]

    async def committed(self, group: str, topic: str, queue_id: int) -> int:
        """-1 if the group never committed there."""
        response = await self.offsets.QueryOffsets(
            broker_pb2.QueryOffsetsRequest(
                group=group, queues=[broker_pb2.TopicQueue(topic=topic, queue_id=queue_id)]
            ),
            timeout=10,
        )
        return int(response.offsets[0].offset)


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, AerobeeError]:
    """The status and the typed error of a call that must fail."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as failure:
        return failure.code(), error_from_rpc(failure, "the broker")
    raise AssertionError(f"it was not refused: {answer!r}"[:300])


class Process:
    """A program with its output in a file."""

    def __init__(self, name: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> Self:
        self._process = await spawn_tied(self.argv, log=self.log)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit code, negative if the signal ended it."""
        if self._process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """The exit code; a program that does not end by itself is killed, and that is a failure."""
        assert self._process is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise AssertionError(f"{self.name} did not end: {self.said()[-2000:]}") from None

    async def close(self) -> None:
        """Leave nothing behind, in whatever state it is."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class BrokerProcess(Process):
    """`aerobee broker` over one folder, without a nameserver; another port at each start."""

    def __init__(self, folder: Path, log: Path, settings: Mapping[str, str]) -> None:
        defaults = {
            "store-segment-bytes": str(4 * MIB),
            "store-disk-free-bytes-min": "0",
            # Its percentages would refuse messages long before a small disk is really full.
            "store-retention-enabled": "false",
            "snapshot-interval-ms": "200",
            "sessions-timeout-min-ms": "200",
            "stop-grace-ms": "100",
        }
        flags = [
            part for key, value in {**defaults, **settings}.items() for part in (f"--{key}", value)
        ]
        super().__init__(
            "the broker",
            (
                *(sys.executable, "-m", "aerobee.cli", "broker", "--nameservers", ""),
                *("--listen", "127.0.0.1:0", "--store-root", str(folder), *flags),
            ),
            log,
        )
        self.folder = folder
        self.address = ""

    async def start(self) -> Self:
        starts = len(_PORT.findall(self.said()))
        await super().start()
        await until(lambda: self.has_ended or len(_PORT.findall(self.said())) > starts, "it serves")
        assert not self.has_ended, f"no start: {self.said()[-2000:]}"
        self.address = f"127.0.0.1:{_PORT.findall(self.said())[-1]}"
        return self

    async def refuses_to_start(self) -> tuple[int, str]:
        """Its exit code and last line."""
        before = len(self.said())
        await super().start()
        code = await self.wait()
        words = self.said()[before:]
        assert "Traceback" not in words, words
        return code, words.splitlines()[-1]

    def client(self) -> Client:
        return Client(self.address)


@contextlib.asynccontextmanager
async def broker_process(
    folder: Path,
    log: Path,
    topics: Mapping[str, int],
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[BrokerProcess]:
    """A broker that serves the given topics (queue counts by name); killed at the end."""
    write_topics(folder, topics)
    broker = BrokerProcess(folder, log, settings or {})
    try:
        yield await broker.start()
    finally:
        await broker.close()
