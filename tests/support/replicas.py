"""A master's log as a slave receives it, and what must be equal on both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aerobee.store.engine.message_store import MessageStore
from tests.support.stores import check_agreement


def log_bytes(store: MessageStore, start: int | None = None, end: int | None = None) -> bytes:
    """The log from `start` to `end` or its end, including blanks and what follows them."""
    start = store.min_offset if start is None else start
    position = start
    parts = []
    while (piece_end := store.log.contiguous_end(position)) > position:
        parts.append(store.log.record_at(position, piece_end - position))
        position = piece_end
    data = b"".join(parts)
    return data if end is None else data[: end - start]


def chunks_of(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """`data` cut into pieces of these sizes; the last piece takes the rest."""
    at = 0
    for size in sizes:
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size
    if at < len(data):
        yield data[at:]


def replicate(
    master: MessageStore, slave: MessageStore, sizes: Iterable[int] = (), *, confirm: bool = True
) -> None:
    """Bring the slave to the master's end, and let it dispatch all."""
    position = slave.replicated.begin()
    for chunk in chunks_of(log_bytes(master, position), sizes):
        slave.replicated.append(position, chunk)
        position += len(chunk)
    if confirm:
        slave.confirm(slave.appended_end)


def check_equal(master: MessageStore, slave: MessageStore) -> None:
    """Logs, queues and watermarks of two stores in which everything is confirmed."""
    assert slave.appended_end == master.appended_end
    assert slave.dispatched_end == slave.appended_end
    assert log_bytes(slave) == log_bytes(master)
    assert slave.queues.names() == master.queues.names()
    for topic, queue_id in master.queues.names():
        bounds = master.queues.bounds(topic, queue_id)
        assert slave.queues.bounds(topic, queue_id) == bounds
        count = bounds.max_offset - bounds.min_offset
        wanted = topic, queue_id, bounds.min_offset, count
        assert slave.queues.read_entries(*wanted) == master.queues.read_entries(*wanted)
    assert [info.header for info in slave.index.files_with_pending()] == [
        info.header for info in master.index.files_with_pending()
    ]
    assert slave.statistics().last_store_timestamp_ms == master.statistics().last_store_timestamp_ms
    check_agreement(slave)
