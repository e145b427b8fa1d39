"""Whatever record the log refuses, and wherever a broker ends between two of them: each transaction
is decided once, for its producers and for operators, and visible once or never."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.transactions.feature import Transactions
from aerobee.broker.transactions.pending import TransactionName
from aerobee.runtime.errors import AerobeeError, MessageNotFound, NotWritable
from aerobee.store.format.transaction_records import Outcome
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, running_broker
from tests.support.transactions import ORDERS, Asked, half_message, seen, transactional
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

SETTINGS = TransactionsConfig(timeout_ms=1, check_interval_ms=5, checks_max=1)
DECIDED = (Outcome.COMMITTED, Outcome.ROLLED_BACK)


class Scene:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.fault_rate = 0.0
        self.begun: list[str] = []
        self.unsure: set[str] = set()
        """Whose sends were not answered."""
        self.truth: dict[str, Outcome] = {}
        """As it was answered first."""
        self.answers: Counter[Outcome] = Counter()

    def break_writes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each record that the broker writes itself may be refused."""
        for name in ("append", "append_copies"):
            write = getattr(OwnWrites, name)

            def refuses(
                writes: OwnWrites, topic: str, *args: Any, write: Any = write, **more: Any
            ) -> Any:
                if not topic.startswith("AEROBEE_OFFSET") and (
                    self.chance.random() < self.fault_rate
                ):
                    raise NotWritable("the disk is full")
                return write(writes, topic, *args, **more)

            monkeypatch.setattr(OwnWrites, name, refuses)

    async def begin(self, client: V2) -> None:
        name = f"T-{len(self.begun)}"
        self.begun.append(name)
        self.unsure.add(name)
        answer = await client.send(half_message(name, name.encode()))
        assert codes(answer.entries) == [v2.OK]
        self.unsure.discard(name)

    async def end(self, broker: RunningBroker, name: str, *, by_operator: bool) -> bool:
        """Whether it is decided, and that it never was otherwise."""
        ends = broker.feature(Transactions).ends
        wanted = self.chance.choice(DECIDED)
        may_be_missing = name in self.unsure  # it may be acknowledged while this end looks for it
        try:
            found = await ends.end(
                TransactionName(ORDERS, name), wanted, 10_000, by_operator=by_operator
            )
        except MessageNotFound:
            assert may_be_missing, name
            return True
        except AerobeeError:
            return False
        self.answers[found] += 1
        if found in DECIDED:
            assert self.truth.setdefault(name, found) is found, name
        else:
            # Set aside; or, after a restart, ended before: but not by what is answered now.
            assert found is Outcome.UNKNOWN or name not in self.truth, name
        return found in DECIDED or found is Outcome.UNKNOWN

    async def work(self, broker: RunningBroker, seconds: float) -> None:
        client = V2(broker.channel, {"x-mq-client-id": "worker"})

        async def worker() -> None:
            while True:
                await self.begin(client)
                await asyncio.sleep(self.chance.random() * 0.1)
                for _ in range(self.chance.randrange(3)):
                    name = self.chance.choice(self.begun[-60:])
                    by_operator = self.chance.random() < 0.3
                    await self.end(broker, name, by_operator=by_operator)

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(worker())


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_refused_records_and_restarts_decide_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    scene = Scene(seed)
    scene.break_writes(monkeypatch)
    topics: Any = {ORDERS: transactional()}
    for _ in range(4):
        async with (
            AsyncExitStack() as stack,
            running_broker(tmp_path, topics=topics, transactions=SETTINGS) as broker,
        ):
            topics = None
            silent = await Asked(V2(broker.channel), ORDERS).open()
            stack.push_async_callback(silent.close)
            scene.fault_rate = 0.08
            await scene.work(broker, 1.0)
            # What this run could not write the next one has to find out.
            await broker.stop()
            scene.fault_rate = 0.0
    async with running_broker(tmp_path, transactions=SETTINGS) as broker:
        await until(lambda: broker.feature(Transactions).ends.is_ready)
        for name in scene.begun:
            assert await scene.end(broker, name, by_operator=True), name
        transactions = broker.feature(Transactions)
        await until(lambda: not len(transactions.pending) and not len(transactions.aside))
        found = Counter(await seen(broker))
        assert max(found.values()) == 1
        committed = {name for name, outcome in scene.truth.items() if outcome is DECIDED[0]}
        visible = {body.decode() for body in found}
        assert committed <= visible
        rolled_back = scene.truth.keys() - committed
        assert not visible & rolled_back
        # Ended by a call that was not answered, before the last start.
        assert visible - committed <= set(scene.begun) - scene.truth.keys()
        await broker.stop()
    assert scene.answers[Outcome.SET_ASIDE]
    assert len(scene.truth) > 50
