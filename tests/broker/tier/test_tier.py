"""Full segments of a broker's log go to the tier, and stay on the disk until they are there."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest

from aerobee.broker.tier.feature import Tier
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.log.segment import segment_path
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.record import iterate_records
from aerobee.store.tier.chain import read_chain
from aerobee.store.tier.config import TierConfig
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.forgetting import forget
from aerobee.store.tier.manifest import Manifest
from aerobee.store.tier.restoring import restore
from aerobee.store.tier.uploads import find_manifest
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.waiting import until

SIZE = 4_096
BODY = b"x" * 600
STORE = StoreConfig(
    segment_bytes=SIZE,
    consume_queue_entries_per_file=10,
    disk_free_bytes_min=0,
    checkpoint_interval_ms=50,
    flush_interval_ms=20,
    retention=RetentionConfig(
        file_reserved_hours=0, first_clean_ms=3_600_000, delete_pause_ms=0, delete_files_max=1_000
    ),
)


class Place:
    """Where the tier is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.config = TierConfig(url=f"file://{folder}", local_delay_ms=0)
        self.objects = FolderObjects(folder, "aerobee/broker-a", SystemClock())

    def manifest(self, number: int) -> Manifest | None:
        return find_manifest(self.objects, number * SIZE)

    def chain(self) -> list[Manifest]:
        """From the first segment on."""
        found: list[Manifest] = []
        while (manifest := self.manifest(len(found))) is not None:
            found.append(manifest)
        return found

    def bytes_of(self, manifest: Manifest) -> bytes:
        return self.objects.read(manifest.object_name, 0, 2 * SIZE)

    def names(self) -> list[str]:
        return [
            found.name for prefix in ("chain/", "segments/") for found in self.objects.list(prefix)
        ]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "mount")


async def fill(broker: RunningBroker, messages: int) -> None:
    """Five or so fill a segment; returns once all is in its files."""
    for _ in range(messages):
        ack = await broker.send_bodies("t", 0, BODY)
        assert ack.code == common_pb2.OK, ack
    await until(lambda: broker.store.ledger.is_settled, "everything in its files")


async def uploaded(broker: RunningBroker, place: Place) -> list[Manifest]:
    """The chain once every full segment is in it."""
    full = len(broker.store.log.segments()) - 1
    await until(lambda: place.manifest(full - 1), f"{full} segments in the tier")
    return place.chain()


async def figure(broker: RunningBroker, name: str) -> int:
    """Once nothing is under way."""
    tier = broker.feature(Tier)
    await until(lambda: tier.is_resting, "uploads have ended")
    return int((await broker.figures(Tier))[name][()])


async def clean(broker: RunningBroker) -> broker_pb2.CleanStoreResponse:
    """What has expired goes, if nothing keeps it."""
    cleaned: broker_pb2.CleanStoreResponse = await broker.admin.CleanStore(
        broker_pb2.CleanStoreRequest()
    )
    return cleaned


async def test_full_segments_are_uploaded_as_they_are(
    start_broker: StartBroker, place: Place, tmp_path: Path
) -> None:
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 30)
    chain = await uploaded(broker, place)
    assert len(chain) >= 4
    for number, manifest in enumerate(chain):
        data = (tmp_path / "store" / segment_path(number * SIZE)).read_bytes()
        assert place.bytes_of(manifest) == data
        assert manifest.crc32 == crc32(data)
        if number:
            assert manifest.follows(chain[number - 1])
    assert len(place.names()) == 3 * len(chain)
    assert await figure(broker, "aerobee_tier_waiting_segments") == 0
    assert await figure(broker, "aerobee_tier_uploaded_bytes_total") == len(chain) * SIZE


async def test_a_restart_goes_on_where_the_chain_ends(
    start_broker: StartBroker, place: Place
) -> None:
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 20)
    before = await uploaded(broker, place)
    await broker.stop()
    again = await start_broker(store=STORE, tier=place.config)
    await fill(again, 10)
    chain = await uploaded(again, place)
    assert chain[: len(before)] == before
    assert all(this.follows(last) for last, this in pairwise(chain))
    assert await figure(again, "aerobee_tier_uploaded_segments_total") == len(chain) - len(before)


async def test_a_segment_stays_on_the_disk_until_it_is_in_the_tier(
    start_broker: StartBroker, place: Place
) -> None:
    away = place.folder.rename(place.folder.with_name("unmounted"))
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 20)
    report = await clean(broker)
    assert report.removed_segments == 0
    assert "unknown whether the log from offset 0 on is in the tier" in report.kept_because
    assert await figure(broker, "aerobee_tier_failures_total") == 1
    assert "aerobee_tier_waiting_segments" not in await broker.figures(Tier), "it is unknown"
    place.folder.mkdir()
    report = await clean(broker)
    assert report.removed_segments == 0
    assert "is not in the tier" in report.kept_because
    place.folder.rmdir()
    away.rename(place.folder)
    broker.feature(Tier).wake()
    chain = await uploaded(broker, place)
    report = await clean(broker)
    assert report.removed_segments == len(chain)
    assert report.log_min_offset == chain[-1].end


async def test_a_segment_stays_for_the_delay_after_its_upload(
    start_broker: StartBroker, place: Place
) -> None:
    late = replace(place.config, local_delay_ms=3_600_000)
    broker = await start_broker(store=STORE, tier=late)
    await fill(broker, 20)
    await uploaded(broker, place)
    report = await clean(broker)
    assert report.removed_segments == 0
    assert "less than tier.local_delay_ms" in report.kept_because


async def test_a_log_that_begins_later_continues_the_chain(
    start_broker: StartBroker, place: Place
) -> None:
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 20)
    before = await uploaded(broker, place)
    assert (await clean(broker)).removed_segments == len(before)
    await broker.stop()
    again = await start_broker(store=STORE, tier=place.config)
    await fill(again, 10)
    chain = await uploaded(again, place)
    assert len(chain) > len(before)
    assert chain[len(before)].follows(before[-1])


async def test_what_an_operator_removed_from_the_tier_is_not_uploaded_again_and_holds_nothing(
    start_broker: StartBroker, place: Place
) -> None:
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 30)
    chain = await uploaded(broker, place)
    await broker.stop()
    forget(place.objects, chain[:2], is_marked=True)
    again = await start_broker(store=STORE, tier=place.config)
    await fill(again, 10)
    full = len(again.store.log.segments()) - 1
    await until(lambda: place.manifest(full - 1), "the chain goes on")
    left = read_chain(place.objects)
    assert left.is_sound
    assert left.manifests[: len(chain) - 2] == chain[2:]
    assert (await clean(again)).removed_segments == full


async def test_another_logs_tier_is_left_alone_and_nothing_is_removed(
    start_broker: StartBroker, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await start_broker(store=STORE, tier=place.config)
    await fill(first, 20)
    await uploaded(first, place)
    await first.stop()
    names = place.names()
    other = await start_broker(root=tmp_path / "other", store=STORE, tier=place.config)
    await fill(other, 20)
    await until(lambda: "of another log than this broker's" in caplog.text)
    report = await clean(other)
    assert report.removed_segments == 0
    assert "set tier.url to a place of its own" in report.kept_because
    assert place.names() == names


async def test_left_overs_of_a_dead_master_go_with_the_next_upload(
    start_broker: StartBroker, place: Place
) -> None:
    left = "segments/00000000000000004096/0000000009-dead"
    place.objects.put(left, [b"half a segm"])
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 20)
    await uploaded(broker, place)
    await until(lambda: left not in place.names())


async def test_without_a_url_there_is_no_tier(start_broker: StartBroker) -> None:
    broker = await start_broker(store=STORE)
    await fill(broker, 20)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tier")]
    assert await broker.figures(Tier) == {}
    assert (await clean(broker)).removed_segments, "nothing keeps what has expired"


@pytest.mark.parametrize("url", ["tier", "ftp://x/y", "file://relative/path", "s3://"])
def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"tier\.url"):
        TierConfig(url=url)


async def test_a_broker_starts_over_what_was_restored_from_the_tier_alone(
    start_broker: StartBroker, place: Place, tmp_path: Path
) -> None:
    broker = await start_broker(store=STORE, tier=place.config)
    await fill(broker, 30)
    chain = await uploaded(broker, place)
    await clean(broker)
    await broker.stop()
    restore(place.objects, read_chain(place.objects).newest_part, RealDisk(tmp_path / "again"))
    again = await start_broker(root=tmp_path / "again", store=STORE, tier=place.config)
    assert (again.store.min_offset, again.store.appended_end) == (0, chain[-1].end)
    pulled = await again.pull.Pull(
        broker_pb2.PullRequest(topic="t", queue_id=0, offset=0, max_bytes=1 << 20, max_messages=99)
    )
    records = list(iterate_records(pulled.records))
    assert [record.queue_offset for record in records] == list(range(len(records)))
    assert len(records) >= 5 * len(chain), "all that was in full segments"
    await fill(again, 10)
    longer = await uploaded(again, place)
    assert longer[: len(chain)] == chain
    assert longer[len(chain)].follows(chain[-1]), "the chain goes on"
