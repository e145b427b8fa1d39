"""Queues are spread evenly, grow in place, and every nameserver decides alike."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.nameserver.placement import grow_queues, place_queues

groups = st.sets(st.sampled_from([f"broker-{letter}" for letter in "abcdefg"]), min_size=1)
topics = st.text("abc", min_size=1, max_size=5)


@settings(deadline=None)
@given(topic=topics, queues=st.integers(1, 60), names=groups)
def test_counts_differ_by_one_at_most_and_none_is_empty(
    topic: str, queues: int, names: set[str]
) -> None:
    counts = place_queues(topic, queues, list(names))
    assert sum(counts.values()) == queues
    assert set(counts) <= names
    assert len(counts) == min(len(names), queues)
    assert max(counts.values()) - min(counts.values()) <= 1


@settings(deadline=None)
@given(topic=topics, queues=st.integers(1, 60), names=groups)
def test_the_order_of_the_groups_does_not_matter(topic: str, queues: int, names: set[str]) -> None:
    forward = place_queues(topic, queues, sorted(names))
    assert forward == place_queues(topic, queues, sorted(names, reverse=True))


@settings(deadline=None)
@given(
    topic=topics,
    current=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), max_size=4),
    more=st.integers(0, 30),
    alive=st.sets(st.sampled_from("abcdef"), min_size=1),
)
def test_growth_takes_nothing_away_and_goes_to_live_groups_only(
    topic: str, current: dict[str, int], more: int, alive: set[str]
) -> None:
    grown = grow_queues(topic, current, sum(current.values()) + more, list(alive))
    assert sum(grown.values()) == sum(current.values()) + more
    for group in set(grown) | set(current):
        assert grown.get(group, 0) >= current.get(group, 0)
        if group not in alive:
            assert grown.get(group, 0) == current.get(group, 0)


def test_small_topics_do_not_all_begin_on_the_first_group() -> None:
    first = Counter(
        next(iter(place_queues(f"topic-{n}", 1, ["a", "b", "c", "d"]))) for n in range(400)
    )
    assert len(first) == 4
    assert min(first.values()) > 60
