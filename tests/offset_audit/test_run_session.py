"""The session of an audit: it computes, it is quiet, and it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_session_runs_python_of_this_environment_in_its_workers(spark: SparkSession) -> None:
    def of_workers(batches):  # type: ignore[no-untyped-def]
        import pyarrow

        import aerobee.offset_audit.tables

        assert aerobee.offset_audit.tables
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1).mapInArrow(of_workers, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


PROGRAM = """
import threading
from aerobee.offset_audit.run.exit_codes import SparkFailed
from aerobee.offset_audit.run.session import audit_session, open_session


def start_another():
    try:
        open_session("local[1]", is_brief=True)
    except SparkFailed:
        print("refused")


with audit_session("local[1]", is_brief=True) as spark:
    thread = threading.Thread(target=start_another)
    thread.start()
    thread.join()
    print(spark.range(10).count())
    print(spark.sparkContext._gateway.proc.pid)
"""


@pytest.mark.thorough
def test_a_session_says_nothing_outlives_a_second_one_and_leaves_no_java_behind(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    refused, rows, java = done.stdout.splitlines()
    assert (refused, rows) == ("refused", "10")
    assert not Path(f"/proc/{java}").exists()
    assert not list(tmp_path.iterdir())


AGAIN = """
from aerobee.offset_audit.run.exit_codes import SparkFailed
from aerobee.offset_audit.run.session import audit_session

for memory in ("300m", "600m"):
    try:
        with audit_session("local[1]", settings={"spark.driver.memory": memory}) as spark:
            print(spark.range(10).count())
    except SparkFailed as failed:
        print(failed)
"""


@pytest.mark.long
def test_a_session_that_did_not_start_leaves_no_java_to_the_next(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGAIN], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    refused, started = done.stdout.splitlines()
    assert "INVALID_DRIVER_MEMORY" in refused
    assert started == "10", done.stderr


STARTS = 25
BESIDE_GRPC = f"""
import asyncio, os, sys, tempfile
import grpc
from pyspark import SparkConf
from aerobee.offset_audit.run.java_gateway import JavaEnded, start_java


async def call_for_ever(port):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        while True:
            try:
                await channel.unary_unary("/nobody/knows")(b"")
            except grpc.aio.AioRpcError:
                pass


def start():
    with tempfile.TemporaryFile() as log:
        try:
            start_java(SparkConf(loadDefaults=False), log)
        except JavaEnded as ended:
            return str(ended)


async def main():
    server = grpc.aio.server()
    calls = asyncio.create_task(call_for_ever(server.add_insecure_port("127.0.0.1:0")))
    await server.start()
    for _ in range({STARTS}):
        print(await asyncio.to_thread(start))
    calls.cancel()
    await server.stop(None)


asyncio.run(main())
"""


def test_java_starts_in_a_process_that_is_busy_with_grpc(tmp_path: Path) -> None:
    """A forked copy of such a process dies as often as not before it is another program."""
    home = tmp_path / "spark"
    program = home / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_GRPC],
        env={**os.environ, "SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.splitlines() == ["Java ended with status 7"] * STARTS, done.stderr
