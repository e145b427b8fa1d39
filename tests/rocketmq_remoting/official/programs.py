"""Apache's own remoting clients, each as a program that is told what to do line by line. `make
clients-test` builds them, once, into the cache folder; tests use those that are built.

    python -m tests.rocketmq_remoting.official.programs [NAME ...]

A program's arguments are what it is to be, the address of a nameserver, and

    producer  ADDRESS
    push      ADDRESS GROUP TOPIC[=TAGS]...        handles several messages at once
    orderly   ADDRESS GROUP TOPIC[=TAGS]...        those of a queue one after the other; gives up a
                                                   message that has failed four times
    broadcast ADDRESS GROUP TOPIC[=TAGS]...        shares them with no other member
    pull      ADDRESS GROUP TOPIC...

TAGS may also be `sql:` and an expression. All groups begin with the first message.

A line is JSON; it is answered by one line, which is `{"error": WORDS}` if the client refused or
failed. A producer is told

    {"do": "send", "topic": T, "body": B, "tag": T, "key": K, "properties": {N: V}, "group": G,
     "delay_level": L, "how": "async" | "oneway", "end": E}
                                                   all but topic and body may be absent
        -> {"status": S, "id": I, "offset_id": O, "queue": Q}
    {"do": "send", "topic": T, "messages": [...]}  as one batch
    {"do": "view", "topic": T, "id": O}
        -> a message as below
    {"do": "request", "topic": T, "body": B, ...}  waits for the reply of a consumer
        -> {"reply": B}

G chooses the queue. E, how the transaction ends in which it is sent, is `commit`, `rollback` or
`open`. Asked about a transaction, a producer answers what its message's property `answer` says.

A consumer that pulls is told

    {"do": "receive"}                              waits for up to 5 s
        -> {"messages": [{"id": I, "topic": T, "body": B, "tag": T, "keys": K,
                          "properties": {N: V}, "attempt": A, "queue": Q}]}
    {"do": "commit"}

The others say `{"message": ...}` by themselves when their listener is called. It fails the first N
times for a message whose property `fails` is N. A message with the property `reply` is replied to
with that text.

With ACCESS_KEY and SECRET_KEY in its environment it signs its requests, with releases from 5 on.

Each says `{"started": true}` before anything else, and answers `{"do": "stop"}` by
`{"stopped": true}`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rpc.core.interop.programs import FETCHED_JARS, Program, build

HERE = Path(__file__).parent

PROGRAMS = {
    f"java-{version}": Program(
        f"java-{version}",
        f"rocketmq-client {version}",
        ("java", "javac", "mvn"),
        (
            *FETCHED_JARS,
            (
                "javac",
                "-Xlint:all,-deprecation",
                "-cp",
                "libraries/*",
                "-d",
                "classes",
                "Client.java",
            ),
        ),
        (
            *("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1"),
            *("-cp", "{0}/classes:{0}/libraries/*", "Client"),
        ),
        HERE,
    )
    for version in ("5.3.3", "5.5.0", "4.9.8")
}

OTHERS = {
    "go-2.1.2": Program(
        "go-2.1.2",
        "rocketmq-client-go 2.1.2",
        ("go",),
        (("go", "build", "-trimpath", "-buildvcs=false", "-o", "client", "."),),
        ("{}/client",),
        HERE,
    ),
    "spring-2.3.3": Program(
        "spring-2.3.3",
        "rocketmq-spring-boot-starter 2.3.3",
        ("java", "javac", "mvn"),
        (
            *FETCHED_JARS,
            (
                *("sh", "-c"),
                "javac -Xlint:all,-processing -parameters -cp 'libraries/*' -d classes *.java",
            ),
        ),
        (
            *("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1"),
            *("-cp", "{0}/classes:{0}/libraries/*", "Client"),
        ),
        HERE,
    ),
}
"""Clients of other languages and frameworks. They do not `view`, and none has the role `pull`;
Spring's has no `sql:`."""

TOOLS = {
    "mqadmin-5.3.3": Program(
        "mqadmin-5.3.3",
        "rocketmq-tools 5.3.3",
        ("java", "mvn"),
        FETCHED_JARS,
        (
            *("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", "{0}/libraries/*"),
            "org.apache.rocketmq.tools.command.MQAdminStartup",
        ),
        HERE,
    )
}
"""Their arguments are their own."""


if __name__ == "__main__":
    sys.exit(build({**PROGRAMS, **OTHERS, **TOOLS}, sys.argv[1:]))
