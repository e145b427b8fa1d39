"""Records written the slow way, message strategies, and the golden commit logs.

`reference` encodes a record field by field and shares nothing with the product but the spec: it is
the judge of encoders, views, batches and scans.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

from aerobee.store.format.record import HostAddress
from tests.support.golden_log import GOLDEN_NAMES, GoldenLog

IPV4 = HostAddress(bytes([10, 0, 0, 5]), 10911)
IPV6 = HostAddress(bytes.fromhex("20010db8000000000000000000000001"), 10911)


@dataclass(frozen=True)
class Message:
    """What a sender decides about a record."""

    topic: bytes = b"TopicTest"
    body: bytes = b"body"
    properties: bytes = b"TAGS\x01TagA\x02"
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: HostAddress = IPV4
    store_host_ipv6: bool = False
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def whole_sys_flag(self) -> int:
        """With the bits that follow from the hosts."""
        return (
            (self.sys_flag & ~0x30)
            | (0x10 if self.born_host.is_ipv6 else 0)
            | (0x20 if self.store_host_ipv6 else 0)
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """For `encode_record`."""
        return {
            "topic": self.topic,
            "body": self.body,
            "properties": self.properties,
            "flag": self.flag,
            "sys_flag": self.sys_flag,
            "born_timestamp_ms": self.born_timestamp,
            "born_host": self.born_host,
            "store_host_ipv6": self.store_host_ipv6,
            "reconsume_times": self.reconsume_times,
            "prepared_transaction_offset": self.prepared_transaction_offset,
        }


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def reference_record(
    message: Message,
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp: int = 0,
    store_host: HostAddress | None = None,
    version: int | None = None,
) -> bytes:
    if version is None:
        version = 2 if len(message.topic) > 127 else 1
    if store_host is None:
        store_host = HostAddress(bytes(16 if message.store_host_ipv6 else 4), 0)
    after_size = b"".join(
        [
            bytes.fromhex("daa320a7" if version == 1 else "daa320ab"),
            _number(zlib.crc32(message.body) & 0x7FFFFFFF, 4),
            _number(queue_id, 4),
            _number(message.flag, 4),
            _number(queue_offset, 8),
            _number(physical_offset, 8),
            _number(message.whole_sys_flag, 4),
            _number(message.born_timestamp, 8),
            message.born_host.ip + _number(message.born_host.port, 4),
            _number(store_timestamp, 8),
            store_host.ip + _number(store_host.port, 4),
            _number(message.reconsume_times, 4),
            _number(message.prepared_transaction_offset, 8),
            _number(len(message.body), 4) + message.body,
            len(message.topic).to_bytes(version, "big") + message.topic,
            _number(len(message.properties), 2) + message.properties,
        ]
    )
    return _number(4 + len(after_size), 4) + after_size


@pytest.fixture(scope="session")
def reference() -> Callable[..., bytes]:
    """reference(message, **stamped fields) -> the record's bytes."""
    return reference_record


@pytest.fixture(scope="session")
def message_type() -> type[Message]:
    return Message


_I32 = st.integers(-(1 << 31), (1 << 31) - 1)
_I64 = st.integers(-(1 << 63), (1 << 63) - 1)
_PORT = st.integers(0, 65_535)
_HOSTS = st.builds(
    HostAddress, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), _PORT
)
# Pieces from which legal, odd and broken properties are made.
_PROPERTY_PIECES = (
    b"TAGS\x01TagA\x02",
    b"TAGS\x01\xe8\xae\xa2\x02",
    b"TAGS\x01\x02",
    b"TAGS\x01",
    b"XTAGS\x01no\x02",
    b"A\x01TAGS\x01x\x02",
    b"KEYS\x01order-1  order-2\x02",
    b"UNIQ_KEY\x01C0A8\x02",
    b"DELAY\x013\x02",
    b"DELAY\x0199\x02",
    b"DELAY\x01no\x02",
    b"\x01",
    b"\x02",
    b"TAGS",
    b"\xff",
    b"a",
)


@pytest.fixture(scope="session")
def property_bytes() -> st.SearchStrategy[bytes]:
    """Properties as bytes, from well-formed to nonsense."""
    return st.lists(st.sampled_from(_PROPERTY_PIECES), max_size=8).map(b"".join)


@pytest.fixture(scope="session")
def messages(property_bytes: st.SearchStrategy[bytes]) -> st.SearchStrategy[Message]:
    """Messages of every kind: hosts of both families, all flags, versions 1 and 2."""
    return st.builds(
        Message,
        topic=st.sampled_from([b"T", b"TopicTest", b"%RETRY%" + b"g" * 140, "主题".encode()]),
        body=st.binary(max_size=64),
        properties=property_bytes,
        flag=_I32,
        sys_flag=_I32,
        born_timestamp=_I64,
        born_host=_HOSTS,
        store_host_ipv6=st.booleans(),
        reconsume_times=_I32,
        prepared_transaction_offset=_I64,
    )


@pytest.fixture(scope="session")
def hosts() -> st.SearchStrategy[HostAddress]:
    return _HOSTS


@pytest.fixture(scope="session", params=GOLDEN_NAMES)
def golden_log(request: pytest.FixtureRequest) -> GoldenLog:
    return GoldenLog(request.param)
