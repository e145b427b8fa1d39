"""A poll at this node learns that another broker has something for it.

    poll here                  line: one stream to a broker              broker
    nothing is here    ->      wish (group, topic)               ->      remembers it
                               rung: there may be something      <-      a message can be received
    takes, by a ReceiveMessage that does not wait                ->      hands out what there is
    there was nothing  ->      the same wish again               ->      rings when something comes

A ring is a hint. It wakes the poll that has waited longest, and that poll takes; if it got all that
it asked for, the next one takes, else the wish is repeated. What becomes ready between a ring and
the repeated wish rings at once. All polls of a group for a topic share one wish at each broker,
which costs nothing while nothing comes.

Owns: the waiting polls of a node by group and topic, their wishes, and the lines. A wish stays for
`LINGER_S` after its last poll, as clients poll again and again. A line that breaks is opened again
and makes all its wishes anew, which then ring at once. Routes that change move wishes to other
brokers, and wake polls, as there may be new queues.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from aerobee.cluster_view.methods import RINGS
from aerobee.cluster_view.ring_wishes import (
    WISHES_PER_FRAME_MAX,
    Kind,
    Rung,
    Wish,
    Wishes,
    frame_of,
    wish_of,
)
from aerobee.cluster_view.route import TopicRoute
from aerobee.domain.names import RETRY_PREFIX
from aerobee.rocketmq_api.ports import RouteSource
from aerobee.rocketmq_api.services.peers import PeerStream, StreamingPeers
from aerobee.runtime.errors import AerobeeError, NoBrokerAvailable, Unreachable

LINGER_S: Final = 5.0
REST_S: Final = 1.0
"""A broker that refused is asked again so long after, while a poll waits."""
RETRY_S: Final = 0.5
"""Before a broken line is opened again."""
OLD_S: Final = 10.0
"""The same for a broker of a release without rings."""
TOPICS_PER_TURN: Final = 20
ATTEMPTS_MAX: Final = 10_000
HERE_FIRST: Final = 4
"""One poll in so many takes elsewhere first, if something is there: a client may always name the
same broker."""

_Stream = PeerStream[Wishes, Rung]


class Attempt(NamedTuple):
    """A poll that may be repeated."""

    group: str
    client: str
    attempt_id: str


class Poll:
    """One poll of this node, while it lasts: `with poll`."""

    __slots__ = ("_interest", "_rings", "is_over", "is_rung", "wake")

    def __init__(self, rings: Rings, interest: _Interest) -> None:
        self._rings = rings
        self._interest = interest
        self.is_rung = False
        self.is_over = False
        """Its client has left."""
        self.wake: Callable[[], None] | None = None

    def __enter__(self) -> Poll:
        self._interest.polls.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._rings.leave(self, self._interest)

    def looks(self) -> None:
        """It looks at all that is ready; what is rung from now on is another ring."""
        self.is_rung = False
        self._interest.idle[self] = None

    def ready(self, first: str) -> list[Far]:
        """The brokers that may have something: the named one first, then in turns."""
        ready = [far for far in self._interest.fars.values() if far.is_ready]
        if len(ready) > 1:
            at = self._interest.turn % len(ready)
            ready = ready[at:] + ready[:at]
            ready.sort(key=lambda far: far.name != first)
        return ready

    def far(self, name: str) -> Far | None:
        return self._interest.fars.get(name)

    def is_here_first(self) -> bool:
        """Whether this broker comes before others that have something."""
        self._interest.turn += 1
        return self._interest.turn % HERE_FIRST != 0

    def check_reachable(self) -> None:
        """Raises why none of the other brokers can be asked; for a node without queues."""
        fars = self._interest.fars.values()
        troubles = [far.refusal or far.line.trouble for far in fars]
        for trouble in troubles:
            if trouble is None:
                return
        if not troubles:
            raise NoBrokerAvailable(
                f"no broker of topic {self._interest.topic} has a live master now: retry, or see "
                "`aerobee cluster show`"
            )
        assert troubles[0] is not None
        # Raised for each poll: a traceback grows where an exception is raised.
        raise troubles[0].with_traceback(None)

    def ring(self) -> None:
        self.is_rung = True
        if self.wake is not None:
            self.wake()

    async def until_rung(self, timeout_s: float) -> None:
        """For a node without queues of its own."""
        if self.is_rung:
            return
        loop = asyncio.get_running_loop()
        waits = loop.create_future()

        def wake() -> None:
            if not waits.done():
                waits.set_result(None)

        timer = loop.call_later(timeout_s, wake)
        self.wake = wake
        try:
            await waits
        finally:
            timer.cancel()
            self.wake = None


class Far:
    """What a group waits for at one other broker."""

    __slots__ = ("id", "interest", "is_ready", "line", "name", "refusal", "rings")

    def __init__(self, name: str, interest: _Interest, line: Line, number: int) -> None:
        self.name = name
        self.interest = interest
        self.line = line
        self.id = number
        self.is_ready = False
        self.rings = 0
        self.refusal: AerobeeError | None = None
        """Why it gave nothing; until it is asked again."""

    def rung(self) -> None:
        self.rings += 1
        self.is_ready = True
        if not self.interest.ring():
            self.line.say(self, Kind.PASS_ON)

    def gave(self, rings: int, *, is_all: bool) -> None:
        """A poll took what there was; `rings` as before. `is_all`: all that it asked for."""
        self.refusal = None
        if is_all:
            self.interest.ring()
        elif rings == self.rings:
            self.is_ready = False
            self.line.say(self, Kind.RING)

    def refused(self, error: AerobeeError) -> None:
        """It cannot hand out anything now."""
        self.refusal = error
        self.is_ready = False
        asyncio.get_running_loop().call_later(REST_S, self._ask_again)

    def _ask_again(self) -> None:
        if self.refusal is None or self.id not in self.line.fars:
            return
        self.refusal = None
        self.is_ready = True
        self.interest.ring()

    def wish(self, kind: Kind) -> Wish:
        return wish_of(self.id, kind, self.interest.topic, self.interest.group)


class _Interest:
    """The polls of one group for one topic."""

    __slots__ = ("_here", "_route", "fars", "group", "idle", "polls", "topic", "turn")

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.polls: set[Poll] = set()
        # Unlike a dict, it finds its first entry at once after many have been removed there.
        self.idle: OrderedDict[Poll, None] = OrderedDict()
        """Those that were not rung, longest waiting first."""
        self.fars: dict[str, Far] = {}
        """By broker name."""
        self.turn = 0
        self._route: TopicRoute | None = None
        self._here = ""

    def is_followed(self, route: TopicRoute, here: str) -> bool:
        known = self._route
        return here == self._here and (route is known or route == known)

    def follow(self, route: TopicRoute, here: str, line_to: Callable[[str], Line]) -> None:
        self._route, self._here = route, here
        addresses = {
            name: master.address
            for name, master in route.masters.items()
            if name != here and route.queues_by_broker.get(name)
        }
        for name, far in list(self.fars.items()):
            if addresses.get(name) != far.line.address:
                far.line.end(far)
                del self.fars[name]
        for name in addresses.keys() - self.fars.keys():
            self.fars[name] = line_to(addresses[name]).begin(name, self)

    def ring(self) -> bool:
        """Wake one poll; False: none waits."""
        if not self.idle:
            return False
        poll, _ = self.idle.popitem(last=False)
        poll.ring()
        return True

    def ring_all(self) -> None:
        while self.ring():
            pass

    def leave(self, poll: Poll) -> None:
        self.polls.discard(poll)
        self.idle.pop(poll, None)
        if not poll.is_rung:
            return
        ready = [far for far in self.fars.values() if far.is_ready]
        if ready and not self.ring():
            for far in ready:
                far.line.say(far, Kind.PASS_ON)


class Line:
    """The stream to one broker."""

    def __init__(self, peers: StreamingPeers, address: str) -> None:
        self.address = address
        self.fars: dict[int, Far] = {}
        self.trouble: AerobeeError | None = None
        """Why the broker cannot be reached; None as long as that is unknown."""
        self.is_old = False
        """Its broker has no rings."""
        self.task: asyncio.Task[None] | None = None
        self._peers = peers
        self._numbers = itertools.count(1)
        self._said: dict[int, Wish] = {}
        """What is to be written, the newest for each wish."""
        self._due = asyncio.Event()

    def begin(self, name: str, interest: _Interest) -> Far:
        far = Far(name, interest, self, next(self._numbers))
        self.fars[far.id] = far
        self.say(far, Kind.RING)
        return far

    def end(self, far: Far) -> None:
        self.say(far, Kind.END)
        self.fars.pop(far.id, None)

    def say(self, far: Far, kind: Kind) -> None:
        if far.id in self.fars:
            self._said[far.id] = far.wish(kind)
            self._due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            is_news = self.trouble is None
            self.trouble = await self._serve()
            # A call that is not implemented has no type of its own.
            self.is_old = type(self.trouble) is AerobeeError
            for far in list(self.fars.values()):
                far.is_ready = False
                if is_news:
                    far.interest.ring_all()
            await asyncio.sleep(OLD_S if self.is_old else RETRY_S)

    async def _serve(self) -> AerobeeError:
        """Why it ended."""
        stream: _Stream = self._peers.open_stream(self.address, RINGS)
        for far in self.fars.values():
            self.say(far, Kind.RING)
        error: AerobeeError = Unreachable(f"{self.address} ended the stream of rings; retry")
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write(stream), name="ring-wishes")
                try:
                    await self._read(stream)
                except AerobeeError as caught:
                    error = caught
                writing.cancel()
        finally:
            stream.cancel()
        return error

    async def _write(self, stream: _Stream) -> None:
        with suppress(AerobeeError):  # the reader gets the same error
            while True:
                await self._due.wait()
                wishes = list(itertools.islice(self._said.values(), WISHES_PER_FRAME_MAX))
                for wish in wishes:
                    del self._said[wish.id]
                if not self._said:
                    self._due.clear()
                await stream.write(frame_of(wishes))

    async def _read(self, stream: _Stream) -> None:
        while (rung := await stream.read()) is not None:
            self.trouble = None
            for number in rung.ids:
                if (far := self.fars.get(number)) is not None:
                    far.rung()
            for number in rung.refused:
                if (far := self.fars.get(number)) is not None:
                    far.refused(NoBrokerAvailable(f"broker {far.name} takes no more polls now"))
            del rung


def is_concerned(group: str, topic: str, names: Collection[str]) -> bool:
    """Whether these topics include one that a poll of the group for this topic looks into."""
    return topic in names or RETRY_PREFIX + group in names


class Rings:
    """Of one node, while `run` runs."""

    def __init__(self, routes: RouteSource, peers: StreamingPeers, here: Callable[[], str]) -> None:
        """`here`: the broker whose master this node is; "": of none."""
        self._routes = routes
        self._peers = peers
        self._here = here
        self._interests: dict[tuple[str, str], _Interest] = {}
        self._by_topic: dict[str, set[_Interest]] = {}
        self._lines: dict[str, Line] = {}
        """By address."""
        self._attempts: dict[Attempt, str] = {}
        """Where polls that may be repeated got something."""
        self._left: dict[_Interest, float] = {}
        """Those without a poll, with the time of the last one."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._changed: dict[str, None] = {}
        self._is_changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of lines, of wishes, and of groups' topics with polls, now or lately."""
        wishes = sum(len(line.fars) for line in self._lines.values())
        return len(self._lines), wishes, len(self._interests)

    def poll(self, group: str, topic: str, route: TopicRoute) -> Poll:
        """A poll of this node, which must be entered at once. Many wait: a context manager of
        contextlib would take 0.4 KiB in each."""
        interest = self._interests.get((group, topic))
        if interest is None:
            interest = self._interests[group, topic] = _Interest(group, topic)
            self._by_topic.setdefault(topic, set()).add(interest)
        self._left.pop(interest, None)
        self._follow(interest, route)
        return Poll(self, interest)

    def leave(self, poll: Poll, interest: _Interest) -> None:
        """Called by the poll itself."""
        interest.leave(poll)
        if not interest.polls:
            self._left[interest] = asyncio.get_running_loop().time()
            self._sweep_later()

    def took(self, attempt: Attempt, name: str) -> None:
        """A poll that may be repeated got something at another broker."""
        if attempt.attempt_id:
            while len(self._attempts) >= ATTEMPTS_MAX:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[attempt] = name

    def taken_at(self, attempt: Attempt) -> str:
        """Where this poll got something when it was made before; empty: nowhere else."""
        return self._attempts.get(attempt, "")

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics of this node may have more queues, and groups a retry topic."""
        for interest in self._interests.values():
            if is_concerned(interest.group, interest.topic, names):
                interest.ring_all()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for line in self._lines.values():
                    self._start(line)
                with self._routes.telling(self._on_change):
                    await self._follow_changes()
        finally:
            self._tasks = None

    def _follow(self, interest: _Interest, route: TopicRoute) -> bool:
        here = self._here()
        if interest.is_followed(route, here):
            return False
        before = {far.line for far in interest.fars.values()}
        interest.follow(route, here, self._line_to)
        self._end_idle(before)
        return True

    def _line_to(self, address: str) -> Line:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = Line(self._peers, address)
            self._start(line)
        return line

    def _start(self, line: Line) -> None:
        if self._tasks is not None:
            line.task = self._tasks.create_task(line.run(), name=f"rings:{line.address}")

    def _end_idle(self, lines: Sequence[Line] | set[Line]) -> None:
        for line in lines:
            if not line.fars:
                self._lines.pop(line.address, None)
                if line.task is not None:
                    line.task.cancel()

    def _on_change(self, topic: str) -> None:
        self._changed[topic] = None
        self._is_changed.set()

    async def _follow_changes(self) -> None:
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            changed, self._changed = self._changed, {}
            for number, topic in enumerate(list(self._by_topic) if "" in changed else changed, 1):
                if number % TOPICS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if topic in self._by_topic:
                    with suppress(AerobeeError):
                        route = await self._routes.route(topic)
                        for interest in list(self._by_topic.get(topic, ())):
                            if self._follow(interest, route):
                                interest.ring_all()

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(LINGER_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        before_s = asyncio.get_running_loop().time() - LINGER_S
        while self._left:
            interest, left_s = next(iter(self._left.items()))
            if left_s > before_s:
                self._sweep_later()
                return
            del self._left[interest]
            del self._interests[interest.group, interest.topic]
            of_topic = self._by_topic[interest.topic]
            of_topic.discard(interest)
            if not of_topic:
                del self._by_topic[interest.topic]
            lines = {far.line for far in interest.fars.values()}
            for far in interest.fars.values():
                far.line.end(far)
            self._end_idle(lines)
