"""Producers of our own protocol that can be asked: each has a stream to this broker and names its
topics.

Owns: the questions that were not sent yet, bounded for each stream. A question lost with its stream
is harmless: the transaction is asked about again. A question contains the message, so it goes only
to a stream that may send to the topic at that moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aerobee.broker.transactions.questions import Question
from aerobee.runtime.errors import ShuttingDown

QUESTIONS_MAX: Final = 64
QUESTIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit for one stream; a larger question is sent alone."""
TRIES_MAX: Final = 16
"""How many streams are tried for one question."""


class AskedProducer:
    """The stream of one producer."""

    def __init__(self, topics: frozenset[str], may_send: Callable[[str], bool]) -> None:
        self.topics = topics
        self._may_send = may_send
        self._questions: deque[Question] = deque()
        self._bytes = 0
        self._is_closed = False
        self._due = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Questions on their way to it."""
        return len(self._questions)

    def offer(self, question: Question) -> bool:
        """False: too much is already on its way to it, or it may not see the message."""
        if not self._may_send(question.half.topic):
            return False
        size = question.record.size
        if self.waiting >= QUESTIONS_MAX or (
            self.waiting and self._bytes + size > QUESTIONS_BYTES_MAX
        ):
            return False
        self._questions.append(question)
        self._bytes += size
        self._due.set()
        return True

    async def next(self) -> Question:
        """Raises ShuttingDown: no more will come."""
        while True:
            while not self._questions:
                if self._is_closed:
                    raise ShuttingDown("the broker is stopping; ask the route for the master")
                self._due.clear()
                await self._due.wait()
            question = self._questions.popleft()
            self._bytes -= question.record.size
            if self._may_send(question.half.topic):
                return question

    def close(self) -> None:
        """No more will come."""
        self._is_closed = True
        self._questions.clear()
        self._due.set()


class AskedProducers:
    """On the loop. Implements `questions.Producers`."""

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[AskedProducer, None]] = {}
        """The most recently asked stream is last."""
        self._is_closed = False

    @contextmanager
    def joined(
        self, topics: Iterable[str], may_send: Callable[[str], bool] = lambda topic: True
    ) -> Iterator[AskedProducer]:
        """Registers a stream while it is open. Raises ShuttingDown.

        `may_send`: whether its user may send to a topic now.
        """
        if self._is_closed:
            raise ShuttingDown("the broker is stopping; ask the route for the master")
        producer = AskedProducer(frozenset(topics), may_send)
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
        """The broker is stopping: all streams end."""
        self._is_closed = True
        for of_topic in self._by_topic.values():
            for producer in of_topic:
                producer.close()
