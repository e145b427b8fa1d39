"""A broker for taskiq: tasks are messages of a topic, and workers are members of a group.

Owns: the tasks that this worker has in hand. Each is kept from the other workers while it runs, and
is settled once, by how it ended. See docs/taskiq.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final, Literal

from aerobee.access.credentials import Credentials
from aerobee.client_core.message import Message
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.answers import Answer, Reject, RetryLater, milliseconds_of
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.popped_message import PoppedMessage
from aerobee.consumer_client.simple_consumer import INVISIBLE_S, KEEP_S_MAX, SimpleConsumer
from aerobee.domain.names import check_group_name, check_topic_name
from aerobee.integrations.own_task import OwnTask
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import Producer
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.runtime.log import log_event

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqResult
    from taskiq.abc.middleware import TaskiqMiddleware
    from taskiq.exceptions import NoResultError
except ImportError as missing:
    raise ImportError(
        "aerobee.integrations.taskiq needs taskiq, which is not installed: "
        'pip install ".[taskiq]" in a checkout'
    ) from missing

log = logging.getLogger(__name__)

Time = float | timedelta
OnFailure = Literal["done", "retry", "reject"]

TASK_NAME: Final = "TASKIQ_TASK"
"""The property with the name of the task, for those who look at messages."""
LISTEN_S: Final = 15.0
AGAIN_S: Final = 1.0
RETRY_AFTER_S: Final = 10.0
RETRY_AFTER_S_MAX: Final = 3_600.0
DOUBLINGS_MAX: Final = 30
REASON_LENGTH_MAX: Final = 300
UNREADABLE: Final = "taskiq cannot read it"


class _Ended(Enum):
    """How a task ended that gave no answer of its own."""

    NOT_BEGUN = auto()
    DONE = auto()


_outcome: ContextVar[_Ended | Answer] = ContextVar("aerobee.taskiq", default=_Ended.NOT_BEGUN)
"""Of the task that runs here. A worker runs each in a context of its own, in which it also
acknowledges."""


class AerobeeBroker(AsyncBroker):
    """Sends tasks as messages of a topic, and gives them to workers one by one, by POP.

    A task that returns or raises is done, as with other brokers of taskiq. One that raises
    `RetryLater(after=60)` comes again, to any worker, and one that raises `Reject("reason")` is a
    dead letter. A task whose worker is killed comes again after `invisible`. After the group's
    attempts a task is a dead letter.

    Args:
        nameservers, cluster, tls, credentials: as for `Producer`.
        topic: created by the first task, if the cluster's policy allows that.
        group: of the workers. All with the same name share the tasks.
        invisible: for how long a killed worker holds up its tasks, 10 s or more; a number is
            seconds.
        at_most: for how long a task that runs is kept from other workers.
        on_failure: what becomes of a task that raises something else: "done", "retry", "reject".
        retry_after: the wait before the second attempt where the task names none. It doubles each
            time, up to an hour.
        telemetry: records traces and metrics of producer and consumer.
        producer_config, consumer_config: settings of the clients.

    Raises:
        IllegalName, InvalidArgument: a name or setting that can never work.

    Labels of a task: `delay`, seconds after which it arrives; `sharding_key`, by which an ordered
    group keeps tasks in order.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        invisible: Time = INVISIBLE_S,
        at_most: Time = KEEP_S_MAX,
        on_failure: OnFailure = "done",
        retry_after: Time = RETRY_AFTER_S,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
        telemetry: Telemetry | None = None,
        producer_config: ProducerConfig | None = None,
        consumer_config: ConsumerConfig | None = None,
    ) -> None:
        super().__init__()
        check_topic_name(topic)
        check_group_name(group)
        if on_failure not in ("done", "retry", "reject"):
            raise InvalidArgument(
                f"on_failure must be 'done', 'retry' or 'reject', not {on_failure!r}"
            )
        milliseconds_of("invisible", invisible)
        milliseconds_of("at_most", at_most)
        self.topic = topic
        self.group = group
        self._nameservers, self._cluster = nameservers, cluster
        self._invisible = invisible
        self.at_most = at_most
        self.retry_after_s = milliseconds_of("retry_after", retry_after) / 1_000
        self._tls, self._credentials, self._telemetry = tls, credentials, telemetry
        self._producer_config, self._consumer_config = producer_config, consumer_config
        self._producer: Producer | None = None
        self._lives: list[OwnTask] = []
        self.in_hand: set[_InHand] = set()
        """Tasks that this worker has received and not settled."""
        self.add_middlewares(_Answers(on_failure))

    def __repr__(self) -> str:
        return f"AerobeeBroker(topic={self.topic!r}, group={self.group!r})"

    async def startup(self) -> None:
        """Opens the producer; nothing is asked of the cluster before the first task."""
        await super().startup()
        producer = Producer(
            self._nameservers,
            self._cluster,
            config=self._producer_config,
            tls=self._tls,
            credentials=self._credentials,
            telemetry=self._telemetry,
        )
        await self._open(producer, "producer")
        self._producer = producer

    async def shutdown(self) -> None:
        """Closes the clients. Tasks that still run come again after `invisible`."""
        self._producer = None
        for each in list(self.in_hand):
            await each.let_go()
        lives, self._lives = self._lives, []
        for life in reversed(lives):
            await life.close()
        await super().shutdown()

    async def _open(self, client: AbstractAsyncContextManager[Any], name: str) -> OwnTask:
        life = OwnTask(client, name=f"taskiq:{name}")
        await life.start()
        self._lives.append(life)
        return life

    async def kick(self, message: BrokerMessage) -> None:
        """Returns once the task is stored.

        Raises:
            InvalidArgument: the broker was not started, or a label cannot be what it says.
            AerobeeError: as `Producer.send`.
        """
        if self._producer is None:
            raise InvalidArgument(
                "the broker is not started: await broker.startup() when the program starts"
            )
        key = message.labels.get("sharding_key")
        await self._producer.send(
            Message(
                self.topic,
                message.message,
                keys=[message.task_id],
                properties={TASK_NAME: message.task_name},
                sharding_key=None if key is None else str(key),
                delay=_delay_of(message.labels.get("delay")),
            )
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The group's tasks. While no broker answers, or the topic is not there yet, it waits."""
        said = ""
        consumer: SimpleConsumer | None = None
        while True:
            try:
                consumer = consumer or await self._consumer()
                messages = await consumer.receive(1, timeout=LISTEN_S)
            except AerobeeError as error:
                if str(error) != said:
                    said = str(error)
                    log_event(
                        log,
                        "no tasks can be received",
                        level=logging.WARNING,
                        topic=self.topic,
                        group=self.group,
                        reason=error,
                        follows=f"tried each {AGAIN_S:g} s",
                    )
                await asyncio.sleep(AGAIN_S)
                continue
            said = ""
            # Each broker may have handed out one.
            tasks = [_InHand(self, consumer, message) for message in messages]
            for task in tasks:
                await task.keep()
            try:
                while tasks:
                    task = tasks.pop(0)
                    yield AckableMessage(data=task.message.body, ack=task.settle)
            finally:
                for task in tasks:
                    await task.give_back()

    async def _consumer(self) -> SimpleConsumer:
        consumer = SimpleConsumer(
            self.group,
            nameservers=self._nameservers,
            cluster=self._cluster,
            invisible=self._invisible,
            tls=self._tls,
            credentials=self._credentials,
            telemetry=self._telemetry,
            config=self._consumer_config,
        ).subscribe(self.topic)
        await self._open(consumer, "consumer")
        return consumer


class _InHand:
    """A task that this worker has received and not yet settled."""

    def __init__(
        self, broker: AerobeeBroker, consumer: SimpleConsumer, message: PoppedMessage
    ) -> None:
        self.message = message
        self._broker = broker
        self._consumer = consumer
        self._keeping = consumer.keeping(message, at_most=broker.at_most)

    async def keep(self) -> None:
        """From now on until it is settled or let go."""
        await self._keeping.__aenter__()
        self._broker.in_hand.add(self)

    async def let_go(self) -> None:
        """It comes again when its time is over."""
        if self in self._broker.in_hand:
            self._broker.in_hand.discard(self)
            await self._keeping.__aexit__(None, None, None)

    async def give_back(self) -> None:
        """It comes again at once: this worker has not begun it."""
        await self._say(RetryLater(after=0))

    async def settle(self) -> None:
        """taskiq is done with it; how it ended was noted where it ran."""
        outcome = _outcome.get()
        if outcome is _Ended.NOT_BEGUN:
            outcome = self._unknown()
        await self._say(outcome if isinstance(outcome, Answer) else None)

    def _unknown(self) -> Answer:
        """taskiq has called nothing: it cannot read the message, or has no such task. In the
        second case another worker may have it, in the middle of an upgrade."""
        try:
            name = self._broker.formatter.loads(self.message.body).task_name
        except Exception as error:
            return Reject(f"{UNREADABLE}: {type(error).__name__}: {error}"[:REASON_LENGTH_MAX])
        return RetryLater(f"no worker has task {name}")

    async def _say(self, answer: Answer | None) -> None:
        message, consumer = self.message, self._consumer
        try:
            if isinstance(answer, Reject):
                await consumer.reject(message, answer)
            elif isinstance(answer, RetryLater):
                after_ms = answer.after_ms
                after_s = self._back_off_s() if after_ms is None else after_ms / 1_000
                await consumer.nack(message, after=after_s)
            else:
                await consumer.ack(message)
        except AerobeeError as error:
            log_event(
                log,
                "a task could not be settled, and comes again",
                level=logging.WARNING,
                topic=self._broker.topic,
                group=self._broker.group,
                message_id=message.message_id,
                reason=error,
            )
        finally:
            await self.let_go()

    def _back_off_s(self) -> float:
        doublings = min(self.message.reconsume_times, DOUBLINGS_MAX)
        after_s = self._broker.retry_after_s * float(1 << doublings)
        return min(after_s, RETRY_AFTER_S_MAX)


class _Answers(TaskiqMiddleware):
    """Notes how a task ended."""

    def __init__(self, on_failure: OnFailure) -> None:
        super().__init__()
        self._on_failure = on_failure

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        _outcome.set(_Ended.DONE)
        return message

    def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        if isinstance(result.error, NoResultError):
            return  # Another middleware has sent it again.
        answer = self._answer_to(exception)
        if answer is not None:
            _outcome.set(answer)
        if isinstance(answer, RetryLater):
            result.error = NoResultError()  # The next attempt has one.

    def _answer_to(self, exception: BaseException) -> Answer | None:
        if isinstance(exception, Answer):
            return exception
        if isinstance(exception, asyncio.CancelledError):
            return RetryLater("it was cancelled")
        if self._on_failure == "done" or not isinstance(exception, Exception):
            return None
        reason = f"{type(exception).__name__}: {exception}"[:REASON_LENGTH_MAX]
        kind = RetryLater if self._on_failure == "retry" else Reject
        return kind(reason).with_traceback(exception.__traceback__)


def _delay_of(label: object) -> float | None:
    """Raises InvalidArgument: it is no number of seconds."""
    if label is None:
        return None
    try:
        return float(str(label))
    except ValueError:
        raise InvalidArgument(f"the label delay is seconds, not {label!r}") from None
