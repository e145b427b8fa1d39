"""Apache's own clients, each as a program that is told what to do line by line. `make interop`
builds them, once, into the cache folder; tests use those that are built.

They run in processes of their own: their protobuf descriptors have the names of ours.

    python -m tests.rocketmq_api.official.programs [LANGUAGE ...]

A program's arguments are `producer`, the address of a node, and the topics that it names. A line is
JSON; it is answered by one line, which is `{"error": WORDS}` if the client refused or failed:

    {"do": "send", "topic": T, "body": B, "tag": T, "keys": [K], "properties": {N: V},
     "group": G, "delay_s": S, "priority": P}      all but topic and body may be absent
        -> {"id": I, "transaction": I, "handle": H}     what the client tells of these
    {"do": "send", "topic": T, "bodies": [B]}      as one batch
        -> {"ids": [I]}
    {"do": "recall", "topic": T, "handle": H}
        -> {"id": I}
    {"do": "stop"}
        -> {"stopped": true}

Before the first line it says `{"started": true}`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.grpc_core.interop.programs import Program, build

HERE = Path(__file__).parent

PROGRAMS = {
    program.language: program
    for program in (
        Program(
            "python",
            "rocketmq-python-client 5.1.2",
            ("python3",),
            (
                ("python3", "-m", "venv", "venv"),
                ("venv/bin/pip", "install", "-q", "-r", "requirements.txt"),
            ),
            ("{0}/venv/bin/python", "{0}/client.py"),
            HERE,
        ),
        Program(
            "node",
            "rocketmq-client-nodejs 1.0.8",
            ("node", "npm"),
            (("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),),
            ("node", "{}/client.js"),
            HERE,
        ),
        Program(
            "java",
            "rocketmq-client-java 5.0.8",
            ("java", "javac", "mvn"),
            (
                ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libraries"),
                ("javac", "-Xlint:all", "-cp", "libraries/*", "-d", "classes", "Client.java"),
            ),
            ("java", "-cp", "{0}/classes:{0}/libraries/*", "Client"),
            HERE,
        ),
        Program(
            "go",
            "rocketmq-clients/golang v5.1.4",
            ("go",),
            (("go", "build", "-trimpath", "-buildvcs=false", "-o", "official", "."),),
            ("{}/official",),
            HERE,
        ),
        Program(
            "rust",
            "crate rocketmq 5.0.0",
            ("cargo",),
            (
                ("cargo", "build", "--locked"),
                ("mv", "target/debug/official", "official"),
                ("rm", "-rf", "target"),
            ),
            ("{}/official",),
            HERE,
        ),
    )
}

ABILITIES = {
    "python": {"priority", "recall"},
    "node": {"priority", "recall"},
    "java": {"recall"},
    "go": {"priority", "recall"},
    "rust": {"batch"},
}
"""What not every client can do, in the version named above."""


if __name__ == "__main__":
    sys.exit(build(PROGRAMS, sys.argv[1:]))
