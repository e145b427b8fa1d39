"""What is asked of a store besides its content: offsets out of range, times, keys, time windows.

Owns: which questions. Either they come from a document of an earlier dump or of another program
that asked the same kind of questions, or they are chosen from what the store holds:

    offsets     just outside both ends of each queue, and far outside
    times       around nine messages of each queue, around its ends, and at stretches of equal times
    keys        every key of the listed messages
    windows     five windows around the time of about 24 of the listed messages with keys
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

ANSWERS_MAX = 64
"""The most offsets that a question by key is answered with."""

TIMESTAMP_MAX = (1 << 63) - 1

_FAR_OFFSETS = 100
_FAR_MS = 100_000
_SAMPLES_PER_QUEUE = 8
_STRETCHES_ASKED = 3
# Each time asked anyway may coincide with one stretch of equal times, so no more can count.
_STRETCHES_KEPT = 3 * (_SAMPLES_PER_QUEUE + 1) + 3 + _STRETCHES_ASKED
_WINDOW_MESSAGES = 24
_SECOND_MS = 1_000


class Window(NamedTuple):
    """Which records of a topic had this key and were stored in [begin, end] (Unix ms)?"""

    topic: str
    key: str
    begin: int
    end: int
    max: int


class ChosenQuestions:
    """Chosen from what the store holds. Keeps the keys of all listed messages in memory.

    `see_message` is told each listed message before keys and windows are asked for.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], None] = {}
        self._keyed: list[tuple[str, str, int]] = []

    def outside(self, topic: str, queue_id: int, bounds: tuple[int, int]) -> list[int]:
        """Offsets to ask for; `bounds` are the queue's minimum and maximum."""
        first, end = bounds
        below = {0, first - 1} if first else set()
        return [*sorted(below), end, end + 1, end + _FAR_OFFSETS]

    def times(self, topic: str, queue_id: int, count: int) -> QueueTimes:
        """For a queue with `count` messages."""
        return _ChosenTimes(count)

    def see_message(self, message: Mapping[str, Any]) -> None:
        topic = message["topic"]
        keys = [key for key in (message["keys"] or "").split(" ") if key]
        if message["uniqKey"]:
            self._keys[topic, message["uniqKey"]] = None
        for key in keys:
            self._keys[topic, key] = None
        if keys:
            self._keyed.append((topic, keys[-1], message["storeTimestamp"]))

    def wanted_keys(self) -> Iterator[tuple[str, str]]:
        """(topic, key), each once."""
        return iter(self._keys)

    def windows(self) -> Iterator[Window]:
        for topic, key, stored in self._keyed[:: max(1, len(self._keyed) // _WINDOW_MESSAGES)]:
            for begin, end in (
                (stored, stored),
                (stored - _SECOND_MS, stored),
                (stored - _SECOND_MS + 1, stored + _SECOND_MS - 1),
                (stored + 1, TIMESTAMP_MAX),
                (0, stored - 1),
            ):
                for most in (1, ANSWERS_MAX):
                    yield Window(topic, key, begin, end, most)


class _ChosenTimes:
    """Times around some messages, spread evenly over the queue, and of neighbours stored in the
    same millisecond: `see` gets the store time of each message, in order."""

    def __init__(self, count: int) -> None:
        self._sampled = {number * count // _SAMPLES_PER_QUEUE for number in range(8)} | {count - 1}
        self._around: list[int] = []
        self._stretches: list[int] = []
        self._index = 0
        self._first = 0
        self._last: int | None = None

    def see(self, timestamp_ms: int) -> None:
        if self._index in self._sampled:
            self._around.append(timestamp_ms)
        if self._last is None:
            self._first = timestamp_ms
        elif (
            timestamp_ms == self._last
            and len(self._stretches) < _STRETCHES_KEPT
            and timestamp_ms not in self._stretches[-1:]
        ):
            self._stretches.append(timestamp_ms)
        self._last = timestamp_ms
        self._index += 1

    def asked(self) -> list[int]:
        if self._last is None:
            return []
        asked = {0, self._first - _SECOND_MS, self._last + _FAR_MS}
        asked.update(time + step for time in self._around for step in (-1, 0, 1))
        stretches = [time for time in self._stretches if time not in asked]
        return sorted(asked.union(stretches[:_STRETCHES_ASKED]))


# ------------------------------------------------------------------------------ given


class GivenQuestions:
    """Those that a document answers: its members `topics` and `index`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._topics = document.get("topics", {})
        self._index = document.get("index", {})

    def outside(self, topic: str, queue_id: int, bounds: tuple[int, int]) -> list[int]:
        return [question["offset"] for question in self._queue(topic, queue_id, "outOfRange")]

    def times(self, topic: str, queue_id: int, count: int) -> QueueTimes:
        questions = self._queue(topic, queue_id, "offsetByTime")
        return _GivenTimes([question["timestamp"] for question in questions])

    def see_message(self, message: Mapping[str, Any]) -> None:
        pass

    def wanted_keys(self) -> Iterator[tuple[str, str]]:
        return ((answer[0], answer[1]) for answer in self._index.get("answers", ()))

    def windows(self) -> Iterator[Window]:
        names = Window._fields
        for window in self._index.get("windows", ()):
            yield Window(*(window[name] for name in names))

    def _queue(self, topic: str, queue_id: int, name: str) -> list[dict[str, Any]]:
        questions: list[dict[str, Any]] = (
            self._topics.get(topic, {}).get(str(queue_id), {}).get(name, [])
        )
        return questions


class _GivenTimes:
    def __init__(self, timestamps: list[int]) -> None:
        self._timestamps = timestamps

    def see(self, timestamp_ms: int) -> None:
        pass

    def asked(self) -> list[int]:
        return self._timestamps


Questions: TypeAlias = ChosenQuestions | GivenQuestions
QueueTimes: TypeAlias = _ChosenTimes | _GivenTimes
