"""Apache's own clients, each as a program that is told what to do line by line. `make
clients-test` builds them, once, into the cache folder; tests use those that are built.

With the variable OFFICIAL_TLS they use TLS; those that check certificates trust the authorities of
GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. They sign in by TEST_ACCESS_KEY and TEST_SECRET_KEY, if these are
set.

They run in processes of their own: their protobuf descriptors have the names of ours.

    python -m tests.rocketmq_api.official.programs [LANGUAGE ...]

A program's arguments are what it is to be, the address of a node, and

    producer ADDRESS TOPIC...
    simple   ADDRESS GROUP TOPIC[=TAGS]...
    push     ADDRESS GROUP TOPIC[=TAGS]...

TAGS may also be `sql:` and an expression.

A line is JSON; it is answered by one line, which is `{"error": WORDS}` if the client refused or
failed. A producer is told


    {"do": "send", "topic": T, "body": B, "tag": T, "keys": [K], "properties": {N: V},
     "group": G, "delay_s": S, "priority": P, "end": E}
                                                   all but topic and body may be absent
        -> {"id": I, "transaction": I, "handle": H}     what the client tells of these
    {"do": "send", "topic": T, "messages": [...]}  as one batch; each may have what is above
        -> {"ids": [I]}
    {"do": "recall", "topic": T, "handle": H}
        -> {"id": I}

E, how the transaction ends in which it is sent, is `commit`, `rollback` or `open`. Asked about a
transaction, a producer answers what its message's property `answer` says: `commit` or `rollback`;
that it does not know if there is none.

And a simple consumer, which polls for 5 s (the one for Rust: for 20 s),

    {"do": "receive", "max": N, "invisible_s": S}
        -> {"messages": [{"id": I, "topic": T, "body": B, "tag": T, "keys": [K],
                          "properties": {N: V}, "group": G, "attempt": A}]}
    {"do": "ack", "id": I}                         I was received; the latest of its deliveries
    {"do": "postpone", "id": I, "invisible_s": S}
        -> {"id": I}

A push consumer says `{"message": ...}` by itself when its listener is called. The listener takes N
seconds for a message whose property `takes_s` is N, and fails the first N times for one whose
property `fails` is N.

Each says `{"started": true}` before anything else, or the one for Go the error with which its start
failed, and answers `{"do": "stop"}` by `{"stopped": true}`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.rpc.core.interop.programs import FETCHED_JARS, Program, build

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
                ("venv/bin/pip", "install", "-q", "--require-hashes", "-r", "requirements.txt"),
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
                *FETCHED_JARS,
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
    "python": {"priority", "recall", "postpone", "push"},
    "node": {"priority", "recall", "postpone", "push"},
    "java": {"recall", "postpone", "push"},
    "go": {"priority", "recall", "postpone", "push"},
    "rust": {"batch"},
}
"""What not every client can do, in the version named above."""


def skip_without(program: Program, ability: str) -> None:
    if ability not in ABILITIES[program.language]:
        pytest.skip(f"{program.library} has no {ability}")


if __name__ == "__main__":
    sys.exit(build(PROGRAMS, sys.argv[1:]))
