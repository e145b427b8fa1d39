"""The audit as people start it: the command that watches until Ctrl-C, and `spark-submit`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pyspark
import pytest

from aerobee.offset_audit.run import submit
from aerobee.offset_audit.run.exit_codes import INTERRUPTED, USAGE, NotReady
from aerobee.offset_audit.run.java import require_java

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "clean-small.tar.gz"
LEFT_BEHIND_S = 20.0
BRIEF = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Each of these programs ends when Java would just begin to profit from optimising."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store of Apache's, at rest."""
    try:
        require_java()
    except NotReady as error:
        pytest.skip(str(error))
    with tarfile.open(GOLDEN) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    return tmp_path / "clean-small"


def of_session(session_id: int) -> list[str]:
    """Commands of the processes that live in this session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue  # it has gone
            if int(fields[3]) == session_id and fields[0] != "Z":
                found.append(command)
    return found


def nothing_left_of(session_id: int) -> bool:
    deadline = time.monotonic() + LEFT_BEHIND_S
    while of_session(session_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.thorough
def test_a_watch_looks_again_until_ctrl_c_and_leaves_nothing_behind(store: Path) -> None:
    arguments = ["audit", "--watch", "--interval", "1", "--store", str(store), "--format", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "aerobee.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **BRIEF},
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            runs = []
            for line in process.stdout:
                if '"run_id": "' in line and line.startswith('  "'):
                    runs.append(line)
                if len(runs) == 2 and line == "}\n":
                    break
            # A terminal tells everybody in the foreground.
            os.killpg(process.pid, signal.SIGINT)
            rest = process.stdout.read()
            errors = process.stderr.read()
        finally:
            if process.poll() is None and not nothing_left_of(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
    assert len(set(runs)) == 2, errors
    assert process.returncode == INTERRUPTED, errors
    assert "Traceback" not in errors + rest
    assert "Exception" not in errors + rest
    assert nothing_left_of(process.pid)


@pytest.mark.long
def test_spark_submit_gives_the_same_document_and_exit_code(store: Path, tmp_path: Path) -> None:
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    document = tmp_path / "out"
    arguments = ["--store", str(store), "--out", str(document), "--format", "json"]
    done = subprocess.run(
        [program, *settings, submit.__file__, *arguments],
        env={**os.environ, **BRIEF, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = json.loads((document / "summary.json").read_text())
    assert done.returncode == found["exit_code"], done.stderr
    assert json.loads(done.stdout) == found
    assert found["depth"] == "snapshot"
    assert found["rows"]["queues"] > 0
    assert "Warning" not in done.stderr


def test_wrong_arguments_end_before_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(["--limit", "nonsense=1"]) == USAGE
    assert "known are: lag-messages" in capsys.readouterr().err
    assert submit.main(["--watch", "--deep", "--store", "/data"]) == USAGE
    assert "works without Spark" in capsys.readouterr().err
