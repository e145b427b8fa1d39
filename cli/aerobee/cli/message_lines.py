"""Messages as lines of text: what `produce` reads and `consume` prints.

As text a line is a body. As JSON a line is an object with `body` (text) or `bodyBase64`, and
optionally `tag`, `keys`, `properties`, `shardingKey`, and `delay`, `deliverAt` or `delayLevel`;
what `consume --format json` prints can be given to `produce --format json`, which ignores the
fields that only a stored message has. Any other field is refused, and so is one that is there
twice.

A line is read as soon as it is there, so a slow pipe is a slow stream of messages. Reading a
terminal or a pipe waits in the event loop, never in a thread, so that Ctrl-C ends it at once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aerobee.cli.moments import parse_delay_ms, parse_time_ms
from aerobee.client_core import Message, ReceivedMessage
from aerobee.runtime.config import nearest
from aerobee.runtime.errors import MessageIllegal
from aerobee.runtime.printable import printable, printable_json
from aerobee.store.format.reserved_properties import allowed_of

CHUNK_BYTES = 256 * 1024
FIELDS = (
    *("body", "bodyBase64", "tag", "keys", "properties", "shardingKey"),
    *("delay", "deliverAt", "delayLevel"),
)
"""Of a line to be sent."""
STORED_FIELDS = (
    *("topic", "broker", "queue", "offset", "messageId", "offsetMessageId"),
    *("bornMs", "storedMs", "reconsumeTimes"),
)
"""What a line of a stored message has besides: read back, it means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDefaults:
    """What every message gets, unless a JSON line says otherwise."""

    topic: str
    tag: str | None = None
    keys: tuple[str, ...] = ()
    sharding_key: str | None = None
    properties: Mapping[str, str] | None = None
    delay_ms: int | None = None
    """At most one of the three is set."""
    deliver_ms: int | None = None
    delay_level: int | None = None

    def message(
        self,
        body: bytes,
        *,
        tag: str | None,
        keys: tuple[str, ...],
        properties: Mapping[str, str] | None,
        sharding_key: str | None,
    ) -> Message:
        """Raises MessageIllegal."""
        delay_ms = self.delay_ms
        return Message(
            self.topic,
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            sharding_key=sharding_key,
            delay=None if delay_ms is None else timedelta(milliseconds=delay_ms),
            deliver_at=self.deliver_ms,
            delay_level=self.delay_level,
        )


def message_of_text(line: bytes, defaults: LineDefaults) -> Message:
    """A message with the line as its body.

    Raises:
        MessageIllegal: the line is empty, or tag, keys or properties cannot be stored.
    """
    return defaults.message(
        line,
        tag=defaults.tag,
        keys=defaults.keys,
        properties=defaults.properties,
        sharding_key=defaults.sharding_key,
    )


def message_of_json(line: bytes, defaults: LineDefaults) -> Message:
    """A message from one JSON object.

    Raises:
        MessageIllegal: no such object, or its values cannot be stored.
    """
    try:
        document = json.loads(line, object_pairs_hook=_without_twins)
    except ValueError as error:
        raise MessageIllegal(f"the line is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise MessageIllegal('the line is JSON but not an object: write {"body": ...}')
    for name in document:
        if name not in FIELDS and name not in STORED_FIELDS:
            hint = nearest(name, dict.fromkeys(FIELDS))
            raise MessageIllegal(f"the line has an unknown field {name!r}{hint}")
    return _with_delay(document, defaults).message(
        _body(document),
        tag=_text(document, "tag", defaults.tag),
        keys=_keys(document, defaults.keys),
        properties={**(defaults.properties or {}), **_properties(document)},
        sharding_key=_text(document, "shardingKey", defaults.sharding_key),
    )


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises MessageIllegal for a name that is there twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise MessageIllegal(f"the line has {name!r} twice: which one counts is not known")
        found[name] = value
    return found


def json_of_message(message: ReceivedMessage) -> bytes:
    """One line, without its end."""
    text = json.dumps(document_of_message(message), ensure_ascii=False)
    return printable_json(text).encode()


def text_of_message(message: ReceivedMessage) -> bytes:
    """The body as it is, for a pipe."""
    return message.body


def text_for_terminal(message: ReceivedMessage) -> bytes:
    """The body as one line that the terminal only shows; what is not UTF-8, as escapes."""
    return printable(message.body.decode("utf-8", "backslashreplace"), keep="\t").encode()


def document_of_message(message: ReceivedMessage) -> dict[str, object]:
    """What JSON shows of a message. Raises CorruptBody if its body cannot be decompressed."""
    document: dict[str, object] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "bornMs": message.born_timestamp_ms,
        "storedMs": message.store_timestamp_ms,
    }
    if message.reconsume_times:
        document["reconsumeTimes"] = message.reconsume_times
    if message.tag is not None:
        document["tag"] = message.tag
    if message.keys:
        document["keys"] = list(message.keys)
    own = {name: value for name, value in message.properties.items() if allowed_of(name) is None}
    if own:
        document["properties"] = own
    try:
        document["body"] = message.body.decode()
    except UnicodeDecodeError:
        document["bodyBase64"] = base64.b64encode(message.body).decode()
    return document


def _body(document: Mapping[str, Any]) -> bytes:
    text, encoded = document.get("body"), document.get("bodyBase64")
    if isinstance(text, str) and encoded is None:
        return text.encode()
    if isinstance(encoded, str) and text is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            raise MessageIllegal("bodyBase64 is not base64") from None
    raise MessageIllegal('the line needs either "body" or "bodyBase64", as a string')


def _text(document: Mapping[str, Any], name: str, default: str | None) -> str | None:
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise MessageIllegal(f"{name} must be a string")
    return value


def _keys(document: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    value = document.get("keys")
    if value is None:
        return default
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise MessageIllegal("keys must be a string or a list of strings")
    return tuple(words)


def _properties(document: Mapping[str, Any]) -> dict[str, str]:
    value = document.get("properties") or {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise MessageIllegal("properties must be an object of strings")
    return value


def _with_delay(document: Mapping[str, Any], defaults: LineDefaults) -> LineDefaults:
    """A line that says when it arrives says all of it: the options do not count beside it."""
    asked = {
        name: value
        for name in ("delay", "deliverAt", "delayLevel")
        if (value := document.get(name)) is not None
    }
    if not asked:
        return defaults
    if len(asked) > 1:
        raise MessageIllegal(f"{' and '.join(asked)} exclude each other: leave one of them out")
    ((name, value),) = asked.items()
    plain = replace(defaults, delay_ms=None, deliver_ms=None, delay_level=None)
    if name == "delayLevel":
        if type(value) is not int or value < 1:
            raise MessageIllegal("delayLevel must be a whole number from 1 on")
        return replace(plain, delay_level=value)
    if name == "deliverAt" and type(value) is int:
        return replace(plain, deliver_ms=value)
    if not isinstance(value, str):
        raise MessageIllegal(f"{name} must be a string, as the option of produce takes it")
    try:
        if name == "delay":
            return replace(plain, delay_ms=parse_delay_ms(value))
        return replace(plain, deliver_ms=parse_time_ms(value))
    except ValueError as error:
        raise MessageIllegal(str(error)) from None


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lists of whole lines without their ends; the last line need not end with one.

    Both `\\n` and `\\r\\n` end a line.
    """
    pending = b""
    chunks = _stream_chunks(descriptor) if _can_wait(descriptor) else _file_chunks(descriptor)
    async for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if pending:
        yield [pending.removesuffix(b"\r")]


def _can_wait(descriptor: int) -> bool:
    """Whether the kernel can tell when there is something to read; regular files always have."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def _file_chunks(descriptor: int) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(os.read, descriptor, CHUNK_BYTES):
        yield chunk


async def _stream_chunks(descriptor: int) -> AsyncIterator[bytes]:
    while True:
        await _wait_readable(descriptor)
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            continue
        if not chunk:
            return
        yield chunk


async def _wait_readable(descriptor: int) -> None:
    # Watched only while wanted: data that waits for a slow reader must not keep the loop busy.
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
