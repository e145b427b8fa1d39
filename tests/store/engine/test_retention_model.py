"""Any order of sending, reading, cleaning and restarting, against a model of what must be left."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_policy import CleanRequest
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.property_runs import examples
from tests.support.retention import clean_here, fill, settle
from tests.support.stores import check_agreement, log_records, open_store

TOPICS = ("Orders", "Clicks")
QUEUES = 2
GROUPS = ("billing", "audit")
CEILINGS = {"Orders": None, "Clicks": 6_000}
Key = tuple[str, int, str]


@dataclass
class Model:
    """What the broker would know, and where every message lies."""

    offsets: dict[Key, int] = field(default_factory=dict)
    positions: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    lost: dict[Key, int] = field(default_factory=dict)

    def learn(self, store: MessageStore) -> None:
        for record in log_records(store):
            positions = self.positions.setdefault((record.topic, record.queue_id), [])
            if record.queue_offset == len(positions):
                positions.append(record.physical_offset)

    def readers(self) -> list[QueueReaders]:
        queues: dict[tuple[str, int], dict[str, int]] = {}
        for (topic, queue_id, group), offset in self.offsets.items():
            queues.setdefault((topic, queue_id), {})[group] = offset
        return [QueueReaders(*name, offsets, CEILINGS[name[0]]) for name, offsets in queues.items()]

    def is_held(self, base: int, end: int, log_end: int) -> bool:
        """Whether a message that must be kept begins in the segment."""
        for (topic, queue_id, _), offset in self.offsets.items():
            ceiling = CEILINGS[topic]
            held_from = base if ceiling is None else max(base, log_end - ceiling)
            unread = self.positions.get((topic, queue_id), [])[offset:]
            if any(held_from <= position < end for position in unread):
                return True
        return False

    def lose(self, base: int, end: int) -> None:
        for key, offset in self.offsets.items():
            unread = self.positions.get(key[:2], [])[offset:]
            messages = sum(base <= position < end for position in unread)
            if messages:
                self.lost[key] = self.lost.get(key, 0) + messages


def clean(store: MessageStore, model: Model, *, unread: bool, segments_max: int) -> None:
    """Clean, and compare with what the model says of each segment in turn."""
    request = CleanRequest(commanded=True, unread=unread)
    segments, log_end = store.log.segments(), store.appended_end
    removed = clean_here(store.retention, model.readers(), request, segments_max=segments_max)
    expected = []
    for segment in segments[:-1][:segments_max]:
        end = segment.base + 4096
        if not unread and model.is_held(segment.base, end, log_end):
            break
        expected.append(segment.base)
        model.lose(segment.base, end)
    assert [segment.base for segment in removed] == expected


def check(store: MessageStore, model: Model, lost_before: dict[Key, int]) -> None:
    check_agreement(store)
    counted = {
        (each.topic, each.queue_id, each.group): each.messages
        for each in store.statistics().retention.removed_unread
    }
    since_start = {
        key: messages - lost_before.get(key, 0)
        for key, messages in model.lost.items()
        if messages > lost_before.get(key, 0)
    }
    assert counted == since_start
    for name, positions in model.positions.items():
        bounds = store.queues.bounds(*name)
        assert bounds.max_offset == len(positions)
        assert bounds.min_offset == sum(position < store.min_offset for position in positions)


STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(TOPICS), st.integers(1, 12)),
    st.tuples(
        st.just("commit"),
        st.tuples(st.sampled_from(TOPICS), st.integers(0, QUEUES - 1), st.sampled_from(GROUPS)),
        st.integers(0, 100),
    ),
    st.tuples(st.just("clean"), st.booleans(), st.integers(1, 5)),
    st.tuples(st.just("restart"), st.booleans(), st.none()),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=3, max_size=25))
def test_what_is_left_and_what_was_lost_is_what_the_rules_say(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    disk, clock, model = SimulatedDisk(), ManualClock(), Model()
    store = open_store(disk, clock=clock)
    lost_before: dict[Key, int] = {}
    for kind, what, count in steps:
        if kind == "send":
            fill(store, count, topic=what, queues=QUEUES)
            model.learn(store)
        elif kind == "commit":
            end = len(model.positions.get(what[:2], []))
            model.offsets[what] = count * end // 100
        elif kind == "clean":
            settle(store, clock)
            clean(store, model, unread=what, segments_max=count)
        else:
            if what:
                store.close()
            else:
                disk.end_power()
                disk.revive()
            store = open_store(disk, clock=clock)
            lost_before = dict(model.lost)
        check(store, model, lost_before)
