"""A group that reads old messages as fast as it gets them, in a separate process.

Run as `python -m aerobee.bench.catch_up_reader`; it reads all queues in a loop until it is killed,
and drops the files from the page cache before each round. It decodes nothing: the benchmark
measures what its reading does to others.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from aerobee.bench.grpcio_client import grpcio_channel
from aerobee.v1 import broker_pb2, broker_pb2_grpc

CREDIT_BYTES = 4 * 1024 * 1024


def sealed_files(store: Path) -> list[Path]:
    """A store's log segments except the one being written, and its consume queues."""
    segments = sorted((store / "commitlog").iterdir())
    queues = [path for path in sorted((store / "consumequeue").rglob("*")) if path.is_file()]
    return [*segments[:-1], *queues]


def drop_from_page_cache(files: Iterable[Path]) -> int:
    """Sync the files and drop them from the page cache; returns the number of bytes."""
    dropped = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            dropped += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return dropped


async def read_again_and_again(broker: str, topic: str, queues: int, store: Path) -> None:
    """Read each queue up to its end, repeatedly; prints a line once it has begun."""
    async with grpcio_channel(broker) as channel:
        has_begun = False
        stub = broker_pb2_grpc.PullServiceStub(channel)
        while True:
            drop_from_page_cache(sealed_files(store))
            call = stub.PullStream()
            for queue_id in range(queues):
                request = broker_pb2.PullRequest(
                    topic=topic, queue_id=queue_id, group="catching-up"
                )
                await call.write(
                    broker_pb2.PullCommand(
                        subscribe=broker_pb2.SubscribeQueue(
                            handle=queue_id, request=request, credit_bytes=CREDIT_BYTES
                        )
                    )
                )
            left = queues
            while left:
                frame = await call.read()
                if not has_begun:
                    print("reading", flush=True)
                    has_begun = True
                size = len(frame.result.records)
                if frame.result.next_offset >= frame.result.max_offset:
                    left -= 1
                    continue
                credit = broker_pb2.GrantCredit(handle=frame.handle, bytes=size)
                await call.write(broker_pb2.PullCommand(credit=credit))
            call.cancel()


if __name__ == "__main__":
    address, topic_name, queue_count, store_folder = sys.argv[1:]
    asyncio.run(read_again_and_again(address, topic_name, int(queue_count), Path(store_folder)))
