"""A group that reads old messages as fast as it gets them, in a process of its own.

Run as `python -m aerobee.bench.catch_up_reader`; it goes over the queues again and again until it
is killed, and drops the files from the page cache before each round. It decodes nothing: what is
measured is what its reading does to others.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc

from aerobee.bench.page_cache import drop_from_page_cache, sealed_files
from aerobee.runtime.rpc import CHANNEL_OPTIONS
from aerobee.v1 import broker_pb2, broker_pb2_grpc

CREDIT_BYTES = 4 * 1024 * 1024


async def read_again_and_again(broker: str, topic: str, queues: int, store: Path) -> None:
    """Read each queue up to its end; says so on standard output once it has begun."""
    async with grpc.aio.insecure_channel(broker, options=list(CHANNEL_OPTIONS)) as channel:
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
