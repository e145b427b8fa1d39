"""Apache's broker and its remoting client for Java: fetched and built once, into the cache folder.

python -m tests.apache_broker.programs
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from peers.fetching import fill_folder
from peers.rocketmq import RocketmqPrograms
from tests.rpc.core.interop.programs import Program, build

JARS = RocketmqPrograms()
REMOTING = Program(
    "java",
    "rocketmq-client 5.3.3",
    ("java", "javac", "mvn"),
    (("javac", "-Xlint:all", "-cp", JARS.classes, "-d", "classes", "Remoting.java"),),
    ("java", "-Xmx256m", "-cp", f"{{0}}/classes:{JARS.classes}", "Remoting"),
    Path(__file__).parent,
)

if __name__ == "__main__":
    if not JARS.folder.exists():
        print(f"fetching {JARS.source}")
        asyncio.run(fill_folder(JARS.folder, JARS.fetch))
    sys.exit(build({"java": REMOTING}, []))
