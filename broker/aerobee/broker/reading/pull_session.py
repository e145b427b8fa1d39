"""One client's pull stream: many queues, each with its own credit, served in turn.

Owns: the handles of one stream and the order in which they are served. No gRPC here: the servicer
feeds commands in and takes frames out of `next_frame`.
Invariants: a handle is in exactly one place: ready (in the turn order), waiting for its queue to
grow, out of credit, loading cold data, or waiting to do so. A handle that has sent a frame goes to
the end of the order, so that a busy queue never starves another. When `next_frame` has nothing to
send and no handle is ready, none waits to load cold data while fewer loads than allowed are
running.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from aerobee.broker.groups.ownership import lease_expired
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.egress import ColdRead, Egress, Fetched, ReadCode
from aerobee.broker.reading.single_reads import check_role
from aerobee.runtime.errors import AerobeeError, Busy, InvalidArgument
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import Filter

HANDLES_MAX = 4_096
COLD_READS_MAX = 4
"""Concurrent cold reads of one stream."""
FRAMES_PENDING_MAX = 1_024
"""Answers not yet taken by the client; above this, none of its commands is read."""
PROGRESS_INTERVAL_S = 0.5
"""How often a reader whose filter matches nothing is told its progress."""


@dataclass(slots=True)
class PullParameters:
    """A checked subscription. `reader`: who is charged for cold reads."""

    topic: str
    queue_id: int
    offset: int
    max_bytes: int
    max_messages: int
    filter: Filter | None
    lease_key: GroupQueue | None = None
    lease_epoch: int = 0
    reader: str = ""
    group: str = ""
    """Empty: a reader without a group."""


class PullPlace(NamedTuple):
    """How far the records of a leased queue were sent, and where that began."""

    key: GroupQueue
    start: int
    position: int


@dataclass(slots=True)
class PulledFrame:
    """One frame for the client: a result, or the end of the handle."""

    handle: int
    fetched: Fetched | None = None
    error: AerobeeError | None = None
    parameters: PullParameters | None = None
    """Whose records these are."""


@dataclass(slots=True, eq=False)
class _Handle:
    number: int
    parameters: PullParameters
    credit: int
    position: int
    at_slave: bool
    """Whether its lease was checked under the role of a slave, that is, not at all."""
    told_place: int | None = None
    """The place where its reader was last told to continue reading."""
    latest: Fetched | None = None
    ended: bool = False
    wake: Callable[[], None] = field(default=lambda: None)
    lease_ended: Callable[[], None] = field(default=lambda: None)


@dataclass(slots=True)
class ColdPull:
    """Records that must come from the disk: give the outcome to `loaded`."""

    cold: ColdRead
    handle: _Handle


class Standing(NamedTuple):
    """The handles of a stream, by what they wait for."""

    handles: int
    ready: int
    """They wait for their turn."""
    cold: int
    """They wait for others' cold reads to end."""
    loading: int
    """Cold reads under way, some perhaps of handles that have ended."""
    behind: int
    """Their clients do not know yet how far their filters have come."""
    without_credit: int


class PullSession:
    """The handles of one stream."""

    def __init__(self, egress: Egress, *, is_current: Callable[[GroupQueue, int], bool]) -> None:
        self._egress = egress
        self._is_current = is_current
        self._handles: dict[int, _Handle] = {}
        # In order of turns. An ending handle leaves at once; otherwise a client could fill it.
        self._ready: OrderedDict[_Handle, None] = OrderedDict()
        self._frames: deque[PulledFrame] = deque()
        # Handles whose client does not know its filter's progress yet, and the timer to report it.
        self._behind: dict[_Handle, None] = {}
        self._progress_timer: asyncio.TimerHandle | None = None
        self._loading = 0
        # Handles that found their data cold while the allowed number of loads was running.
        self._cold: OrderedDict[_Handle, None] = OrderedDict()
        self._event = asyncio.Event()
        self._room = asyncio.Event()
        self._ending = False
        self._closed = False

    def __repr__(self) -> str:
        return f"PullSession({self.standing})"

    @property
    def handle_count(self) -> int:
        return len(self._handles)

    @property
    def standing(self) -> Standing:
        """How many handles are where; the rest waits for its queues to grow."""
        return Standing(
            handles=len(self._handles),
            ready=len(self._ready),
            cold=len(self._cold),
            loading=self._loading,
            behind=len(self._behind),
            without_credit=sum(handle.credit <= 0 for handle in self._handles.values()),
        )

    # ---------------------------------------------------------------------- commands

    def subscribe(self, number: int, parameters: PullParameters, credit: int) -> None:
        """Start a handle. An error ends the handle, not the stream.

        Raises:
            InvalidArgument: the handle is in use.
        """
        if number in self._handles:
            raise InvalidArgument(f"handle {number} is in use; unsubscribe it first")
        if len(self._handles) >= HANDLES_MAX:
            self.refuse(
                number,
                Busy(f"a pull stream serves at most {HANDLES_MAX} queues; open another stream"),
            )
            return
        key, epoch = parameters.lease_key, parameters.lease_epoch
        if key is not None and not self._is_current(key, epoch):
            self.refuse(number, lease_expired(key, epoch))
            return
        handle = _Handle(number, parameters, credit, parameters.offset, self._egress.is_slave)
        handle.wake = partial(self._make_ready, handle)
        self._handles[number] = handle
        if key is not None:
            handle.lease_ended = partial(self._end, handle, lease_expired(key, epoch))
            self._egress.watch_lease(key, handle.lease_ended)
        self._make_ready(handle)

    def refuse(self, number: int, error: AerobeeError) -> None:
        """Answer a subscription that cannot be served."""
        self._frames.append(PulledFrame(number, error=error))
        self._event.set()

    def grant(self, number: int, credit: int) -> None:
        """More credit for a handle; an unknown handle has just ended."""
        handle = self._handles.get(number)
        if handle is None:
            return
        was_without = handle.credit <= 0
        handle.credit += credit
        if was_without:
            self._make_ready(handle)

    def unsubscribe(self, number: int) -> None:
        handle = self._handles.pop(number, None)
        if handle is not None:
            self._let_go(handle)

    def end(self, error: AerobeeError) -> None:
        """End every handle with an error, and then the stream."""
        for handle in list(self._handles.values()):
            self._end(handle, error)
        self._ending = True
        self._event.set()

    def close(self) -> None:
        """The stream is over: remove every trace of it."""
        self._closed = True
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        for handle in self._handles.values():
            self._let_go(handle)
        self._handles.clear()
        self._event.set()

    def places(self) -> list[PullPlace]:
        """The places of the handles that hold a lease."""
        return [
            PullPlace(key, handle.parameters.offset, handle.position)
            for handle in self._handles.values()
            if (key := handle.parameters.lease_key) is not None
        ]

    # ---------------------------------------------------------------------- frames

    def next_frame(self) -> PulledFrame | ColdPull | None:
        """The next frame in turn, or the next cold read to start.

        None: nothing to send now; `wait`, then ask again.
        """
        if self._frames:
            return self._take_frame()
        while (handle := self._take_next()) is not None:
            try:
                check_role(self._egress, at_slave=handle.at_slave)
                found = self._egress.read(_read_of(handle))
            except AerobeeError as error:
                self._end(handle, error)
                return self._take_frame()
            if isinstance(found, ColdRead):
                if self._loading >= COLD_READS_MAX:
                    self._cold[handle] = None  # the others' data may be in the page cache
                    continue
                self._loading += 1
                return ColdPull(found, handle)
            frame = self._advance(handle, found)
            if frame is not None:
                return frame
            if handle in self._ready:
                return None  # a filter found nothing in a whole scan: let others run first
        return None

    def loaded(self, pull: ColdPull, outcome: Fetched | AerobeeError) -> None:
        """A cold read has ended; its frame is next, and another read may begin."""
        self._loading -= 1
        self._event.set()
        if pull.handle.ended:
            return
        if isinstance(outcome, AerobeeError):
            self._end(pull.handle, outcome)
            return
        frame = self._advance(pull.handle, outcome)
        if frame is not None:
            self._frames.append(frame)

    async def wait(self) -> bool:
        """Until `next_frame` may have something; False when the session is closed.

        Call it right after `next_frame` returned None, with no other await between.
        """
        if self._closed or self._ending:
            return False
        if self._ready or self._may_load_next:
            await asyncio.sleep(0)
        else:
            self._event.clear()
            await self._event.wait()
        return True

    async def wait_room(self) -> None:
        """Until the client has taken enough answers for its next command to be read."""
        while len(self._frames) > FRAMES_PENDING_MAX:
            self._room.clear()
            await self._room.wait()

    # ---------------------------------------------------------------------- inside

    def _take_frame(self) -> PulledFrame:
        frame = self._frames.popleft()
        if len(self._frames) <= FRAMES_PENDING_MAX:
            self._room.set()
        return frame

    @property
    def _may_load_next(self) -> bool:
        return bool(self._cold) and self._loading < COLD_READS_MAX

    def _take_next(self) -> _Handle | None:
        """The handle whose turn it is. Those that waited for a load to end come first, each only
        once, whether it then loads or finds its data in memory by now."""
        if self._may_load_next:
            return self._cold.popitem(last=False)[0]
        if self._ready:
            return self._ready.popitem(last=False)[0]
        return None

    def _advance(self, handle: _Handle, fetched: Fetched) -> PulledFrame | None:
        """Advance a handle past what was found; None if there is nothing to send yet."""
        has_moved = fetched.next_offset != handle.position
        handle.position = fetched.next_offset
        handle.latest = None if fetched.count else fetched
        if fetched.code is ReadCode.NO_NEW_MESSAGE:
            self._egress.wait(handle.parameters.topic, handle.parameters.queue_id, handle.wake)
            place = fetched.suggested_broker_id
            if place is None or place == handle.told_place:
                return None
            # It has read everything that is here: it continues elsewhere.
            handle.told_place = place
            return PulledFrame(handle.number, fetched=replace(fetched, code=ReadCode.OK))
        handle.credit -= len(fetched.records)
        self._make_ready(handle)
        if fetched.code is ReadCode.OK and fetched.count == 0:
            if has_moved:
                self._note_behind(handle)
            return None
        self._behind.pop(handle, None)
        handle.told_place = fetched.suggested_broker_id
        return PulledFrame(handle.number, fetched=fetched, parameters=handle.parameters)

    def _note_behind(self, handle: _Handle) -> None:
        self._behind[handle] = None
        if self._progress_timer is None:
            self._progress_timer = asyncio.get_running_loop().call_later(
                PROGRESS_INTERVAL_S, self._report_progress
            )

    def _report_progress(self) -> None:
        """Tell the client how far its filter has scanned without a match, so that the group's
        committed offset and its lag can follow."""
        self._progress_timer = None
        for handle in self._behind:
            if handle.latest is not None:
                progress = replace(handle.latest, code=ReadCode.OK, records=b"", count=0)
                self._frames.append(PulledFrame(handle.number, fetched=progress))
        self._behind.clear()
        self._event.set()

    def _make_ready(self, handle: _Handle) -> None:
        if handle.ended or handle.credit <= 0:
            return
        self._ready[handle] = None  # keeps its place if it has one
        self._event.set()

    def _end(self, handle: _Handle, error: AerobeeError) -> None:
        """The handle is free again; the client learns why."""
        if handle.ended:
            return
        self._handles.pop(handle.number, None)
        self._let_go(handle)
        self.refuse(handle.number, error)

    def _let_go(self, handle: _Handle) -> None:
        handle.ended = True
        for place in (self._ready, self._cold, self._behind):
            place.pop(handle, None)
        self._egress.forget(handle.parameters.topic, handle.parameters.queue_id, handle.wake)
        if handle.parameters.lease_key is not None:
            self._egress.unwatch_lease(handle.parameters.lease_key, handle.lease_ended)


def _read_of(handle: _Handle) -> QueueRead:
    parameters = handle.parameters
    return QueueRead(
        parameters.topic,
        parameters.queue_id,
        handle.position,
        parameters.max_bytes,
        parameters.max_messages,
        parameters.filter,
        parameters.reader,
        is_scan=handle.latest is not None and handle.latest.code is ReadCode.OK,
    )
