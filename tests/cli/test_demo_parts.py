"""The demo's parts that need no cluster: its data, its notes, its proof, its report."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aerobee.cli.demo.display import Gauge, opened_display
from aerobee.cli.demo.flights import flights_archive, parse_flight, read_flights
from aerobee.cli.demo.proof import judge
from aerobee.cli.demo.refunds import Refunded
from aerobee.cli.demo.report import Holding, Outcome, Pace, print_report
from aerobee.cli.demo.settings import DemoSettings
from aerobee.cli.demo.sightings import Position, Sighting, SightingsReader, SightingsWriter
from aerobee.cli.local_cluster.programs import REGISTRATION_LEASE_MS
from aerobee.runtime.clock import ManualClock

REFUNDED = Refunded(
    group="desk",
    sent=4,
    attempts=3,
    reason="NoPassengerList: no list of UA1545",
    handled=4,
    repeated=0,
    letters_left=0,
)


def sighting(identity: str, offset: int, *, checksum: int = 7, queue: int = 0) -> Sighting:
    return Sighting(identity, checksum, Position("broker-a", queue, offset))


def outcome_of(sightings: dict[str, list[Sighting]], expected: dict[str, int]) -> Outcome:
    return Outcome(
        verdicts={"all": judge(expected, sightings)},
        sent=len(expected),
        paces=[Pace(who="producer", messages=len(expected), elapsed_s=2.0)],
        holdings=[
            Holding(group="all", queue="t@broker-a:0", holder="c2", committed=3, end=3, lag=0)
        ],
        lag_after_close={"all": 0},
        killed="c1",
        commit_interval_ms=1_000,
        takeover_s=3.0,
        refunded=REFUNDED,
        retried_batches=0,
    )


def printed(outcome: Outcome) -> str:
    stream = io.StringIO()
    print_report(Console(file=stream, width=120), outcome)
    return stream.getvalue()


@pytest.mark.thorough
@pytest.mark.slow
def test_the_data_has_every_flight_once() -> None:
    flights = list(read_flights(flights_archive()))
    assert len(flights) == 336_776
    assert len({flight.identity for flight in flights}) == len(flights)
    assert len({flight.carrier for flight in flights}) == 16
    assert all(flight.line for flight in flights)


def test_a_flight_is_known_by_its_own_row() -> None:
    line = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
    flight = parse_flight(line)
    assert flight.identity == "2013-01-01/UA1545/EWR/0515"
    assert (flight.carrier, flight.tail_number) == ("UA", "N14228")
    assert flight.line == line.encode()
    assert not flight.is_cancelled
    assert parse_flight(line.replace("517,", "NA,", 1)).is_cancelled
    assert parse_flight(line.replace("N14228", "NA")).tail_number is None
    with pytest.raises(ValueError, match="19 columns"):
        parse_flight("2013,1,1")


def test_notes_are_read_as_they_were_written_and_only_once(tmp_path: Path) -> None:
    writer = SightingsWriter(tmp_path / "notes")
    reader = SightingsReader(tmp_path / "notes")
    assert reader.read_new() == []
    writer.write([sighting("a", 0), sighting("b", 1)])
    assert reader.read_new() == [sighting("a", 0), sighting("b", 1)]
    writer.write([sighting("c", 2)])
    writer.close()
    assert reader.read_new() == [sighting("c", 2)]
    assert reader.read_new() == []


def test_a_note_cut_short_by_a_kill_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    whole = sighting("a", 0).encode()
    path.write_bytes(whole + sighting("b", 1).encode()[:-3])
    reader = SightingsReader(path)
    assert reader.read_new() == [sighting("a", 0)]
    assert reader.read_new() == []


def test_a_reader_of_a_missing_file_sees_nothing(tmp_path: Path) -> None:
    assert SightingsReader(tmp_path / "none").read_new() == []


def test_all_seen_once_is_proven() -> None:
    verdict = judge({"a": 7, "b": 7}, {"c1": [sighting("a", 0)], "c2": [sighting("b", 1)]})
    assert verdict.is_proven
    assert (verdict.seen, verdict.sightings, verdict.repeated) == (2, 2, 0)


def test_a_missing_event_is_named_and_nothing_is_proven() -> None:
    verdict = judge({"a": 7, "b": 7}, {"c1": [sighting("a", 0)]})
    assert not verdict.is_proven
    assert verdict.missing == 1
    assert verdict.missing_examples == ("b",)


def test_an_altered_body_is_found() -> None:
    verdict = judge({"a": 7}, {"c1": [sighting("a", 0, checksum=8)]})
    assert verdict.altered == 1
    assert not verdict.is_proven


def test_an_event_that_was_not_meant_for_the_group_is_found() -> None:
    verdict = judge({"a": 7}, {"c1": [sighting("a", 0), sighting("x", 1)]})
    assert verdict.unexpected == 1
    assert not verdict.is_proven


def test_the_same_position_twice_is_a_redelivery_by_known_consumers() -> None:
    verdict = judge({"a": 7}, {"c1": [sighting("a", 0)], "c2": [sighting("a", 0)]})
    assert verdict.is_proven
    assert verdict.redelivered == {("c1", "c2"): 1}
    assert verdict.stored_twice == 0
    assert verdict.repeated == 1


def test_two_positions_of_one_event_are_a_repeated_send() -> None:
    verdict = judge({"a": 7}, {"c1": [sighting("a", 0), sighting("a", 5)]})
    assert verdict.is_proven
    assert verdict.redelivered == {}
    assert verdict.stored_twice == 1


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=6),
    st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3), st.integers(0, 5)), max_size=12),
)
def test_a_verdict_is_proven_exactly_when_the_sets_are_equal(
    expected: dict[str, int], seen: list[tuple[str, int, int]]
) -> None:
    notes = [sighting(name, offset, checksum=crc) for name, crc, offset in seen]
    verdict = judge(expected, {"c1": notes})
    assert verdict.is_proven == (
        {name for name, _, _ in seen} == set(expected)
        and all(expected[name] == crc for name, crc, _ in seen)
    )
    assert verdict.seen + verdict.missing == len(expected)
    assert verdict.seen + verdict.repeated + verdict.unexpected == len(seen)


def test_the_report_says_what_came_twice_and_why() -> None:
    text = printed(
        outcome_of(
            {"c1": [sighting("a", 0)], "c2": [sighting("a", 0), sighting("b", 1)]}, {"a": 7, "b": 7}
        )
    )
    assert "saw 2 of 2 flights in 3 deliveries; missing 0" in text
    assert "1 came twice" in text
    assert "others continued its queues 3.0 s later" in text
    assert "1 by c1 and then c2: c1 had handled them, and was killed" in text
    assert "PROVEN: none of 2 flights is missing" in text


def test_the_report_does_not_claim_what_is_not_so() -> None:
    outcome = outcome_of({"c2": [sighting("a", 0)]}, {"a": 7, "b": 7})
    assert not outcome.is_proven
    text = printed(outcome)
    assert "NOT PROVEN" in text
    assert "for example missing: b" in text


def test_lag_that_stays_is_no_proof() -> None:
    outcome = outcome_of({"c2": [sighting("a", 0)]}, {"a": 7})
    assert outcome.is_proven
    outcome.lag_after_close["all"] = 3
    assert not outcome.is_proven


def test_a_failed_message_that_was_sent_again_is_told() -> None:
    text = printed(outcome_of({"c2": [sighting("a", 0)]}, {"a": 7}))
    assert "desk: handled 4 of 4 cancelled flights; one failed 3 times, was a dead letter" in text
    assert "failed with NoPassengerList: no list of UA1545" in text


@pytest.mark.parametrize(
    "refunded", [replace(REFUNDED, handled=3), replace(REFUNDED, letters_left=1)]
)
def test_a_dead_letter_that_is_not_handled_in_the_end_is_no_proof(refunded: Refunded) -> None:
    whole = outcome_of({"c2": [sighting("a", 0)]}, {"a": 7})
    assert whole.is_proven
    outcome = replace(whole, refunded=refunded)
    assert not outcome.is_proven
    assert "is not handled" in printed(outcome)


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    clock = ManualClock()
    console = Console(file=stream, width=200)
    with opened_display(console, [Gauge("sent", 10), Gauge("seen", None)], clock) as display:
        display.update([1, 1], ["", ""])
        clock.advance_ms(2_100)
        display.update([5, 4], ["9/s", ""])
        display.update([6, 5], ["9/s", ""])
        display.say("something happened")
    assert stream.getvalue().splitlines() == [
        "  sent 5 of 10 (9/s); seen 4",
        "something happened",
    ]


def test_with_replicas_the_members_sessions_outlive_a_change_of_master() -> None:
    """docs/consumer-groups.md says how long a session must be for that."""
    session_ms = DemoSettings(replicas=2).member_session_timeout_ms
    assert 0.65 * session_ms > REGISTRATION_LEASE_MS + 1_000
    assert DemoSettings().member_session_timeout_ms < session_ms, "else a kill takes longer to see"
