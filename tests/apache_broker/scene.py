"""What waits in a folder when it changes owners, and what its next owner must make of it.

Each owner fills the folder, and the next one empties it and fills it again. Bodies say which owner
sent them and what is to become of them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.apache_broker.owners import Got, Owner, Popper, Sender, now_ms
from tests.support.v2_calls import sent_message

TYPES = {
    "plain": "NORMAL",
    "failing": "NORMAL",
    "levels": "NORMAL",
    "timed": "DELAY",
    "deals": "TRANSACTION",
    "popped": "NORMAL",
    "lanes": "FIFO",
}
QUEUES = 4
PATIENCE_S = 150.0
QUIET_S = 8.0
"""After all has come: nothing more may."""
INVISIBLE_S = 60.0
REVIVED_S = 16.0
"""Messages that were invisible for 10 s are visible again, also with Apache's broker."""
READERS = {
    "plain-readers": ("plain", "*"),
    "tag-readers": ("plain", "a"),
    "failing-readers": ("failing", "*"),
    "level-readers": ("levels", "*"),
    "timed-readers": ("timed", "*"),
    "deal-readers": ("deals", "*"),
}
POPPERS = "poppers"


@dataclass
class Left:
    """What an owner has left to the next one: bodies by group, and more of some."""

    once: set[tuple[str, str]] = field(default_factory=set)
    """(group, body)"""
    due_ms: dict[str, int] = field(default_factory=dict)
    popped: set[str] = field(default_factory=set)
    """Come by POP at least once."""
    dead: set[str] = field(default_factory=set)
    deals: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Open: body to message id and transaction id."""


class Scene:
    """All that happens to one folder."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.popped: list[tuple[str, str]] = []
        """By POP: (owner, body)."""
        self.finished: set[str] = set()
        """Acknowledged by POP, or dead: must not come to poppers again."""
        self.owed: set[tuple[str, str]] = set()
        """All that ever had to come, once, as (group, body)."""
        self.problems: list[str] = []
        self.repeated: set[tuple[str, str]] = set()
        """At which owner a group got something that it had had: (owner, group)."""
        self.notes: list[str] = []
        self._number = 0
        self._began_s = time.monotonic()

    def say(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self._began_s:6.1f} {what}")
        print(self.notes[-1], flush=True)

    # ------------------------------------------------------------------------------ filling

    async def fill(self, owner: Owner) -> Left:
        left = Left()
        owner.got.clear()
        name = f"{owner.name}{self._number}"
        self._number += 1
        async with Sender(owner.address) as sender:
            popped_s = await self._fill_popped(owner, sender, name, left)
            self.say("popped")
            await self._fill_plain(owner, sender, name, left)
            self.say("plain")
            await self._fill_failing(owner, sender, name, left)
            self.say("failing")
            await self._fill_deals(sender, name, left)
            await self._fill_delayed(owner, sender, name, left)
        await asyncio.sleep(popped_s + REVIVED_S - time.monotonic())
        await owner.settled()
        self.say("filled")
        self.got += owner.got
        self.owed |= left.once
        return left

    async def _fill_plain(self, owner: Owner, sender: Sender, name: str, left: Left) -> None:
        for number in range(4):
            await self._send(sender, "plain", f"{name}-read-{number}")
        await owner.consume("plain-readers", "plain")
        await self._until(owner, {("plain-readers", f"{name}-read-{n}") for n in range(4)})
        self.owed |= {("plain-readers", f"{name}-read-{n}") for n in range(4)}
        await owner.leave("plain-readers")
        for number in range(8):
            tag = "ab"[number % 2]
            body = f"{name}-unread-{number}"
            await self._send(sender, "plain", body, tag=tag)
            left.once.add(("plain-readers", body))
            if tag == "a":
                left.once.add(("tag-readers", body))

    async def _fill_failing(self, owner: Owner, sender: Sender, name: str, left: Left) -> None:
        bodies = {f"{name}-failing-{n}" for n in range(2)}
        for body in sorted(bodies):
            await self._send(sender, "failing", body)
        await owner.consume("failing-readers", "failing", fails=frozenset(bodies))
        await self._until(owner, {("failing-readers", body) for body in bodies})
        await asyncio.sleep(1)
        await owner.leave("failing-readers")
        left.once |= {("failing-readers", body) for body in bodies}

    async def _fill_deals(self, sender: Sender, name: str, left: Left) -> None:
        for kind in ("ended-commit", "ended-rollback", "commit", "rollback", "unknown"):
            body = f"{name}-deal-{kind}"
            id_ = body.upper()
            entry = await self._send(sender, "deals", body, message_type=v2.TRANSACTION)
            if kind.startswith("ended"):
                how = v2.COMMIT if kind == "ended-commit" else v2.ROLLBACK
                await sender.end("deals", id_, entry.transaction_id, how)
            else:
                left.deals[body] = id_, entry.transaction_id
            if kind.endswith("commit"):
                left.once.add(("deal-readers", body))

    async def _fill_delayed(self, owner: Owner, sender: Sender, name: str, left: Left) -> None:
        for level, delay_s in ((3, 10), (6, 120)):
            body = f"{name}-level-{level}"
            left.due_ms[body] = now_ms() + 1_000 * delay_s
            await owner.send_level("levels", body, level)
            left.once.add(("level-readers", body))
        for delay_s in (25, 110):
            body = f"{name}-timed-{delay_s}"
            left.due_ms[body] = now_ms() + 1_000 * delay_s
            message = sent_message("timed", body.encode(), body.upper(), message_type=v2.DELAY)
            message.system_properties.delivery_timestamp.FromMilliseconds(left.due_ms[body])
            await sender.send(message)
            left.once.add(("timed-readers", body))

    async def _fill_popped(self, owner: Owner, sender: Sender, name: str, left: Left) -> float:
        """When what was invisible for the shortest time was received."""
        for number in range(8):
            await self._send(sender, "popped", f"{name}-popped-{number}")
        async with Popper(owner.address, POPPERS, "popped") as popper:
            (first,) = await popper.receive(1, invisible_s=10)
            at_s = time.monotonic()
            others = await popper.receive(5, invisible_s=INVISIBLE_S)
            assert len(others) == 5, others
            await popper.acknowledge(*others[:2])
            assert await popper.client.forward(POPPERS, others[2]) == v2.OK
        done = {each.body.decode() for each in others[:3]}
        self.finished |= done
        left.dead = {others[2].body.decode()}
        left.popped = {f"{name}-popped-{number}" for number in range(8)} - done
        self.say(
            f"popped: done {sorted(done)}, dead {left.dead}, first {first.body!r}, "
            f"flying {[each.body for each in others[3:]]}"
        )
        return at_s

    async def _send(self, sender: Sender, topic: str, body: str, **system: object):  # type: ignore[no-untyped-def]
        return await sender.send(sent_message(topic, body.encode(), body.upper(), **system))

    # ------------------------------------------------------------------------------ emptying

    async def empty(self, owner: Owner, left: Left) -> None:
        """All that was left comes, and is finished."""
        owner.got.clear()
        self.say(f"{owner.name} empties")
        for group, (topic, tags) in READERS.items():
            await owner.consume(group, topic, tags)
        popping = asyncio.create_task(self._pop(owner, left))
        await self._end_deals(owner, left)
        missing = await self._until(owner, left.once, is_certain=False)
        for group, body in sorted(missing):
            self.problems.append(f"{owner.name}: {body} does not come to {group}")
        await popping
        dead = await owner.dead_letters(POPPERS, left.dead)
        if not left.dead <= dead:
            self.problems.append(f"{owner.name}: dead letters {dead}, not {left.dead}")
        await asyncio.sleep(QUIET_S)
        for group in READERS:
            await owner.leave(group)
        for got in owner.got:
            if (due_ms := left.due_ms.get(got.body)) is not None and got.at_ms < due_ms - 1_000:
                self.problems.append(f"{owner.name}: {got.body} came {due_ms - got.at_ms} ms early")
            if got.group == "failing-readers" and got.failures != 1:
                self.problems.append(f"{owner.name}: {got.body} failed {got.failures} times")
        late = {
            body: max(got.at_ms for got in owner.got if got.body == body) - due
            for body, due in left.due_ms.items()
            if any(got.body == body for got in owner.got)
        }
        self.say(f"after its time, ms: {late}")
        self.say(f"checked: {owner.checked}")
        self.got += owner.got
        self.say(f"{owner.name} has emptied")

    async def _end_deals(self, owner: Owner, left: Left) -> None:
        if owner.name == "apache":
            await owner.check_transactions("deals")
            return
        async with Sender(owner.address) as sender:
            for body, (id_, transaction) in left.deals.items():
                how = v2.COMMIT if body.endswith("commit") else v2.ROLLBACK
                if not body.endswith("unknown"):
                    try:
                        await sender.end("deals", id_, transaction, how)
                    except AssertionError as error:
                        self.problems.append(f"{owner.name}: {body}: {error}")

    async def _pop(self, owner: Owner, left: Left) -> None:
        missing = set(left.popped)
        ends_s = time.monotonic() + PATIENCE_S
        async with Popper(owner.address, POPPERS, "popped") as popper:
            while time.monotonic() < ends_s:
                quiet = not missing
                messages = await popper.receive(8, invisible_s=30, patience_s=6)
                for message in messages:
                    body = message.body.decode()
                    attempt = message.system_properties.delivery_attempt
                    self.say(f"popped {body}, attempt {attempt}")
                    self.popped.append((owner.name, body))
                    missing.discard(body)
                    if body in self.finished:
                        self.say(f"{owner.name}: {body} was finished and comes again")
                        self.repeated.add((owner.name, POPPERS))
                    await popper.acknowledge(message)
                    self.finished.add(body)
                if quiet and not messages:
                    break
        for body in sorted(missing):
            self.problems.append(f"{owner.name}: {body} does not come by POP")

    async def _until(
        self, owner: Owner, wanted: set[tuple[str, str]], *, is_certain: bool = True
    ) -> set[tuple[str, str]]:
        """What has not come in time."""
        ends_s = time.monotonic() + PATIENCE_S
        while missing := wanted - {(got.group, got.body) for got in owner.got}:
            if time.monotonic() > ends_s:
                assert not is_certain, missing
                return missing
            await asyncio.sleep(0.1)
        return set()

    def count(self) -> None:
        """Of all that came: what came twice, and what nobody owed."""
        came: set[tuple[str, str]] = set()
        for got in self.got:
            key = got.group, got.body
            if got.group == "failing-readers" and got.failures == 0:
                continue  # the time at which it failed
            if key in came:
                self.say(f"{got.owner}: {got.body} comes to {got.group} again")
                self.repeated.add((got.owner, got.group))
            came.add(key)
            if key not in self.owed:
                self.problems.append(f"{got.owner}: {got.body} came to {got.group}, not owed")
