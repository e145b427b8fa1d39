"""Pages of the lines of several nodes, put together, are all of them in order of time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core.audit_logs import END, SILENT, page_of
from aerobee.v1 import audit_log_pb2

PER_ANSWER = 4


def answer(node: str, times: list[int], place: str) -> audit_log_pb2.AuditLogPage:
    """As a node does: at most `PER_ANSWER` lines before a place, the newest first."""
    end = int(place) if place else len(times)
    begin = max(0, end - PER_ANSWER)
    return audit_log_pb2.AuditLogPage(
        node=node,
        is_kept=True,
        lines=[
            audit_log_pb2.AuditLogLine(
                json=json.dumps({"time": f"{times[at]:03}", "node": node, "seq": at}).encode(),
                place=str(at),
            )
            for at in range(end - 1, begin - 1, -1)
        ],
        next=str(begin) if begin else "",
        read_to=f"{times[begin]:03}" if end else "",
    )


logs = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.integers(0, 30), max_size=15).map(sorted)
)


@given(logs=logs, max_lines=st.integers(1, 10))
def test_pages_are_all_lines_in_order(logs: dict[str, list[int]], max_lines: int) -> None:
    found: list[tuple[str, str, int]] = []
    places: Mapping[str, str] = dict.fromkeys(logs, "")
    pages = 0
    while places:
        answers = {
            each: answer(each, logs[each], place.partition("@")[0])
            for each, place in places.items()
            if place not in (END, SILENT)
        }
        page = page_of(answers, places, {each: each for each in logs}, {}, max_lines)
        assert len(page.lines) <= max_lines
        found += [(each.time, each.node, each.content["seq"]) for each in page.lines]
        places = page.older
        pages += 1
        assert pages < 200, "no progress"
    times = [time for time, _, _ in found]
    assert times == sorted(times, reverse=True)
    assert len(set(found)) == len(found)
    assert len(found) == sum(map(len, logs.values()))


def test_a_node_that_was_silent_stays_named_on_older_pages() -> None:
    answers = {"a": answer("a", list(range(10)), "")}
    page = page_of(answers, {"a": "", "b": ""}, {"a": "a", "b": "b"}, {"b": "away"}, 3)
    assert page.older["b"] == SILENT
    assert page.unanswered == {"b": "away"}
