"""A reader of store folders that is too simple to be wrong.

It walks the log from its first byte with struct, checks each body, and computes what the queues
must contain. It trusts no derived file and shares no code with the product, so it decides when the
product and a manifest disagree, and it also reads stores without a manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame
from backports import zstd

MESSAGE_MAGICS = {0xDAA320A7: 1, 0xDAA320AB: 2}
BLANK_MAGIC = 0xCBD43194
DELAYS_S: tuple[int, ...] = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)

Json = Any


class PlainRecord:
    """One record, taken apart field by field."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        (self.size, magic, self.body_crc, self.queue_id, self.flag) = struct.unpack(
            ">iIiii", data[:20]
        )
        self.queue_offset, self.physical_offset, self.sys_flag, self.born_timestamp = struct.unpack(
            ">qqiq", data[20:48]
        )
        self.version = MESSAGE_MAGICS[magic]
        at = 48
        self.born_ip, self.born_port, at = self._host(at, self.sys_flag & 0x10)
        self.store_timestamp = int.from_bytes(data[at : at + 8], "big", signed=True)
        self.store_ip, self.store_port, at = self._host(at + 8, self.sys_flag & 0x20)
        self.reconsume_times, self.prepared_transaction_offset, body_length = struct.unpack(
            ">iqi", data[at : at + 16]
        )
        at += 16
        self.body = data[at : at + body_length]
        at += body_length
        width = 1 if self.version == 1 else 2
        topic_length = int.from_bytes(data[at : at + width], "big")
        self.topic = data[at + width : at + width + topic_length].decode()
        at += width + topic_length
        properties_length = int.from_bytes(data[at : at + 2], "big")
        text = data[at + 2 : at + 2 + properties_length].decode(errors="replace")
        self.whole = at + 2 + properties_length == len(data)
        self.properties = {
            name: value
            for segment in text.split("\x02")
            for name, separator, value in [segment.partition("\x01")]
            if name and separator and value
        }

    def _host(self, at: int, is_ipv6: int) -> tuple[bytes, int, int]:
        size = 16 if is_ipv6 else 4
        (port,) = struct.unpack(">i", self.data[at + size : at + size + 4])
        return self.data[at : at + size], port, at + size + 4

    @property
    def is_sound(self) -> bool:
        crc = zlib.crc32(self.body) & 0x7FFFFFFF
        return self.whole and (not self.body or crc == self.body_crc)

    @property
    def in_queue(self) -> bool:
        return self.sys_flag & 0xC in (0, 8)

    @property
    def tags_code(self) -> int:
        """As in the queue entry; for a delayed message, its delivery time."""
        level = int(self.properties.get("DELAY", "0"))
        if self.topic == "SCHEDULE_TOPIC_XXXX" and level > 0:
            return self.store_timestamp + DELAYS_S[level - 1] * 1000
        code = 0
        text = self.properties.get("TAGS", "").encode("utf-16-be")
        for at in range(0, len(text), 2):
            code = (31 * code + int.from_bytes(text[at : at + 2], "big")) % 2**32
        return code - 2**32 if code >= 2**31 else code

    @property
    def plain_body(self) -> bytes | None:
        if not self.sys_flag & 1:
            return None
        unpack: Callable[[bytes], bytes] = {
            0x000: zlib.decompress,
            0x100: lz4.frame.decompress,
            0x200: zstd.decompress,
            0x300: zlib.decompress,
        }[self.sys_flag & 0x700]
        return unpack(self.body)

    def as_message(self) -> Json:
        """As a manifest lists it."""
        store_id = self.store_ip + struct.pack(">iq", self.store_port, self.physical_offset)
        message = {
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "physicalOffset": self.physical_offset,
            "size": self.size,
            "version": self.version,
            "tagsCode": self.tags_code,
            "flag": self.flag,
            "sysFlag": self.sys_flag,
            "bornTimestamp": self.born_timestamp,
            "bornHost": f"{_ip_text(self.born_ip)}:{self.born_port}",
            "storeTimestamp": self.store_timestamp,
            "storeHost": f"{_ip_text(self.store_ip)}:{self.store_port}",
            "reconsumeTimes": self.reconsume_times,
            "preparedTransactionOffset": self.prepared_transaction_offset,
            "bodyCrc": self.body_crc,
            "bodyLength": len(self.body),
            "bodySha256": hashlib.sha256(self.body).hexdigest(),
            "tags": self.properties.get("TAGS"),
            "keys": self.properties.get("KEYS"),
            "uniqKey": self.properties.get("UNIQ_KEY"),
            "offsetMsgId": store_id.hex().upper(),
            "properties": self.properties,
        }
        plain = self.plain_body
        if plain is not None:
            message["plainBodyLength"] = len(plain)
            message["plainBodySha256"] = hashlib.sha256(plain).hexdigest()
        if plain is None and 0 < len(self.body) <= 96:
            with contextlib.suppress(UnicodeDecodeError):
                message["bodyText"] = self.body.decode()
        return message


class PlainStore:
    """The whole content of a store folder."""

    def __init__(self, root: Path, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        files = sorted((root / "commitlog").iterdir())
        self.min_offset = int(files[0].name) if files else 0
        self.end = self.min_offset
        self.records = list(self._walk(files))

    def _walk(self, files: list[Path]) -> Iterator[PlainRecord]:
        for file in files:
            data = file.read_bytes()
            at = 0
            while True:
                size, magic = struct.unpack(">iI", data[at : at + 8].ljust(8, b"\0"))
                if magic == BLANK_MAGIC:
                    break
                if magic not in MESSAGE_MAGICS or not 91 <= size <= len(data) - at:
                    return
                record = PlainRecord(data[at : at + size])
                if not record.is_sound:
                    return
                yield record
                at += size
                self.end = int(file.name) + at

    def commit_log(self) -> Json:
        """The manifest's key `commitLog`."""
        bases = range(self.min_offset, max(self.end, self.min_offset + 1), self.segment_bytes)
        return {
            "minOffset": self.min_offset,
            "maxOffset": self.end,
            "segments": [
                {"name": f"{base:020d}", "wrotePosition": min(self.end - base, self.segment_bytes)}
                for base in bases
            ],
            "records": len(self.records),
            "recordsSha256": hashlib.sha256(b"".join(r.data for r in self.records)).hexdigest(),
        }

    def topics(self) -> Json:
        """The manifest's key `topics`, without the answers to special questions."""
        queues: dict[tuple[str, int], list[PlainRecord]] = {}
        for record in self.records:
            if record.in_queue:
                queues.setdefault((record.topic, record.queue_id), []).append(record)
        topics: dict[str, Json] = {}
        for (topic, queue_id), records in sorted(queues.items()):
            first = records[0].queue_offset
            assert [r.queue_offset for r in records] == list(range(first, first + len(records)))
            entries = [struct.pack(">qiq", r.physical_offset, r.size, r.tags_code) for r in records]
            topics.setdefault(topic, {})[str(queue_id)] = {
                "minOffset": first,
                "maxOffset": first + len(records),
                "maxPhysicalOffset": records[-1].physical_offset + records[-1].size,
                "entriesSha256": hashlib.sha256(b"".join(entries)).hexdigest(),
                "recordsSha256": hashlib.sha256(b"".join(r.data for r in records)).hexdigest(),
                "messages": [r.as_message() for r in records],
            }
        return topics


def _ip_text(address: bytes) -> str:
    if len(address) == 4:
        return ".".join(str(part) for part in address)
    assert address == bytes(15) + b"\1", "only the loopback address occurs here"
    return "[::1]"
