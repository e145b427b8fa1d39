"""Spark's JVM, started without a fork: gRPC's threads do not survive one, so the child of a process
that also uses gRPC (which every audit of a live cluster does) occasionally dies before it becomes
Java.

pyspark forks so that its child ignores Ctrl-C; here a shell does that. How the JVM then reports its
port is pyspark's own protocol between its two halves.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

LOOK_EVERY_S = 0.02
PORT = "PYSPARK_GATEWAY_PORT"
SECRET = "PYSPARK_GATEWAY_SECRET"
_DEAF = ("/bin/sh", "-c", 'trap "" INT; exec "$0" "$@"')
"""Ignores Ctrl-C, as does the program it runs, even if the signal goes to the process group."""
_TOLD = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_CLASSIC = {"SPARK_CONNECT_MODE": "0"}
_PORT_AND_LENGTH = struct.Struct(">ii")


class JavaEnded(Exception):
    """The JVM ended before it listened; its log says why."""


def start_java(conf: SparkConf, log: IO[bytes]) -> Any:
    """The gateway to a new JVM, which ends together with this process. Its `proc` is the process.

    Raises:
        JavaEnded: see there.
        OSError: it could not even be started.
    """
    options = [word for pair in conf.getAll() for word in ("--conf", "=".join(pair))]
    submitted = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with TemporaryDirectory() as folder:
        told = Path(folder) / "gateway"
        process = subprocess.Popen(
            [*_DEAF, str(Path(_find_spark_home()) / "bin" / "spark-submit"), *options, *submitted],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **_CLASSIC, _TOLD: str(told)},
        )
        try:
            while not told.exists():
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(LOOK_EVERY_S)
                    raise JavaEnded(f"Java ended with status {status}")
            gateway = _connected(told.read_bytes())
        except BaseException:
            end_java(process)
            raise
    gateway.proc = process
    return gateway


def end_java(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, as it does when its standard input is closed, and wait for that."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _connected(told: bytes) -> Any:
    """pyspark's gateway to a JVM that is already running.

    Args:
        told: the port (4 bytes), the length of the secret (4 bytes), the secret; big-endian.
    """
    port, length = _PORT_AND_LENGTH.unpack_from(told)
    start = _PORT_AND_LENGTH.size
    address = {PORT: str(port), SECRET: told[start : start + length].decode()}
    os.environ.update(address)
    try:
        launch: Any = launch_gateway
        return launch()
    finally:
        # With them this process would look like one that `spark-submit` started.
        for name in address:
            del os.environ[name]
