"""A load for Kafka by librdkafka: `librdkafka_load FOLDER ADDRESS BODY_BYTES PARTITIONS`.

FOLDER has the unpacked wheel `confluent-kafka`. Reads one part per line from standard input, as
JSON, and answers each with one line.
"""

from __future__ import annotations

import functools
import importlib
import json
import struct
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers.meter import Meter
from peers.parts import Answer, Part, Way

SENT_AT = struct.Struct(">d")
TIMEOUT_S = 10.0
READ_MESSAGES = 10_000
READ_WAIT_S = 0.05


class LibrdkafkaLoad:
    """A client for each part; blocks."""

    def __init__(self, folder: Path, address: str, body_bytes: int, partitions: int) -> None:
        # Only here: no other Aerobee program has it.
        sys.path.insert(0, str(folder / "wheel"))
        self._kafka: Any = importlib.import_module("confluent_kafka")
        self._settings = {"bootstrap.servers": address, "socket.nagle.disable": True}
        self._body = bytes(body_bytes)
        self._partitions = partitions
        self._sent = 0
        admin = importlib.import_module("confluent_kafka.admin")
        topics = [admin.NewTopic(name, partitions, 1) for name in ("bench", "steady")]
        client = admin.AdminClient(self._settings)
        for created in client.create_topics(topics).values():
            created.result()

    def run(self, part: Part) -> Answer:
        """Measure one part."""
        match part.way:
            case Way.SINGLE | Way.BATCHED:
                return self._send(part, part.in_flight * part.batch)
            case Way.STEADY:
                return self._steady(part)
            case Way.READ:
                return self._read(part)
            case _:
                raise ValueError(f"{part.way} is for other loads")

    def _producer(self, linger_ms: int) -> Any:
        return self._kafka.Producer({**self._settings, "acks": "all", "linger.ms": linger_ms})

    def _consumer(self, topic: str) -> Any:
        settings = {
            **self._settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 << 20,
        }
        consumer = self._kafka.Consumer(settings)
        place = functools.partial(self._kafka.TopicPartition, offset=self._kafka.OFFSET_BEGINNING)
        consumer.assign([place(topic, number) for number in range(self._partitions)])
        return consumer

    def _send(self, part: Part, in_flight: int) -> Answer:
        """Keep this many messages unanswered; the client makes its own batches of them."""
        # Without lingering each message is a request, however many others are in flight.
        producer = self._producer(1 if part.way is Way.BATCHED else 0)
        flying = 0
        meter = Meter.of(part)

        def delivered(began: float, error: Any, _message: Any) -> None:
            nonlocal flying
            if error is not None:
                raise RuntimeError(str(error))
            flying -= 1
            meter.acknowledged(began, time.perf_counter(), 1)

        while (now := time.perf_counter()) < meter.end:
            if flying >= in_flight:
                producer.poll(TIMEOUT_S)
                continue
            flying += 1
            told = functools.partial(delivered, now)
            producer.produce("bench", self._body, on_delivery=told)
            producer.poll(0)
        producer.flush(TIMEOUT_S)
        self._sent += meter.sent
        return meter.answer()

    def _steady(self, part: Part) -> Answer:
        arrivals: list[tuple[float, float]] = []
        consumer = self._consumer("steady")
        is_over = threading.Event()

        def follow() -> None:
            while not is_over.is_set():
                if (message := consumer.poll(0.5)) is not None:
                    now = time.perf_counter()
                    arrivals.append((SENT_AT.unpack_from(message.value())[0], now))

        reader = threading.Thread(target=follow, name="reader")
        reader.start()
        producer = self._producer(0)
        padding = bytes(len(self._body) - SENT_AT.size)
        meter = Meter.of(part)
        began = time.perf_counter()
        # The planned time: a sender that falls behind cannot hide it.
        while (planned := began + meter.sent / part.rate) < meter.end:
            if (pause := planned - time.perf_counter()) > 0:
                time.sleep(pause)
            producer.produce("steady", SENT_AT.pack(planned) + padding)
            producer.poll(0)
            meter.sent += 1
        producer.flush(TIMEOUT_S)
        limit = time.perf_counter() + TIMEOUT_S
        while len(arrivals) < meter.sent and time.perf_counter() < limit:
            time.sleep(0.01)
        is_over.set()
        reader.join()
        consumer.close()
        if len(arrivals) < meter.sent:
            raise RuntimeError(f"only {len(arrivals)} of {meter.sent} messages came")
        meter.took = [came - sent for sent, came in arrivals if sent > meter.start]
        meter.messages = len(meter.took)
        return meter.answer()

    def _read(self, part: Part) -> Answer:
        """Until the time is up or the last message came, counted after the first answer."""
        consumer = self._consumer("bench")
        seen, first, began = 0, 0, 0.0
        limit = time.perf_counter() + TIMEOUT_S
        while seen < self._sent and time.perf_counter() < limit:
            # It would wait for the full number of messages as long as allowed.
            found = consumer.consume(READ_MESSAGES, READ_WAIT_S)
            seen += len([message.value() for message in found])
            if found and not began:
                first, began = seen, time.perf_counter()
                limit = began + part.seconds
        elapsed_s = time.perf_counter() - began
        consumer.close()
        return Answer(seen - first, elapsed_s, seen, 0.0, 0.0)


def answer_parts(load: LibrdkafkaLoad) -> None:
    """Until standard input ends."""
    for line in sys.stdin:
        print(json.dumps(asdict(load.run(Part.from_json(line)))), flush=True)


if __name__ == "__main__":
    answer_parts(LibrdkafkaLoad(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
