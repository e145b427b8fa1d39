"""The scenario suite, compiled for each release of Apache's remoting client. `make clients-test`
builds them, once, into the cache folder; tests use those that are built.

    python -m tests.rocketmq_remoting.suite.programs [NAME ...]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from peers.fetching import fill_folder
from peers.rocketmq import RocketmqPrograms
from tests.rpc.core.interop.programs import FETCHED_JARS, Program, build

SUITES = {
    version: Program(
        f"java-{version}",
        f"rocketmq-tools {version}",
        ("java", "javac", "mvn"),
        (
            *FETCHED_JARS,
            (
                *("sh", "-c"),
                "javac -Xlint:all,-deprecation,-processing -cp 'libraries/*' -d classes *.java",
            ),
        ),
        (
            *("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx768m"),
            *("-cp", "{0}/classes:{0}/libraries/*", "Suite"),
        ),
        Path(__file__).parent,
    )
    for version in ("5.3.3", "5.5.0", "4.9.8")
}


def fetch_apache() -> None:
    """Apache's own server, into the cache folder; does nothing if it is there."""
    jars = RocketmqPrograms()
    if not jars.folder.exists():
        print(f"fetching {jars.source}", flush=True)
        asyncio.run(fill_folder(jars.folder, jars.fetch))


if __name__ == "__main__":
    sys.exit(build({each.language: each for each in SUITES.values()}, sys.argv[1:]))
