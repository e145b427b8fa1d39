"""Messages are the same however the peer cuts them into frames."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from aerobee.rpc.core.inbox import Inbox, compressed
from aerobee.rpc.core.status import RpcError


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize("seed", range(20))
def test_messages_that_are_cut_anywhere_come_out_whole(seed: int) -> None:
    chance = random.Random(seed)
    messages = [chance.randbytes(chance.choice((0, 1, 4, 900, 3_000, 70_000))) for _ in range(40)]
    flags = [chance.randrange(2) for _ in messages]
    sent = b"".join(
        framed(compressed(message) if flag else message, flag)
        for message, flag in zip(messages, flags, strict=True)
    )
    inbox = Inbox(1 << 20, b"gzip", decompressed_bytes_max=1 << 20)
    at = 0
    while at < len(sent):
        end = min(len(sent), at + chance.choice((0, 1, 3, 700, 1_100, 16_384)))
        before, after = chance.randbytes(chance.randrange(12)), b"more"
        inbox.feed(before + sent[at:end] + after, len(before), len(before) + end - at)
        at = end
    assert (inbox.size, inbox.missing, inbox.partial) == (len(sent), 0, [])
    assert [inbox.plain(inbox.pop()[0]) for _ in messages] == messages
    assert (inbox.size, inbox.overhead, inbox.messages) == (0, 0, ())


def test_bytes_that_come_one_by_one_do_not_hold_more_than_they_are() -> None:
    inbox = Inbox(1 << 20, b"", decompressed_bytes_max=0)
    inbox.feed(framed(bytes(100_000))[:5], 0, 5)
    for _ in range(99_999):
        inbox.feed(b"x", 0, 1)
    assert inbox.missing == 1
    held = sum(map(sys.getsizeof, inbox.partial)) + sys.getsizeof(inbox.partial)
    assert held < 110_000


def test_a_message_beyond_the_limit_is_refused_by_its_prefix() -> None:
    inbox = Inbox(10, b"", decompressed_bytes_max=0)
    inbox.feed(framed(b"x" * 11)[:3], 0, 3)
    with pytest.raises(RpcError, match="11 bytes"):
        inbox.feed(framed(b"x" * 11)[3:], 0, 13)


def test_of_a_compressed_message_no_more_is_made_than_one_turn_can_bear() -> None:
    """16 MiB of zeros come in 16 KiB, and took up to 150 ms in one turn of the event loop."""
    inbox = Inbox(32 << 20, b"gzip", decompressed_bytes_max=4 << 20)
    inbox.feed(sent := framed(compressed(bytes(4 << 20)), 1), 0, len(sent))
    bomb = framed(compressed(bytes(16 << 20)), 1)
    tracemalloc.start()
    try:
        inbox.feed(bomb, 0, len(bomb))
        assert len(inbox.plain(inbox.pop()[0])) == 4 << 20
        with pytest.raises(RpcError, match=r"more than 4194304 bytes .* uncompressed"):
            inbox.plain(inbox.pop()[0])
        _, held_max = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # zlib makes it in parts, and joins them.
    assert held_max < 9 << 20
