"""A client of grpc_core in a separate process, which can be killed in the middle of its calls.

python -m tests.support.grpc_core_visitor ADDRESS
"""

from __future__ import annotations

import asyncio
import sys

from tests.support.grpc_core_channel import channel_to
from tests.support.grpc_core_server import SERVICE


async def _visit(address: str) -> None:
    """300 calls: some sleep, some are answered with more than is read, some are bidirectional."""
    async with channel_to(address) as channel:
        calls = [channel.start(SERVICE + "Sleep", b"") for _ in range(100)]
        answers = [channel.stream(SERVICE + "Forever", b"") for _ in range(100)]
        chats = [channel.stream(SERVICE + "Chat") for _ in range(100)]
        await asyncio.gather(*[call.answer for call in calls])
        assert answers, chats


if __name__ == "__main__":
    asyncio.run(_visit(sys.argv[1]))
