"""The last lines of an audit log are read from its end, at a bounded price, whatever is done to its
files meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.audit_log.chain import LINE_BYTES_MAX, read_line
from aerobee.runtime.audit_log.log_file import AuditLogFile
from aerobee.runtime.audit_log.reading import (
    READ_BYTES_MAX,
    LogPart,
    WantedLines,
    read_back,
    time_text,
)
from aerobee.runtime.errors import InvalidArgument

ALL = WantedLines()
START_MS = 1_700_000_000_000


def written(path: Path, count: int, *, bytes_max: int = 64 * 1_024, wide: int = 0) -> AuditLogFile:
    """A log of `count` acts, one a second, of three callers in turn."""
    file = AuditLogFile(path, bytes_max=bytes_max, files_max=50)
    file.open()
    for number in range(count):
        content = {
            "time": time_text(START_MS + 1_000 * number),
            "event": "refusal" if number % 5 == 4 else "act",
            "caller": f"user {'abc'[number % 3]}",
            "method": "/aerobee.v1.NameserverService/CreateTopic",
            "needs": [f"Create on Topic:t{number}"],
            "filler": "x" * wide,
        }
        file.append([content], None, is_durable=False)
    return file


def all_back(path: Path, wanted: WantedLines = ALL, lines_max: int = 7) -> list[int]:
    """The numbers of all lines, page by page."""
    found, place, before = [], "", None
    while place != before:
        before = place
        part = read_back(path, "n", place, wanted, lines_max)
        found += numbers(part)
        assert len(part.lines) <= lines_max
        place = part.next
        if not place:
            return found
    raise AssertionError(f"no progress at {place}")


def numbers(part: LogPart) -> list[int]:
    return [read_line(each.data).place.sequence for each in part.lines]


def test_pages_put_together_are_all_lines_of_all_files(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 1_000).close()
    assert len(list(tmp_path.iterdir())) > 3
    assert all_back(path) == list(range(1_000, 0, -1))


@given(wide=st.integers(0, 40_000), lines_max=st.integers(1, 30))
def test_lines_of_any_length_are_found_whole(
    tmp_path_factory: pytest.TempPathFactory, wide: int, lines_max: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "audit.log"
    written(path, 40, wide=wide, bytes_max=300_000).close()
    assert all_back(path, lines_max=lines_max) == list(range(40, 0, -1))


def test_a_place_stays_when_its_file_is_renamed_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = written(path, 100, bytes_max=1_000_000)
    part = read_back(path, "n", "", ALL, 10)
    assert numbers(part) == list(range(100, 90, -1))
    path.rename(path.with_name("audit.log.000000000001"))
    file.append([{"event": "act"}], None, is_durable=False)
    file.close()
    assert numbers(read_back(path, "n", part.next, ALL, 10)) == list(range(90, 80, -1))


def test_where_the_file_of_a_place_was_removed_nothing_is_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 1_000).close()
    oldest = min(path.parent.glob("audit.log.*"))
    first = int(oldest.suffix[1:])
    oldest.unlink()
    part = read_back(path, "n", f"{first}:5000", ALL, 10)
    assert (part.lines, part.next) == ((), "")


def test_what_is_wanted_is_chosen_at_the_node(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 300).close()
    since, until = time_text(START_MS + 100_000), time_text(START_MS + 110_000)
    assert all_back(path, WantedLines(since=since, until=until)) == list(range(111, 100, -1))
    assert all_back(path, WantedLines(about="Topic:t77")) == [78]
    assert len(all_back(path, WantedLines(caller="user a"))) == 100
    assert len(all_back(path, WantedLines(only_refusals=True))) == 60
    assert all_back(path, WantedLines(method="Delete")) == []


def test_one_reading_is_bounded_however_few_lines_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    written(path, 3_000, wide=500, bytes_max=400_000).close()
    read = 0
    real = os.pread

    def counting(file: int, size: int, offset: int) -> bytes:
        nonlocal read
        data: bytes = real(file, size, offset)
        read += len(data)
        return data

    monkeypatch.setattr("os.pread", counting)
    part = read_back(path, "n", "", WantedLines(caller="nobody"), 10)
    assert part.lines == ()
    assert part.next
    assert read <= READ_BYTES_MAX + 2 * LINE_BYTES_MAX
    (before,) = numbers(read_back(path, "n", part.next, ALL, 1))
    assert part.read_to == time_text(START_MS + 1_000 * before), "the line after it"


def test_a_line_that_was_changed_is_counted_and_one_without_an_end_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 10).close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"user b", b"user z")
    lines[6] = b"noise\n"
    path.write_bytes(b"".join(lines) + b'{"seq":11,')
    part = read_back(path, "n", "", ALL, 100)
    assert part.damaged == 2
    assert numbers(part) == [10, 9, 8, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("place", ["x", "1", "1:", ":1", "-1:2", "1:2:3", "9" * 99 + ":1", "1:１"])
def test_a_place_of_no_log_is_refused(tmp_path: Path, place: str) -> None:
    written(tmp_path / "audit.log", 3).close()
    with pytest.raises(InvalidArgument, match="place"):
        read_back(tmp_path / "audit.log", "n", place, ALL, 1)


@given(place=st.tuples(st.integers(0, 2_000), st.integers(0, 10**6)))
def test_any_place_is_answered(noisy: Path, place: tuple[int, int]) -> None:
    found = numbers(read_back(noisy, "n", f"{place[0]}:{place[1]}", ALL, 200))
    assert found == sorted(found, reverse=True)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noisy") / "audit.log"
    written(path, 1_000).close()
    return path
