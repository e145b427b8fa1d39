"""The audit log's files: what was done to them afterwards is found, and they survive what happens
to a process and its disk."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.audit_log import writer
from aerobee.runtime.audit_log.chain import BEGINNING, Key, Place, line_after
from aerobee.runtime.audit_log.config import AuditLogConfig, OnFailure
from aerobee.runtime.audit_log.log_file import AuditLogFile, earlier_files
from aerobee.runtime.audit_log.refusal_limit import OTHERS, RefusalLimit
from aerobee.runtime.audit_log.verification import Verdict, logs_of, verify
from aerobee.runtime.audit_log.writer import AuditLog
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument
from tests.support.waiting import PATIENCE_S, wait_until

KEY = Key(b"k" * 32)
OTHER_KEY = Key(b"o" * 32)
LINES = 8


def chain(count: int, key: Key | None = KEY, place: Place = BEGINNING) -> list[bytes]:
    lines = []
    for number in range(count):
        line, place = line_after(place, {"node": "broker:a/0", "event": f"{number}"}, key)
        lines.append(line)
    return lines


def judged(folder: Path, data: bytes, *keys: Key, expected: Place | None = None) -> Verdict:
    path = folder / "audit.log"
    path.write_bytes(data)
    return verify([path], keys, expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chain")


def test_an_untouched_log_is_intact(folder: Path) -> None:
    for key in (KEY, None):
        verdict = judged(folder, b"".join(chain(LINES, key)), *([] if key is None else [key]))
        assert (verdict.findings, verdict.lines, verdict.has_macs) == ([], LINES, key is not None)
    assert judged(folder, b"", KEY).lines == 0


@given(data=st.data())
def test_whatever_is_done_to_lines_is_found(folder: Path, data: st.DataObject) -> None:
    """By those who cannot compute hashes, and by those who can but have no key. What the last lines
    were is only known elsewhere."""
    lines = chain(LINES)
    place = Place(LINES, json.loads(lines[-1])["hash"])
    number = data.draw(st.integers(0, LINES - 1))
    match data.draw(st.sampled_from(("change", "remove", "move", "insert", "repeat", "forge"))):
        case "change":
            line = bytearray(lines[number])
            index = data.draw(st.integers(0, len(line) - 2))
            line[index] = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[index]))
            lines[number] = bytes(line)
        case "remove":
            until = data.draw(st.integers(number + 1, LINES))
            del lines[number:until]
        case "move":
            other = data.draw(st.integers(0, LINES - 1).filter(lambda other: other != number))
            lines.insert(other, lines.pop(number))
        case "insert":
            own = data.draw(st.sampled_from((b"\n", b"{}\n", chain(1, None)[0], b"\x00" * 99)))
            lines.insert(number, own)
        case "repeat":
            lines.insert(number, lines[number])
        case "forge":
            before = Place(number, json.loads(lines[number])["prev"])
            lines[number:] = chain(
                LINES - number, data.draw(st.sampled_from((None, OTHER_KEY))), before
            )
    verdict = judged(folder, b"".join(lines), KEY, expected=place)
    # That the first lines are gone is told, as they are once the oldest file is removed.
    is_headless = verdict.first is None or verdict.first.place.sequence > 1
    assert verdict.findings or is_headless


@pytest.mark.parametrize(
    ("kept", "why"), [(0, "the file is empty"), (-30, "has no end"), (-1, "has no end")]
)
def test_a_log_that_was_emptied_or_whose_last_line_was_cut_is_not_intact(
    folder: Path, kept: int, why: str
) -> None:
    """Also where only the end of the line is missing."""
    verdict = judged(folder, b"".join(chain(LINES))[:kept])
    assert [why in each.why for each in verdict.findings] == [True]


def test_no_file_is_empty_after_the_one_before_it_is_full(tmp_path: Path) -> None:
    """So that one that is was emptied."""
    path = tmp_path / "log"
    file = AuditLogFile(path, bytes_max=1, files_max=9)
    file.open()
    for number in range(3):
        file.append([{"event": str(number)}], KEY, is_durable=False)
        assert all(each.stat().st_size for each in tmp_path.iterdir())
        assert not verify(files_of(path), [KEY]).findings
    path.write_bytes(b"")
    assert [each.why[:17] for each in verify(files_of(path), [KEY]).findings] == [
        "the file is empty"
    ]


def test_the_first_wrong_line_is_named(folder: Path) -> None:
    lines = chain(LINES)
    lines[3] = lines[3].replace(b'"event":"3"', b'"event":"x"')
    del lines[5]
    changed, gap = judged(folder, b"".join(lines), KEY).findings
    assert str(changed).endswith("audit.log line 4: it was changed: its hash does not fit")
    assert str(gap).endswith("audit.log line 6: lines 6 to 6 are missing before it")


def test_without_the_key_a_chain_that_was_made_anew_passes_and_the_place_elsewhere_tells(
    folder: Path,
) -> None:
    forged = b"".join(chain(LINES, OTHER_KEY))
    assert judged(folder, forged).findings == []
    place = Place(3, json.loads(chain(3)[-1])["hash"])
    (finding,) = judged(folder, forged, expected=place).findings
    assert "is not the one that is known of line 3" in finding.why
    (finding,) = judged(folder, b"".join(chain(2)), expected=place).findings
    assert "were cut off" in finding.why


def test_a_key_is_exchanged_and_the_former_one_still_checks(folder: Path) -> None:
    before = chain(3)
    place = Place(3, json.loads(before[-1])["hash"])
    data = b"".join([*before, *chain(3, OTHER_KEY, place)])
    assert judged(folder, data, OTHER_KEY, KEY).findings == []
    assert [each.number for each in judged(folder, data, OTHER_KEY).findings] == [1, 2, 3]
    keyless = chain(2, None)
    place = Place(2, json.loads(keyless[-1])["hash"])
    assert judged(folder, b"".join([*keyless, *chain(3, KEY, place)]), KEY).findings == []


# ------------------------------------------------------------------------------------ files


def files_of(path: Path) -> list[Path]:
    (files,) = logs_of([path])
    return files


def opened(path: Path, **changes: int) -> AuditLogFile:
    file = AuditLogFile(path, **{"bytes_max": 10**9, "files_max": 4, **changes})
    file.open()
    return file


def append(file: AuditLogFile, *events: str) -> Place:
    return file.append([{"event": event} for event in events], KEY, is_durable=True)


def findings(path: Path) -> Sequence[str]:
    return [each.why for each in verify(files_of(path), [KEY]).findings]


def events(path: Path) -> list[str]:
    return [
        json.loads(line)["event"]
        for each in files_of(path)
        for line in each.read_bytes().splitlines()
    ]


def test_the_chain_goes_on_over_files_and_the_oldest_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.log"
    file = opened(path, bytes_max=2_000)
    for number in range(60):
        append(file, str(number))
        if number % 7 == 0:
            file.close()
            file = opened(path, bytes_max=2_000)
    file.close()
    assert len(earlier_files(path)) == 3
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    verdict = verify(files_of(path), [KEY])
    assert verdict.findings == []
    assert verdict.last is not None
    assert verdict.last.place.sequence == 60
    middle = earlier_files(path)[1]
    middle.unlink()
    (why,) = findings(path)
    assert "are missing before it" in why


def test_a_line_that_was_not_finished_is_cut_off_and_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    append(file, "first", "second")
    file.close()
    whole = path.read_bytes()
    path.write_bytes(whole + chain(1)[0][:50])
    assert verify([path], [KEY]).is_torn
    file = AuditLogFile(path, bytes_max=10**9, files_max=4)
    assert file.open() == 50
    append(file, "third")
    file.close()
    assert (events(path), findings(path)) == (["first", "second", "third"], [])


def test_a_process_that_was_killed_between_two_files_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    append(file, "first", "second")
    file.close()
    path.rename(tmp_path / "audit.log.000000000001")
    file = opened(path)
    assert append(file, "third").sequence == 3
    file.close()
    assert findings(path) == []


def test_what_others_do_to_the_file_meanwhile_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    append(file, "first")
    with path.open("ab") as other:
        other.write(b"a remark of somebody")
    append(file, "second")
    path.unlink()
    append(file, "third")
    file.close()
    assert events(path) == ["disturbed", "third"]
    (first, *_) = path.read_bytes().splitlines()
    assert json.loads(first)["seq"] == 4


def test_a_file_is_written_by_one_process(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit.log")
    with pytest.raises(InvalidArgument, match="another process writes it"):
        opened(tmp_path / "audit.log")
    file.close()
    with pytest.raises(InvalidArgument, match="not a regular file"):
        opened(Path("/dev/null"))


# ------------------------------------------------------------------------------ a process's log


@contextmanager
def full_disk(bytes_max: int) -> Iterator[None]:
    """No file of this process grows beyond that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def made(path: Path, on_failure: OnFailure = OnFailure.CONTINUE) -> AuditLog:
    config = AuditLogConfig(file=str(path), on_failure=on_failure)
    return AuditLog(config, "broker:a/0", clock=SystemClock(), key=lambda: KEY)


def figures(log: AuditLog) -> dict[str, float]:
    return {family.name: family.rows[0][1] for family in log.families()}  # type: ignore[misc]


async def test_a_full_disk_loses_lines_and_the_log_says_how_many(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with made(path) as log:
        assert await log.record({"event": "act", "what": 1})
        with full_disk(path.stat().st_size + 100):
            assert not await log.record({"event": "act", "what": 2})
            assert not await log.record({"event": "act", "what": 3})
            # What was begun of a line is no part of the file.
            assert path.read_bytes().endswith(b"}\n")
        assert await log.record({"event": "act", "what": 4})
        assert figures(log) == {
            "aerobee_audit_log_sequence": 4,
            "aerobee_audit_log_lines_lost_total": 2,
            "aerobee_audit_log_refusals_left_out_total": 0,
        }
    assert events(path) == ["started", "act", "lost", "act", "stopped"]
    assert "2 lines could not be written" in path.read_text()
    assert findings(path) == []


async def test_a_disk_that_hangs_counts_as_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    async with made(path) as log:
        hangs = threading.Event()
        append = AuditLogFile.append

        def slow(*args: Any, **named: Any) -> Place:
            hangs.wait(PATIENCE_S)
            return append(*args, **named)

        with monkeypatch.context() as patch:
            patch.setattr(AuditLogFile, "append", slow)
            patch.setattr(writer, "WAIT_S", 0.05)
            assert not await log.record({"event": "act"})
            hangs.set()
        assert await log.record({"event": "act"})
    assert events(path) == ["started", "act", "act", "stopped"]


def test_files_of_several_nodes_are_several_logs(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.000000000001", "a.log.000000000017", "b.log"):
        (tmp_path / name).touch()
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    earlier = [tmp_path / "a.log.000000000001", tmp_path / "a.log.000000000017"]
    assert logs_of([b, a]) == [[b], [*earlier, a]]
    assert logs_of([a, *earlier]) == [[*earlier, a]]
    assert logs_of(earlier[1:]) == [earlier]


async def test_many_lines_at_once_are_few_writes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with made(path) as log:
        done = await asyncio.gather(*(log.record({"event": str(n)}) for n in range(500)))
    assert all(done)
    assert events(path) == ["started", *map(str, range(500)), "stopped"]
    assert findings(path) == []


async def test_more_lines_than_wait_are_lost_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with made(path) as log:
        for _ in range(5_000):
            log.note({"event": "act"})
        lost = int(figures(log)["aerobee_audit_log_lines_lost_total"])
        assert 0 < lost < 1_000
        while figures(log)["aerobee_audit_log_sequence"] < 4_097:
            await asyncio.sleep(0.01)
    assert f"{lost} lines could not be written" in path.read_text()
    assert findings(path) == []


ACKNOWLEDGES = """
import asyncio, sys
from pathlib import Path
from tests.runtime.test_audit_log import made

async def main():
    async with made(Path(sys.argv[1])) as log:
        number = 0
        while True:
            number += 1
            assert await log.record({"event": "act", "run": sys.argv[2], "what": number})
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_killed_process_has_written_what_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for run in range(3):
        said = tmp_path / f"acknowledged-{run}"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", ACKNOWLEDGES, str(path), str(run)],
                stdout=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        wait_until(lambda said=said: said.stat().st_size > 400, "acknowledgements")
        process.send_signal(signal.SIGKILL)
        process.wait()
        acknowledged = {int(line) for line in said.read_bytes().split(b"\n")[:-1]}
        written = {
            document["what"]
            for each in files_of(path)
            for line in each.read_bytes().split(b"\n")[:-1]
            if (document := json.loads(line)).get("run") == str(run)
        }
        assert len(acknowledged) > 50
        assert acknowledged <= written
        assert findings(path) == []
    assert events(path).count("started") == 3
    assert "stopped" not in events(path)


# ---------------------------------------------------------------------------------- refusals


def test_strangers_fill_no_disk_and_hide_no_user() -> None:
    """An hour in which a thousand addresses call as fast as they can."""
    limit = RefusalLimit(0.0)
    lines = users = 0
    for second in range(3_600):
        for number in range(20):
            stranger = f"10.0.0.{(second * 20 + number) % 1_000}"
            lines += limit.passes(stranger, is_known=False, now_s=second)
        if second % 2 == 0:
            users += limit.passes("user shop", is_known=True, now_s=second)
    assert lines <= 200 + 3_600
    assert users == 1_800
    left_out = limit.take_left_out()
    assert sum(left_out.values()) == 3_600 * 20 - lines
    assert len(left_out) == 11
    assert left_out[OTHERS] > 0
    assert limit.take_left_out() == {}


def test_one_user_does_not_take_the_lines_of_others() -> None:
    limit = RefusalLimit(0.0)
    flood = sum(limit.passes("user a", is_known=True, now_s=1.0) for _ in range(10_000))
    assert flood == 20
    assert limit.passes("user b", is_known=True, now_s=1.0)
    assert limit.take_left_out() == {"user a": 9_980}


async def test_refusals_without_a_line_are_counted_in_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with made(path) as log:
        for _ in range(100):
            if log.takes_refusal("10.0.0.1", is_known=False):
                log.note({"event": "refusal"})
    assert events(path) == ["started", *["refusal"] * 20, "left out", "stopped"]
    line = json.loads(path.read_bytes().splitlines()[-2])
    assert (line["refusals"], line["callers"]) == (80, {"10.0.0.1": 80})
