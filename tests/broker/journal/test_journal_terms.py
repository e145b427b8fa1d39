"""A journal through every order of what happens to its terms, while records are written, confirmed
and read: what was begun in a stretch of a term counts in that stretch only.

The oracle reads the log from its beginning, and knows nothing of terms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerobee.broker.journal.records import read_body
from aerobee.runtime.errors import Busy, NotMaster, NotWritable, ReplicaBehind
from aerobee.testing.virtual_time import VirtualTime
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import Led
from tests.support.notebook import Note, Notebook, NotedReplica
from tests.support.property_runs import examples

PAGES = 3
ROLES = ("begin", "leave", "resume", "end")
STEPS = (*ROLES, *("write", "write", "confirm", "flush", "image", "follow", "refuse", "take"))


class SlowLog(MemoryLog):
    """A read takes as many turns of the loop as it is told."""

    turns = 0

    async def read(self, queue_offset: int) -> Any:
        await turns(self.turns)
        return await super().read(queue_offset)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def notes_in(log: MemoryLog) -> list[Note]:
    """All that the log says of pages, in order."""
    entries = [each for body in log.bodies for each in read_body(body, Notebook().decode)]
    return [each for each in entries if isinstance(each, Note)]


class Scene:
    """A journal, and all that was written into it."""

    def __init__(self, read_turns: int) -> None:
        self.log = SlowLog(is_sync=False)
        self.log.turns = read_turns
        self.replica = NotedReplica(self.log)
        self.journal = self.replica.journal
        self.epoch = self.serial = 0
        self.written: list[tuple[Note, asyncio.Future[None]]] = []
        self.following: list[asyncio.Task[None]] = []
        self.removals: list[asyncio.Task[str]] = []
        self.history: list[str] = []

    async def take(self, step: str, amount: int) -> None:
        if step in ROLES:
            self.history.append(step)
            await self._take_role(step)
        else:
            self._use_log(step, amount)

    async def _take_role(self, role: str) -> None:
        match role:
            case "begin":
                self.epoch += 1
                self.journal.begin(Led(self.epoch))
            case "leave":
                await self.journal.leave()
            case "resume":
                self.journal.resume()
            case "end":
                self.journal.end()

    def _use_log(self, step: str, amount: int) -> None:
        match step:
            case "write":
                self._write(f"page {amount % PAGES}")
            case "confirm":
                unconfirmed = [end for end in self.log.ends if end > self.log.confirmed_end]
                self.log.confirm(unconfirmed[: amount + 1][-1] if unconfirmed else None)
            case "flush":
                self.log.flush()
            case "image":
                removal = self.journal.prepare_removal(self.log.end, _nothing)
                self.removals.append(asyncio.ensure_future(removal))
            case "follow":
                self.following.append(asyncio.ensure_future(self.journal.followed()))
            case "refuse" | "take":
                is_full = step == "refuse"
                self.log.refusal = NotWritable("the disk is full") if is_full else None

    def _write(self, name: str) -> None:
        self.serial += 1
        note = Note(name, str(self.serial))
        try:
            written = self.journal.writer().write(*note)
        except (Busy, NotMaster, ReplicaBehind):
            return
        self.written.append((note, written))

    @property
    def acts(self) -> bool:
        """By the history of roles alone."""
        acts = left = False
        for role in self.history:
            match role:
                case "begin":
                    acts, left = True, False
                case "leave":
                    acts, left = False, left or acts
                case "resume":
                    acts, left = acts or left, False
                case "end":
                    acts = left = False
        return acts

    def check(self, records_before: int, acted: bool) -> None:
        if not acted and not self.acts:
            assert self.log.records_end == records_before, "it wrote in a term that it had left"
        assert self.acts or not self.journal.is_ready
        if self.journal.is_ready:
            confirmed = sum(end <= self.log.confirmed_end for end in self.log.ends)
            assert self.replica.notebook.next_offset == confirmed

    async def check_at_the_end(self) -> None:
        """Once this replica acts and nothing is in the way any more."""
        await self.take("take", 0)
        await self.take("begin", 0)
        for _ in range(4):
            self.log.confirm()
            self.log.flush()
            await asyncio.sleep(20.0)
        assert self.journal.is_ready
        for following in self.following:
            await following
        told = notes_in(self.log)
        pages: dict[str, str | None] = {note.name: note.text for note in told}
        assert self.replica.notebook.pages == pages
        assert self.journal.writer().pages() == pages
        for note, written in self.written:
            assert written.done()
            if written.exception() is None:
                assert note in told, "it said that this was written"
            elif isinstance(written.exception(), NotWritable):
                assert note not in told, "it said that this was not written"
            else:
                assert isinstance(written.exception(), NotMaster)
        newest = [note for note, _ in self.written if note in told]
        # An image says again what holds, and nothing that was overwritten.
        assert list(dict.fromkeys(told)) == newest


async def run(steps: Sequence[tuple[str, int, int]], read_turns: int) -> None:
    clock = VirtualTime(asyncio.get_running_loop(), 0)
    clock.begin()
    scene = Scene(read_turns)
    journal = asyncio.ensure_future(scene.journal.run())
    try:
        for step, amount, turns_until in steps:
            acted = scene.acts
            await scene.take(step, amount)
            records = scene.log.records_end
            await turns(turns_until)
            scene.check(records, acted)
        await scene.check_at_the_end()
        assert not journal.done()
    finally:
        for task in (journal, *scene.removals):
            task.cancel()
        await asyncio.wait((journal, *scene.following, *scene.removals))
        clock.end()


async def _nothing() -> None: ...


Steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 4), st.integers(0, 4)), max_size=25
)


@settings(max_examples=examples(400))
@given(steps=Steps, read_turns=st.integers(0, 4))
@example(  # confirmed while `followed` read it
    steps=[("begin", 0, 4), ("write", 0, 2), ("follow", 0, 1), ("confirm", 0, 4)], read_turns=3
)
def test_any_order_of_terms_and_records_loses_nothing_of_a_journal(
    steps: list[tuple[str, int, int]], read_turns: int
) -> None:
    asyncio.run(run(steps, read_turns))
