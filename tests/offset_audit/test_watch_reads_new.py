"""A watch reads only what is new, and finds what a run finds that reads everything."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerobee.bench.audit.generated_store import GeneratedStore
from aerobee.cluster_view.methods import COMMIT_OFFSETS
from aerobee.offset_audit.run.kept import Kept
from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.progress import SilentProgress
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.offset_audit.run.watch import FULL_EVERY_S, watch
from aerobee.offset_audit.sources.live import journal
from aerobee.offset_audit.sources.live.asking import BrokerAddress
from aerobee.offset_audit.sources.live.journal import KnownJournal, LiveJournalReader
from aerobee.offset_audit.sources.live.options import parse_options
from aerobee.offset_audit.sources.store.journal_entries import JournalRecord
from aerobee.offset_audit.tables import LOG_RANGE_BYTES
from aerobee.runtime.clock import ManualClock, system_random
from aerobee.v1 import broker_pb2
from tests.offset_audit.damages.auditing import audit
from tests.support.real_brokers import RealCluster, start_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MIB = 1 << 20
BODY_BYTES = 64 * 1024
SMALL, LARGE = 32 * MIB, 1024 * MIB
"""Lengths of a segment: many that are full, or one that is not."""


# ------------------------------------------------------------------------------ stores


def bytes_read() -> int:
    """By this process, from files of any kind."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


class Growing:
    """The store of a broker that runs."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self.root = folder / "store"
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._made(self.root, 130)
        (self.root / "abort").touch()

    def grow(self, mib: int) -> None:
        """Up to so much; what was written before stays untouched."""
        longer = self._folder / "longer"
        self._made(longer, mib)
        for path in sorted(longer.rglob("*")):
            here = self.root / path.relative_to(longer)
            if path.is_dir():
                here.mkdir(exist_ok=True)
            else:
                write_over(path, here)
        shutil.rmtree(longer)

    def _made(self, root: Path, mib: int) -> None:
        GeneratedStore(
            root,
            mib * MIB // (BODY_BYTES + 256),
            body_bytes=BODY_BYTES,
            topics=2,
            queues_each=2,
            segment_bytes=self._segment_bytes,
            queue_file_entries=500,
            messages_per_ms=1 / 2_000,
        ).write()

    @property
    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def flip(self, segment: int, at: int) -> None:
        with self.segments[segment].open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1]))


def write_over(source: Path, target: Path) -> None:
    """As a broker appends: only bytes that differ are written, and a file that has none is not
    touched."""
    if not target.exists():
        target.touch()
    with source.open("rb") as new, target.open("r+b") as old:
        # After the first hole there is nothing.
        while (data := new.read(MIB)) and any(data):
            if old.read(len(data)) != data:
                old.seek(new.tell() - len(data))
                old.write(data)
        if target.stat().st_size != source.stat().st_size:
            old.truncate(source.stat().st_size)


class Watched:
    """Runs of one watch over a store, beside runs that read everything."""

    def __init__(self, store: Growing) -> None:
        self.kept = Kept()
        self._request = AuditRequest(
            stores=(StorePlace(str(store.root)),),
            is_deep=True,
            source_options={"partitionBytes": str(LOG_RANGE_BYTES)},
        )

    def run(self, *, is_full: bool = False) -> tuple[set[tuple[Any, ...]], int]:
        """Its findings, and how many bytes it read."""
        self.kept.begin(is_full=is_full)
        return self._run(LocalRun(None, self.kept))

    def anew(self) -> tuple[set[tuple[Any, ...]], int]:
        """The same by a run that knows of no other."""
        return self._run(LocalRun())

    def _run(self, engine: LocalRun) -> tuple[set[tuple[Any, ...]], int]:
        before = bytes_read()
        summary = audit(engine, self._request)
        read = bytes_read() - before
        names = ("check", "severity", "broker_name", "topic", "queue_id", "evidence", "affected")
        return {tuple(one[name] for name in names) for one in summary.findings}, read


def test_the_next_run_reads_only_what_is_new(tmp_path: Path) -> None:
    store = Growing(tmp_path, SMALL)
    watched = Watched(store)
    watched.anew()  # what Python itself reads, once
    first, read_first = watched.run()
    store.grow(140)
    found, read = watched.run()
    everything, read_all = watched.anew()
    assert found == everything
    assert first <= found
    # What is before the last whole range of the log was read for its records and their checksum.
    old = 128 * MIB
    assert 2 * old < read_first < 3 * old
    assert read < read_all - 1.8 * old
    # The newest segment, of 12 MiB, several times: its end, its tail, waiting messages, a journal.
    assert read < 2 * old
    assert watched.kept.spared_bytes >= old
    shutil.rmtree(store.root)


def test_what_happens_to_old_parts_is_found_as_if_all_were_read(tmp_path: Path) -> None:
    store = Growing(tmp_path, SMALL)
    watched = Watched(store)
    sound, _ = watched.run()
    store.flip(0, 20 * BODY_BYTES)
    damaged, read = watched.run()
    assert damaged == watched.anew()[0]
    assert {one[0] for one in damaged - sound} == {"CORRUPT"}
    assert read < 400 * MIB  # one part of 64 MiB three times, and the newest segment
    assert watched.run()[0] == damaged

    store.flip(0, 20 * BODY_BYTES)
    assert watched.run()[0] == sound
    times = os.stat(store.segments[1])
    store.flip(1, 30 * BODY_BYTES)
    os.utime(store.segments[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    assert watched.run()[0] == watched.anew()[0] != sound

    store.grow(140)
    store.segments[0].unlink()
    assert watched.run()[0] == watched.anew()[0]
    shutil.rmtree(store.root)


def test_damage_to_the_newest_segment_is_seen_by_the_next_full_run(tmp_path: Path) -> None:
    store = Growing(tmp_path, LARGE)
    watched = Watched(store)
    sound, _ = watched.run()
    store.flip(0, 20 * BODY_BYTES)
    assert watched.run()[0] == sound
    damaged, _ = watched.run(is_full=True)
    assert damaged == watched.anew()[0]
    assert {one[0] for one in damaged - sound} == {"CORRUPT"}
    shutil.rmtree(store.root)


def test_a_watch_reads_everything_once_an_hour(tmp_path: Path) -> None:
    clock = ManualClock()
    begun: list[bool] = []

    class Noted(Kept):
        def begin(self, *, is_full: bool) -> None:
            begun.append(is_full)

    def seen(*_: object) -> None:
        clock.advance_ms(FULL_EVERY_S * 500)

    GeneratedStore(tmp_path / "store", 10, topics=1, queues_each=1, segment_bytes=MIB).write()
    request = AuditRequest(stores=(StorePlace(str(tmp_path / "store")),), watch_s=1)
    engine = LocalRun(None, Noted())
    chance = system_random()
    progress = SilentProgress()
    watch(engine, request, seen, clock=clock, chance=chance, progress=progress, looks_max=5)
    assert begun == [True, False, True, False, True]


# ------------------------------------------------------------------------------ journals


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    found = await start_cluster(tmp_path, {"broker-a": {"orders": 1}})
    await found.send("orders", 0, [b"x"] * 10, broker="broker-a")
    try:
        yield found
    finally:
        await found.stop()


async def commit(cluster: RealCluster, offset: int) -> None:
    queue = broker_pb2.QueueOffset(topic="orders", queue_id=0, offset=offset)
    request = broker_pb2.CommitOffsetsRequest(group="billing", client_id="c1", offsets=[queue])
    answer = await cluster.channels.call(cluster.address_of("broker-a"), COMMIT_OFFSETS, request)
    assert [result.code for result in answer.results] == [1]


class Journal:
    """Of the one broker, as a watch reads it."""

    def __init__(self, cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = cluster.address_of("broker-a")
        self.pulled: list[int] = []
        """Offsets of the records that the last reading got."""
        really = journal.pull_records

        async def noted(*given: Any) -> AsyncIterator[list[JournalRecord]]:
            async for records in really(*given):
                self.pulled += [record.journal_offset for record in records]
                yield records

        monkeypatch.setattr(journal, "pull_records", noted)

    async def read(
        self, known: KnownJournal | None = None, **given: str
    ) -> tuple[list[Any], KnownJournal | None]:
        self.pulled.clear()
        options = {"brokers": self.address, "skipUnreachable": "true", **given}
        reader = LiveJournalReader(parse_options(options))
        return await asyncio.to_thread(reader.read_on, BrokerAddress(self.address, ""), known)


async def test_a_journal_is_pulled_from_where_it_was_left(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Journal(cluster, monkeypatch)
    await commit(cluster, 3)
    await commit(cluster, 4)
    first, known = await of.read()
    assert known is not None
    assert [row["offset"] for row in first if row["kind"] == "commit"] == [3, 4]
    end = known.last.journal_offset
    await commit(cluster, 7)
    again, later = await of.read(known)
    assert of.pulled == list(range(end + 1, end + 1 + len(of.pulled)))
    assert again == (await of.read())[0]
    assert len(again) > len(first)
    nothing_new, _ = await of.read(later)
    assert nothing_new == again
    assert not of.pulled


async def test_another_journal_and_one_that_is_too_old_are_read_anew(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Journal(cluster, monkeypatch)
    await commit(cluster, 3)
    rows, known = await of.read()
    assert known is not None
    other = KnownJournal(replace(known.last, body=b"[]"), [{**rows[0], "offset": 1_000}])
    assert (await of.read(other))[0] == rows
    beyond = KnownJournal(replace(known.last, journal_offset=1_000), rows)
    assert (await of.read(beyond))[0] == rows
    (last, *_) = (row["timestamp_ms"] for row in reversed(rows))
    assert (await of.read(known, sinceMs=str(last + 1_000_000)))[0] == []


async def test_a_journal_whose_broker_has_gone_gives_nothing_that_was_known(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Journal(cluster, monkeypatch)
    await commit(cluster, 3)
    _, known = await of.read()
    await cluster.brokers["broker-a"].stop()
    assert await of.read(known, timeoutMs="700") == ([], None)
