"""Odd requests at a whole broker, by every code that it serves: none is answered by a bug."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from typing import Any

import pytest

from aerobee.remoting_core.command import Command, Encoding
from aerobee.rocketmq_remoting.codes import Ask
from tests.broker.conftest import RunningBroker
from tests.support.remoting_peer import Peer, peer_at

SERVED = (10, 11, 12, 14, 15, 17, 21, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 46,
          200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 300, 303, 305, 307, 309, 310, 314, 315,
          320, 324, 325, 328, 343, 345, 351, 352, 361, 370, 400, 401, 3004, 3005, 3009,
          3010, 200050, 200051, 200053, 200054, 200055, 200151)  # fmt: skip
NAMES = ("topic", "consumerGroup", "group", "producerGroup", "queueId", "queueOffset", "sysFlag",
         "maxMsgNums", "maxMsgBytes", "commitOffset", "suspendTimeoutMillis", "subscription",
         "expressionType", "subVersion", "bornTimestamp", "flag", "properties", "reconsumeTimes",
         "offset", "delayLevel", "maxReconsumeTimes", "timestamp", "boundaryType", "key", "maxNum",
         "beginTimestamp", "endTimestamp", "_UNIQUE_KEY_QUERY", "clientID", "commitLogOffset",
         "tranStateTableOffset", "commitOrRollback", "recallHandle", "setZeroIfNotFound",
         "srcGroup", "destGroup", "groupName", "statsName", "statsKey", "writeQueueNums",
         "readQueueNums", "perm", "order", "attributes", "clientId", "clientAddr", "msgId",
         "isForce", "cleanOffset", "defaultTopic", "invisibleTime", "initMode", "exp",
         "expType", "attemptId", "extraInfo", "suspend",
         *"abcdefghijklm")  # fmt: skip
HONEST: dict[str, tuple[str, ...]] = {
    "topic": ("t", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "absent"),
    "b": ("t", "%DLQ%g"),
    "queueId": ("0", "-1", "3"),
    "e": ("0", "-1", "4"),
    "maxMsgNums": ("32", "1"),
    "suspendTimeoutMillis": ("1",),
    "sysFlag": ("0", "1", "2", "4", "7", "12"),
    "properties": ("TAGS\x01a\x02", "TRAN_MSG\x01true\x02PGROUP\x01g", "DELAY\x0118\x02"),
    "i": (
        "KEYS\x01k",
        "UNIQ_KEY\x01é\x02",
        "TIMER_DELAY_MS\x01999999999999999\x02",
        "\x01\x02\x01",
    ),
    "expressionType": ("TAG", "SQL92"),
    "expType": ("TAG", "SQL92"),
    "exp": ("*", "a", "a > 1", "a >"),
    "invisibleTime": ("0", "1", "1000"),
    "extraInfo": (
        "0 1 1 0 0 broker-a 0 0",
        "0 1 1 3 1 broker-a 0 0",
        "-5 1 1 999 2 broker-a 3 7",
        "0 1 1 9 0 broker-a 0 0",
    ),
    "subscription": ("*", "a||b", "a > 1 AND", "||"),
}
ODD = (
    "",
    "0",
    "-1",
    "1",
    "x",
    "9" * 18,
    "-" + "9" * 18,
    "9" * 19,
    "1e9",
    "true",
    "\x00",
    "é",
    "中" * 40,
    "a" * 5_000,
    "g",
    "t",
    "%RETRY%",
    "..",
    "\ud7ff",
    "NaN",
    "2147483648",
    "9223372036854775807",
)
OBJECTS: tuple[Any, ...] = (
    None, 0, -1, "x", "", [], {}, [[]], [{}], {"topic": "t"}, "g", 1 << 70, 1.5, True,
    [{"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "a b ||"}]}],
    [{"brokerName": "broker-a", "topic": "t", "queueId": 0}],
    {"subString": "x >", "expressionType": "SQL92"},
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": -1, "max": 1 << 70}},
    {"type": "CUSTOMIZED", "customizedRetryPolicy": [1]},
    "POP", "PULL", "broker-a", "t",
    [{"c": "g", "t": "t", "r": "1", "so": 0, "q": 0, "rq": 1, "pt": 1, "it": 1, "b": "gAAI"}],
    [{"c": "g", "t": "t", "r": "0", "so": -9, "q": 1 << 9, "rq": 9, "pt": 1, "it": 1, "b": "/w=="}],
)  # fmt: skip
MEMBERS = ("clientID", "clientId", "consumerGroup", "producerDataSet", "consumerDataSet", "mqSet",
           "subscriptionData", "heartbeatFingerprint", "withoutSub", "groupName", "retryMaxTimes",
           "groupRetryPolicy", "consumeEnable", "brokerName", "acks", "mode", "topic")  # fmt: skip


def odd_request(chance: random.Random) -> Command:
    fields = {}
    for name in chance.sample(NAMES, chance.randrange(len(NAMES))):
        honest = HONEST.get(name)
        fields[name] = chance.choice(honest if honest and chance.random() < 0.7 else ODD)
    fields["pollTime"] = chance.choice(("", "0", "1", "-1"))  # others wait for up to a minute
    code = chance.choice(SERVED)
    encodings = (Encoding.JSON, Encoding.BINARY) if code < 1 << 15 else (Encoding.JSON,)
    return Command(code, fields, odd_body(chance), encoding=chance.choice(encodings))


def odd_body(chance: random.Random) -> bytes:
    match chance.randrange(4):
        case 0:
            return b""
        case 1:
            return chance.randbytes(chance.randrange(60))
        case 2:
            one = struct.pack(">iiiii", 24, 0, 0, 0, 2) + b"hi" + b"\0\0"
            return one * chance.randrange(3) + one[: chance.randrange(len(one))]
        case _:
            found = {
                name: chance.choice(OBJECTS)
                for name in chance.sample(MEMBERS, chance.randrange(len(MEMBERS)))
            }
            return json.dumps(found).encode()


async def campaign(peer: Peer, count: int, first_seed: int) -> None:
    for seed in range(first_seed, first_seed + count):
        request = odd_request(random.Random(seed))
        answer = await peer.client.ask(request, timeout_s=30)
        assert "bug" not in answer.remark, (seed, request, answer)


def test_every_code_that_is_served_is_fuzzed(broker: RunningBroker) -> None:
    """Except what nameservers answer, and what only brokers ask."""
    others = {39, 40, 102, 105, 106, 205, 206, 216, 220, 221, 224, 304, 326, 327}
    others |= {*range(3001, 3004), *range(3006, 3009)}
    assert {int(each) for each in Ask} - others == set(SERVED)


async def test_odd_requests_are_answered_and_the_broker_goes_on(broker: RunningBroker) -> None:
    async with peer_at(broker.port) as peer:
        async with asyncio.timeout(100):
            await campaign(peer, 1_500, first_seed=1)
        assert (await peer.send("t", b"honest")).code == 0


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_many_odd_requests_are_answered(broker: RunningBroker) -> None:
    async with peer_at(broker.port) as peer:
        await campaign(peer, 30_000, first_seed=1_000_000)
