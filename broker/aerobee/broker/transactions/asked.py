"""Producers of our own protocol that can be asked: each has a stream to this broker, and names its
topics.

Owns: the questions that are on no stream yet, a bounded part for each. A question that is lost with
its stream does no harm: the transaction is asked about again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aerobee.broker.transactions.questions import Question
from aerobee.runtime.errors import ShuttingDown

QUESTIONS_MAX: Final = 64
QUESTIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one stream; a larger question goes alone."""
TRIES_MAX: Final = 16
"""Streams that are looked at for one question."""


class AskedProducer:
    """One stream."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._questions: deque[Question] = deque()
        self._bytes = 0
        self._is_closed = False
        self._due = asyncio.Event()

    def offer(self, question: Question) -> bool:
        """False: too much is on its way to it."""
        size = question.record.size
        if len(self._questions) >= QUESTIONS_MAX or (
            self._questions and self._bytes + size > QUESTIONS_BYTES_MAX
        ):
            return False
        self._questions.append(question)
        self._bytes += size
        self._due.set()
        return True

    async def next(self) -> Question:
        """Raises ShuttingDown: nothing more will come."""
        while not self._questions:
            if self._is_closed:
                raise ShuttingDown("the broker is stopping; ask the route for the master")
            self._due.clear()
            await self._due.wait()
        question = self._questions.popleft()
        self._bytes -= question.record.size
        return question

    def close(self) -> None:
        """Nothing more comes."""
        self._is_closed = True
        self._questions.clear()
        self._due.set()


class AskedProducers:
    """On the loop. Implements `questions.Producers`."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[AskedProducer, None]] = {}
        """Who was asked last comes last."""
        self._is_closed = False

    @contextmanager
    def joined(self, topics: Iterable[str]) -> Iterator[AskedProducer]:
        """A stream, while it is open. Raises ShuttingDown."""
        if self._is_closed:
            raise ShuttingDown("the broker is stopping; ask the route for the master")
        producer = AskedProducer(frozenset(topics))
        for topic in producer.topics:
            self._by_topic.setdefault(topic, {})[producer] = None
        try:
            yield producer
        finally:
            for topic in producer.topics:
                of_topic = self._by_topic[topic]
                del of_topic[producer]
                if not of_topic:
                    del self._by_topic[topic]

    def ask(self, question: Question) -> bool:
        """See `Producers`."""
        of_topic = self._by_topic.get(question.half.topic)
        if of_topic is None:
            return False
        for _ in range(min(len(of_topic), TRIES_MAX)):
            producer = next(iter(of_topic))
            del of_topic[producer]
            of_topic[producer] = None
            if producer.offer(question):
                return True
        return False

    def close(self) -> None:
        """The broker stops: all streams end."""
        self._is_closed = True
        for of_topic in self._by_topic.values():
            for producer in of_topic:
                producer.close()
