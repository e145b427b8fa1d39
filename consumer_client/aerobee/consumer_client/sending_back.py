"""Messages whose handling failed are sent back to their broker, which redelivers them later.

Owns: what is being sent back, queue by queue. A message is finished here only when its broker has
confirmed it; until then the committed offset stays before it. What a broker cannot accept now is
retried as long as the queue belongs to this member; when the queue moves, its messages go to the
next owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import GroupCalls
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.telemetry import Telemetry
from aerobee.cluster_view.methods import SEND_BACK
from aerobee.consumer_client.answers import Reject, RetryLater, reason_of_reject
from aerobee.consumer_client.background_tasks import BackgroundTasks
from aerobee.consumer_client.failure_log import FailureLine
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.consumer_client.process_queue import Entry
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.log import log_event
from aerobee.store.format.dead_letter_fields import dead_letter_topic
from aerobee.v1 import broker_pb2, common_pb2

log = logging.getLogger(__name__)

MESSAGES_PER_REQUEST_MAX = 256
REASON_BYTES_MAX = 1_024
REASON_CLASS_BYTES_MAX = 128
"""How much of these texts a dead letter keeps. So a request with the maximum number of messages
stays below 1 MiB."""

_FOR_GOOD = (errors.InvalidArgument, errors.MessageNotFound)
"""The broker will never accept this message."""


class FailedWork(NamedTuple):
    """Messages of one call of the listener, and why it failed."""

    queue: PushQueue
    entries: Sequence[Entry[ReceivedMessage]]
    failures: int
    reason_class: str
    reason: str
    line: FailureLine | None = None
    """The log line that waits for their outcome."""
    after_ms: int | None = None
    """How long they are to wait; None: as the group is configured."""
    is_rejected: bool = False
    """They are dead letters now."""


class SendingBack:
    """Sends back for one consumer; on the loop."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        group: str,
        client_id: str,
        options: ConsumerConfig,
        tasks: BackgroundTasks,
        on_sent_back: Callable[[FailedWork], None],
        on_refused: Callable[[FailedWork], None],
        on_counted: Callable[[FailedWork, int], None],
        on_unanswered: Callable[[FailedWork], None],
        in_order: bool = False,
        retries_max: int | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`on_sent_back`: the broker has the messages. `on_refused`: it will never accept them.
        `on_counted`: they stay here, handled `in_order`, and wait for so many ms; 0: its broker
        does not say. `on_unanswered`: in order, the queue was lost before the broker had counted
        them. `retries_max`: None: the group's."""
        self._calls = GroupCalls(connection)
        self._clock = connection.clock
        self._telemetry = telemetry
        self._random = connection.random
        self._group = group
        self._client_id = client_id
        self._options = options
        self._tasks = tasks
        self._on_sent_back = on_sent_back
        self._on_refused = on_refused
        self._on_counted = on_counted
        self._on_unanswered = on_unanswered
        self._in_order = in_order
        self._retries_max = retries_max
        self._waiting: dict[PushQueue, list[FailedWork]] = {}

    def __len__(self) -> int:
        """Calls of the listener whose messages are being sent back."""
        return sum(map(len, self._waiting.values()))

    def on_dropped(self, queue: PushQueue) -> None:
        """A queue is lost, perhaps only for a moment."""
        if self._in_order:
            for work in self._waiting.get(queue, ()):
                self._on_unanswered(work)

    def add(self, work: FailedWork) -> None:
        """Send these messages back."""
        if work.line is not None:
            work.line.wait()
        entries, step = work.entries, MESSAGES_PER_REQUEST_MAX
        parts = [
            work._replace(entries=entries[first : first + step])
            for first in range(0, len(entries), step)
        ]
        waiting = self._waiting.get(work.queue)
        if waiting is not None:
            waiting += parts
            return
        self._waiting[work.queue] = parts
        work.queue.is_sending_back(True)
        name = f"send-back:{work.queue.assignment.queue}"
        self._tasks.create_task(self._send_all(work.queue), name=name)

    async def _send_all(self, queue: PushQueue) -> None:
        failures = 0
        waiting = self._waiting[queue]
        try:
            while waiting and not queue.is_dropped:
                some = waiting[:1] if self._in_order else _first(waiting)
                left = await self._send(queue, some)
                del waiting[: len(some)]
                waiting[:0] = left
                if left:
                    delay_s = self._options.backoff.delay_s(failures, self._random)
                    failures += 1
                    await asyncio.sleep(delay_s)
                else:
                    failures = 0
        finally:
            for work in self._waiting.pop(queue):
                if work.line is not None:
                    work.line.complete("again at the queue's next owner")
            queue.is_sending_back(False)

    async def _send(self, queue: PushQueue, works: Sequence[FailedWork]) -> list[FailedWork]:
        """Returns what must be sent again."""
        if not queue.trust.is_confirmed:
            return list(works)
        name = queue.assignment.queue
        request = broker_pb2.SendBackRequest(
            group=self._group,
            client_id=self._client_id,
            topic=name.topic,
            queue_id=name.queue_id,
            lease_epoch=queue.assignment.lease_epoch,
            retries_max=self._retries_max,
            attempts=works[0].failures if self._in_order else 0,
            messages=[
                broker_pb2.FailedMessage(
                    offset=offset,
                    level=-1 if work.is_rejected else 0,
                    reason_class=work.reason_class,
                    reason=work.reason,
                    after_ms=0 if work.after_ms is None else max(1, work.after_ms),
                )
                for work in works
                for offset, _, _ in work.entries
            ],
        )
        began_s = self._clock.monotonic_s()
        try:
            response = await self._calls.at_master(
                name.topic,
                name.broker_name,
                SEND_BACK,
                request,
                timeout_ms=self._options.failover_timeout_ms,
            )
        except errors.AerobeeError as error:
            # Also without a lease: the member's session finds out whether it is lost, or a new
            # master does not know it yet.
            self._log(queue, error)
            return list(works)
        results = iter(response.results)
        answers = [(work, [next(results) for _ in work.entries]) for work in works]
        self._tell(answers, self._clock.monotonic_s() - began_s)
        return [work for work, told in answers if self._is_to_repeat(work, told)]

    def _tell(
        self,
        answers: Sequence[tuple[FailedWork, Sequence[broker_pb2.SentBackMessage]]],
        took_s: float,
    ) -> None:
        """For what the broker has accepted."""
        if self._telemetry is None:
            return
        for work, told in answers:
            if all(each.status.code == common_pb2.OK and not each.stays for each in told):
                self._telemetry.on_sent_back(
                    [message for _, _, message in work.entries],
                    group=self._group,
                    took_s=took_s,
                    dead_letter=any(each.dead_letter for each in told),
                )

    def _is_to_repeat(
        self, work: FailedWork, results: Sequence[broker_pb2.SentBackMessage]
    ) -> bool:
        """A call's messages stay together: sending back again what already is back does no harm."""
        refusals = [
            error_from_code(result.status.code, result.status.message)
            for result in results
            if result.status.code != common_pb2.OK
        ]
        if not refusals:
            if work.line is not None:
                self._say_what_follows(work.line, results)
            if any(result.stays for result in results):
                self._on_counted(work, max(result.delay_ms for result in results))
            else:
                self._on_sent_back(work)
            return False
        self._log(work.queue, refusals[0])
        if all(isinstance(error, _FOR_GOOD) for error in refusals):
            self._on_refused(work)
            return False
        return True

    def _say_what_follows(
        self, line: FailureLine, results: Sequence[broker_pb2.SentBackMessage]
    ) -> None:
        """From the broker's answer; for what stays here, that side reports it."""
        told = max(result.attempts_max for result in results)
        if told and self._retries_max is None:
            line.attempts_max = told
        dead = sum(result.dead_letter for result in results)
        if any(result.stays for result in results):
            return
        delays_ms = [result.delay_ms for result in results if not result.dead_letter]
        again = "again by the group's back-off"
        if any(delays_ms):
            again = f"again in {max(delays_ms) / 1_000:g} s"
        if not dead:
            line.complete(again)
            return
        death = f"of {dead_letter_topic(self._group)}"
        if dead == len(results):
            line.complete(f"becomes a dead letter {death}", is_last=True)
        else:
            line.complete(f"{dead} become dead letters {death}, the others come {again}")

    def _log(self, queue: PushQueue, error: errors.AerobeeError) -> None:
        log_event(
            log,
            "failed messages could not be sent back",
            level=logging.WARNING,
            group=self._group,
            queue=queue.assignment.queue,
            reason=error,
        )


async def reject_at_broker(
    connection: ClusterConnection,
    message: ReceivedMessage,
    error: Reject,
    *,
    group: str,
    client_id: str,
    lease_epoch: int,
    timeout_ms: int,
) -> None:
    """The message is a dead letter when this returns. Raises AerobeeError."""
    queue, (reason_class, reason) = message.queue, reason_of(error)
    request = broker_pb2.SendBackRequest(
        group=group,
        client_id=client_id,
        topic=queue.topic,
        queue_id=queue.queue_id,
        lease_epoch=lease_epoch,
        messages=[
            broker_pb2.FailedMessage(
                offset=message.queue_offset, level=-1, reason_class=reason_class, reason=reason
            )
        ],
    )
    response = await GroupCalls(connection).at_master(
        queue.topic, queue.broker_name, SEND_BACK, request, timeout_ms=timeout_ms
    )
    for result in response.results:
        if result.status.code != common_pb2.OK:
            raise error_from_code(result.status.code, result.status.message)


def reason_of(error: Exception | None) -> tuple[str, str]:
    """Class and text of a listener's exception; None: it asked for a retry."""
    if error is None:
        return "RETRY_LATER", "the listener asked for another try"
    text = str(error)
    if isinstance(error, Reject):
        text = reason_of_reject(error)
    elif isinstance(error, RetryLater):
        text = text or "the listener asked for another try"
    return (
        _shortened(type(error).__name__, REASON_CLASS_BYTES_MAX),
        _shortened(text, REASON_BYTES_MAX),
    )


def _shortened(text: str, bytes_max: int) -> str:
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def _first(works: Sequence[FailedWork]) -> list[FailedWork]:
    """As many as fit into one request; at least one."""
    some, count = [works[0]], len(works[0].entries)
    for work in works[1:]:
        count += len(work.entries)
        if count > MESSAGES_PER_REQUEST_MAX:
            break
        some.append(work)
    return some
