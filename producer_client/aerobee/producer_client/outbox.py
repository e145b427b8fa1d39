"""An outbox: messages that are stored in the application's database, and sent from there.

    the application   changes its rows and adds messages, in one transaction of its database
    a relay           begins a transaction of each message -> notes it in the row, and commits that
                      -> commits the message -> removes the row

Owns: that each message is sent once, in the order in which their database transactions committed,
though a relay may die at any step. A message is committed only after its row names it, and a row
that names one is finished before any other message is sent. So the next relay knows what to do,
and two relays at a time do no harm.

The order is that of numbers. They come from one row, whose lock is held until the application's
transaction ends: transactions that add messages commit one after the other. A transaction that is
rolled back leaves no gap.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.message import Message
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.producer_client.checks import CheckAnswer, TransactionCheck
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.producer import Producer
from aerobee.producer_client.transactions import Transaction
from aerobee.runtime import errors
from aerobee.runtime.clock import system_random
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff

if TYPE_CHECKING:
    import sqlalchemy as sql
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError
else:
    try:
        import sqlalchemy as sql
        from sqlalchemy.exc import IntegrityError, SQLAlchemyError
    except ImportError:  # said by `Outbox`, so that `from aerobee import *` needs no extra
        sql = None

log = logging.getLogger(__name__)

T = TypeVar("T")

NUMBER: Final = "AEROBEE_OUTBOX"
"""Property of a message that came from an outbox: its number there."""
BATCH_MAX: Final = 100
POLL_S: Final = 0.5
BACKOFF: Final = Backoff(base_ms=100, max_ms=5_000)


class Executor(Protocol):
    """A Connection or a Session of SQLAlchemy, inside a transaction."""

    def execute(self, statement: Any, /) -> Any: ...


class Row(NamedTuple):
    """A message in the outbox."""

    number: int
    message: Message
    place: str | None
    """`Transaction.place` of the message's transaction, once it is begun for good."""


class Outbox:
    """The two tables of an outbox.

    Args:
        metadata: gets the tables; by default one of its own.
        name: of the table of messages.

    Raises:
        InvalidArgument: SQLAlchemy is not installed.

    For example::

        outbox = Outbox(Base.metadata)
        outbox.create(engine)
        with Session(engine) as session:
            session.add(order)
            outbox.add(session, Message("orders", b"..."))
            session.commit()
    """

    def __init__(
        self, metadata: sql.MetaData | None = None, *, name: str = "aerobee_outbox"
    ) -> None:
        if sql is None:
            raise errors.InvalidArgument(
                "an outbox needs SQLAlchemy: pip install 'aerobee[outbox]'"
            )
        metadata = sql.MetaData() if metadata is None else metadata
        big = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
        self.messages = sql.Table(
            name,
            metadata,
            sql.Column("number", big, primary_key=True, autoincrement=False),
            sql.Column("topic", sql.String(255), nullable=False),
            sql.Column("body", sql.LargeBinary, nullable=False),
            sql.Column("fields", sql.Text, nullable=False),
            sql.Column("place", sql.Text, nullable=True),
        )
        self.end = sql.Table(
            f"{name}_end",
            metadata,
            sql.Column("id", sql.Integer, primary_key=True, autoincrement=False),
            sql.Column("number", big, nullable=False),
        )

    def create(self, engine: sql.Engine) -> None:
        """Make the tables, and the row from which numbers come, if they are not there. With
        migrations: make the tables there, and insert the row (1, 0) into the second."""
        self.messages.metadata.create_all(engine, tables=[self.messages, self.end])
        try:
            with engine.begin() as connection:
                if connection.execute(sql.select(self.end.c.id)).first() is None:
                    connection.execute(sql.insert(self.end).values(id=1, number=0))
        except IntegrityError:
            pass  # someone else made it at the same moment

    def add(self, executor: Executor, *messages: Message) -> None:
        """Add messages to the transaction of a Session or Connection. They are sent if it commits,
        in this order. Other transactions that add messages wait until it ends: add them last. With
        an AsyncSession: `await session.run_sync(outbox.add, message)`.

        Raises InvalidArgument: a message asks for a later delivery, or `create` was not called.
        """
        if any(message.schedule is not None for message in messages):
            raise errors.InvalidArgument(
                "a message of an outbox is delivered as soon as possible: leave delay, deliver_at "
                "and delay_level out"
            )
        end = self.end.c.number
        executor.execute(sql.update(self.end).values(number=end + len(messages)))
        last = executor.execute(sql.select(end)).scalar()
        if last is None:
            raise errors.InvalidArgument(f"table {self.end.name} has no row: call Outbox.create")
        for number, message in enumerate(messages, last - len(messages) + 1):
            executor.execute(
                sql.insert(self.messages).values(
                    number=number,
                    topic=message.topic,
                    body=message.body,
                    fields=_fields(message),
                )
            )

    # ------------------------------------------------------------------------------ the relay's

    def next(self, connection: sql.Connection, limit: int) -> list[Row]:
        """The first messages, those that are begun before all others."""
        columns = self.messages.c
        found = connection.execute(
            sql.select(columns.number, columns.topic, columns.body, columns.fields, columns.place)
            .order_by(columns.place.is_(None), columns.number)
            .limit(limit)
        )
        return [
            Row(number, _message(number, topic, bytes(body), fields), place)
            for number, topic, body, fields, place in found
        ]

    def note(self, connection: sql.Connection, places: dict[int, str]) -> bool:
        """These messages are begun. False: another relay was faster; roll back."""
        columns = self.messages.c
        for number, place in places.items():
            done = connection.execute(
                sql.update(self.messages)
                .where(columns.number == number, columns.place.is_(None))
                .values(place=place)
            )
            if done.rowcount != 1:
                return False
        return True

    def place(self, connection: sql.Connection, number: int) -> tuple[str | None] | None:
        """Of one message; None: its row is gone."""
        columns = self.messages.c
        found = connection.execute(sql.select(columns.place).where(columns.number == number))
        row = found.first()
        return None if row is None else (row[0],)

    def settle(self, connection: sql.Connection, sent: Sequence[Row], again: Sequence[Row]) -> None:
        """Remove what is sent; what was rolled back is sent again. Rows that another relay has
        changed meanwhile stay as they are."""
        columns = self.messages.c
        for row in sent:
            is_this = sql.and_(columns.number == row.number, columns.place == row.place)
            connection.execute(sql.delete(self.messages).where(is_this))
        for row in again:
            is_this = sql.and_(columns.number == row.number, columns.place == row.place)
            connection.execute(sql.update(self.messages).where(is_this).values(place=None))


class OutboxRelay:
    """Sends what an outbox has, between `start` and `aclose` or inside `async with`. Any number of
    relays may run; one is enough.

    Args:
        outbox, engine: where the messages are. The engine is used in threads, one at a time.
        nameservers, cluster, connection: as for `Producer`.
        topics: the topics that the outbox is for. About those, and all that it sends to, brokers
            ask this relay how transactions end.
        poll: seconds until the next look if there was nothing to send; see also `wake`. None: it
            looks only when `send_some` is called.
    """

    def __init__(
        self,
        outbox: Outbox,
        engine: sql.Engine,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        topics: Sequence[str] = (),
        poll: float | None = POLL_S,
        config: ProducerConfig | None = None,
        connection: ClusterConnection | None = None,
    ) -> None:
        self._outbox = outbox
        self._engine = engine
        self._chance = connection.random if connection is not None else system_random()
        self._poll_s = poll
        self._producer = Producer(
            nameservers,
            cluster,
            check_transaction=self._check,
            transaction_topics=topics,
            config=config,
            connection=connection,
        )
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sent = 0
        """Messages since the start."""
        self.trouble = ""
        """Why nothing is sent now; empty: something is, or could be."""

    async def start(self) -> None:
        """Open it. Close it in the same task."""
        await self._producer.start()
        if self._poll_s is not None:
            running = self._run(self._poll_s)
            self._task = asyncio.get_running_loop().create_task(running, name="outbox-relay")

    async def aclose(self) -> None:
        """What it has begun is finished by the next relay."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._producer.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def wake(self) -> None:
        """There may be something to send: look now."""
        self._due.set()

    # ------------------------------------------------------------------------------ sending

    async def _run(self, poll_s: float) -> None:
        failures = 0
        while True:
            self._due.clear()
            try:
                is_more = await self.send_some()
            except (errors.AerobeeError, SQLAlchemyError) as error:
                failures += 1
                if self.trouble != str(error):
                    self.trouble = str(error)
                    log_event(
                        log, "an outbox is not sent", level=logging.WARNING, reason=self.trouble
                    )
                await asyncio.sleep(BACKOFF.delay_s(failures, self._chance))
                continue
            failures, self.trouble = 0, ""
            if not is_more:
                try:
                    async with asyncio.timeout(poll_s):
                        await self._due.wait()
                except TimeoutError:
                    pass

    async def send_some(self) -> bool:
        """Send some of what the outbox has; whether there was anything. For programs that call it
        themselves.

        Raises:
            AerobeeError, SQLAlchemyError: not all of it is done; the next call, or another relay,
                continues.
        """
        rows = await self._in_database(lambda each: self._outbox.next(each, BATCH_MAX))
        begun = [row for row in rows if row.place is not None]
        if begun:
            await self._finish(begun)
        elif rows:
            await self._begin(rows)
        return bool(rows)

    async def _begin(self, rows: Sequence[Row]) -> None:
        results = await asyncio.gather(
            *(self._producer.begin(row.message) for row in rows), return_exceptions=True
        )
        begun = [each for each in results if isinstance(each, Transaction)]
        if len(begun) < len(rows):
            await self._roll_back(begun)
            raise next(each for each in results if isinstance(each, BaseException))
        places = {row.number: each.place for row, each in zip(rows, begun, strict=True)}
        if not await self._in_database(lambda each: self._outbox.note(each, places)):
            await self._roll_back(begun)
            return
        await self._finish([row._replace(place=places[row.number]) for row in rows])

    async def _finish(self, rows: Sequence[Row]) -> None:
        """Those of a topic at a broker one after the other, which keeps their order."""
        lanes: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            assert row.place is not None
            lanes[row.place.rpartition(" ")[0]].append(row)
        sent: list[Row] = []
        again: list[Row] = []
        results = await asyncio.gather(
            *(self._finish_lane(lane, sent, again) for lane in lanes.values()),
            return_exceptions=True,
        )

        def settle(connection: sql.Connection) -> bool:
            self._outbox.settle(connection, sent, again)
            return True

        await self._in_database(settle)
        self.sent += len(sent)
        for error in results:
            if error is not None:
                raise error

    async def _finish_lane(self, rows: Sequence[Row], sent: list[Row], again: list[Row]) -> None:
        for number, row in enumerate(rows):
            outcome = await self._end(row, TransactionOutcome.COMMITTED)
            if outcome is TransactionOutcome.COMMITTED:
                sent.append(row)
                continue
            if outcome is not TransactionOutcome.ROLLED_BACK:
                raise errors.Busy(
                    f"message {row.number} of the outbox is {outcome.value}: an operator commits "
                    f"or rolls back transaction {row.place}"
                )
            # Another producer of the topic was asked, and knew nothing of it. What follows waits.
            again.append(row)
            for later in rows[number + 1 :]:
                ended = await self._end(later, TransactionOutcome.ROLLED_BACK)
                (sent if ended is TransactionOutcome.COMMITTED else again).append(later)
            return

    async def _end(self, row: Row, wanted: TransactionOutcome) -> TransactionOutcome:
        assert row.place is not None
        ended = await self._producer.end(row.place, wanted)
        if ended is TransactionOutcome.FORGOTTEN:
            ended = await self._producer.ended(row.place) or ended
        return ended

    async def _roll_back(self, begun: Sequence[Transaction]) -> None:
        """As far as it can be: nobody commits what no row names."""
        await asyncio.gather(*(each.rollback() for each in begun), return_exceptions=True)

    async def _check(self, check: TransactionCheck) -> CheckAnswer:
        """A broker asks about a message. One that its row names is committed by a relay, in its
        turn: an answer would let it overtake others. While the row names none, a relay may be about
        to note it, or has died, and the next one begins the message again. So the only answer is
        that nobody will commit this one."""
        text = check.message.properties.get(NUMBER, "")
        if not text.isdecimal():
            return CheckAnswer.UNKNOWN  # not of an outbox
        number = int(text)
        found = await self._in_database(lambda each: self._outbox.place(each, number))
        if found is None:
            return CheckAnswer.ROLLBACK  # it is sent, by another transaction
        (place,) = found
        if place is None:
            return CheckAnswer.UNKNOWN
        here = check.message.queue
        asked = f"{here.broker_name} {check.topic} {check.transaction_id}"
        return CheckAnswer.UNKNOWN if place == asked else CheckAnswer.ROLLBACK

    async def _in_database(self, work: Callable[[sql.Connection], T]) -> T:
        """In a transaction, which commits unless the result is False."""

        def run() -> T:
            with self._engine.connect() as connection, connection.begin() as transaction:
                result = work(connection)
                if result is False:
                    transaction.rollback()
                return result

        return await asyncio.to_thread(run)


def _fields(message: Message) -> str:
    document: dict[str, object] = {
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "shardingKey": message.sharding_key,
        "flag": message.flag,
    }
    return json.dumps({name: value for name, value in document.items() if value})


def _message(number: int, topic: str, body: bytes, fields: str) -> Message:
    found = json.loads(fields)
    return Message(
        topic,
        body,
        tag=found.get("tag"),
        keys=found.get("keys", ()),
        properties={**found.get("properties", {}), NUMBER: str(number)},
        sharding_key=found.get("shardingKey"),
        flag=found.get("flag", 0),
    )
