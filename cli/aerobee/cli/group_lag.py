"""What groups have not read, and, from look to look, how fast they read it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.output import print_documents, print_json, remark_unanswered, say
from aerobee.cli.target import Target
from aerobee.domain.names import RETRY_PREFIX
from aerobee.runtime.clock import SystemClock

if TYPE_CHECKING:
    from aerobee import AdminClient, Group

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Of one group on one topic, at one moment."""

    group: str
    topic: str
    members: int
    lag: int | None
    """None: a broker group that has queues of the topic does not answer."""
    committed: int
    """The sum of offsets, as is `ends`: only their growth means anything."""
    ends: int
    read_per_s: float | None = None
    come_per_s: float | None = None
    unanswered: tuple[str, ...] = ()
    """Broker groups that could not be asked about the group."""

    @property
    def caught_up_s(self) -> float | None:
        """If both go on like this; None if it is not known, or never."""
        if self.lag == 0:
            return 0.0
        if self.lag is None or self.read_per_s is None or self.come_per_s is None:
            return None
        gain = self.read_per_s - self.come_per_s
        return self.lag / gain if gain > 0 else None

    def document(self) -> dict[str, Any]:
        """For --json."""
        known = {
            "group": self.group,
            "topic": self.topic,
            "members": self.members,
            "lag": self.lag,
            "unanswered": list(self.unanswered),
        }
        if self.read_per_s is None or self.come_per_s is None:
            return known
        caught_up_s = self.caught_up_s
        return known | {
            "inPerSecond": round(self.come_per_s, 1),
            "outPerSecond": round(self.read_per_s, 1),
            "caughtUpSeconds": None if caught_up_s is None else round(caught_up_s),
        }


def lags_of(state: Group, spread: Mapping[str, Collection[str]]) -> list[TopicLag]:
    """By topic. The group's retry topic is one that it has only while messages fail.

    `spread`: on which broker groups a topic is; one that it does not have may be on any.
    """
    found = []
    for topic in sorted({each.queue.topic for each in state.queues}):
        queues = [each for each in state.queues if each.queue.topic == topic]
        is_known = not {*state.unanswered}.intersection(spread.get(topic, state.unanswered))
        lag = sum(each.lag for each in queues) if is_known else None
        if topic.startswith(RETRY_PREFIX) and lag == 0:
            continue
        found.append(
            TopicLag(
                state.name,
                topic,
                len(state.members),
                lag,
                # Of a queue without an offset nothing is read yet.
                sum(max(each.committed_offset or 0, each.min_offset) for each in queues),
                sum(each.max_offset_end for each in queues),
                unanswered=state.unanswered,
            )
        )
    return found


def with_rates(
    now: Sequence[TopicLag], before: Sequence[TopicLag], apart_s: float
) -> list[TopicLag]:
    """Rates where the look before has the same group and topic; a reset gives none."""
    known = {(each.group, each.topic): each for each in before}
    found = []
    for each in now:
        earlier = known.get((each.group, each.topic))
        is_known = earlier is not None and None not in (each.lag, earlier.lag)
        if earlier and is_known and apart_s > 0 and each.committed >= earlier.committed:
            each = replace(
                each,
                read_per_s=(each.committed - earlier.committed) / apart_s,
                come_per_s=max(0, each.ends - earlier.ends) / apart_s,
            )
        found.append(each)
    return found


def watch_lag(
    target: Target,
    names: Sequence[str],
    *,
    interval_s: float | None,
    as_json: bool,
    wide: bool,
) -> None:
    """Print it once, or each `interval_s`, until interrupted; the connection stays."""

    async def question(admin: AdminClient) -> None:
        clock = SystemClock()
        before: list[TopicLag] = []
        before_s = 0.0
        while True:
            found, unanswered = await _look(admin, names)
            now_s = clock.monotonic_s()
            found = with_rates(found, before, now_s - before_s)
            if interval_s is not None and as_json:
                say(json.dumps([each.document() for each in found], ensure_ascii=False))
                sys.stdout.flush()
            elif as_json:
                print_json([each.document() for each in found])
            else:
                if interval_s is not None and sys.stdout.isatty():
                    click.clear()
                _print(found, is_watched=interval_s is not None, wide=wide)
            remark_unanswered(unanswered)
            if interval_s is None:
                return
            before, before_s = found, now_s
            await asyncio.sleep(interval_s)

    target.administer(question)


async def _look(admin: AdminClient, names: Sequence[str]) -> tuple[list[TopicLag], tuple[str, ...]]:
    """And the broker groups that did not answer."""
    unanswered: Iterable[str] = ()
    # A group that was named and does not exist is worth a word.
    if names:
        states: Sequence[Group] = [await admin.groups.describe(name) for name in names]
    else:
        listed = await admin.groups.describe_all()
        states, unanswered = listed, listed.unanswered
    silent = tuple(sorted({*unanswered, *(name for each in states for name in each.unanswered)}))
    topics = await admin.topics.list() if silent else []
    spread = {each.name: each.queues_by_broker for each in topics}
    return [each for state in states for each in lags_of(state, spread)], silent


def _print(found: Sequence[TopicLag], *, is_watched: bool, wide: bool) -> None:
    columns: dict[str, Any] = {
        "group": "group",
        "topic": "topic",
        "members": "members",
        "lag": lambda each: None if each["lag"] is None else f"{each['lag']:,}",
    }
    if is_watched:
        columns |= {
            "in/s": lambda each: _rate(each.get("inPerSecond")),
            "out/s": lambda each: _rate(each.get("outPerSecond")),
            "caught up in": _caught_up,
        }
    print_documents(
        [each.document() for each in found],
        columns,
        droppable=("members", "in/s"),
        wide=wide,
        empty="no groups have offsets yet; create one with `aerobee consume TOPIC --group NAME`",
    )


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:,.0f}"


def _caught_up(each: dict[str, Any]) -> str:
    if each["lag"] == 0:
        return "now"
    if "outPerSecond" not in each:
        return "-"
    left_s = each["caughtUpSeconds"]
    if left_s is None:
        return "never"
    if left_s >= DAY_S:
        return "over a day"
    minutes, seconds = divmod(left_s, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
