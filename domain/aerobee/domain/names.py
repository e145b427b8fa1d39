"""Which names topics, groups and clients may have: Apache RocketMQ's rules."""

from __future__ import annotations

import re

from aerobee.runtime.errors import IllegalName, InvalidArgument
from aerobee.runtime.printable import printable

TOPIC_LENGTH_MAX = 127
RETRY_TOPIC_LENGTH_MAX = 255
GROUP_LENGTH_MAX = 120
CLIENT_ID_LENGTH_MAX = 255
RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "AEROBEE_OFFSET_JOURNAL",
        "AEROBEE_POP_JOURNAL",
        "AEROBEE_SCHEDULE_JOURNAL",
        "AEROBEE_TIMER_JOURNAL",
        "AEROBEE_TRANSACTION_JOURNAL",
    }
)

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)

KEPT_FROM_GROUP = f"{SYSTEM_GROUP_PREFIX}KEPT_FROM"
"""Where this group's offset on a queue is, the queue begins: its topic keeps nothing older. Only
brokers set it."""

NO_TARGET = (
    "topic {} belongs to a consumer group: brokers put there what the group failed with, and "
    "clients cannot send to it; send to the topic that the group subscribes to"
)
"""A refusal, with the name of a retry or dead-letter topic to be filled in."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_topic_name(name: str) -> None:
    """Raises IllegalName unless `name` can be a topic (and therefore a folder's name)."""
    limit = TOPIC_LENGTH_MAX
    _check_is_text("topic", name)
    if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        limit = RETRY_TOPIC_LENGTH_MAX
    _check("topic", name, limit)


def check_group_name(name: str) -> None:
    """Raises IllegalName unless `name` can be a consumer or producer group."""
    _check_is_text("group", name)
    _check("group", name, GROUP_LENGTH_MAX)


def check_client_id(client_id: str) -> None:
    """Raises IllegalName for an empty, overlong or unprintable client id."""
    _check_is_text("client id", client_id)
    if not client_id or len(client_id) > CLIENT_ID_LENGTH_MAX or not client_id.isprintable():
        raise IllegalName(
            f"client id {client_id[:40]!r} must be 1 to {CLIENT_ID_LENGTH_MAX} printable characters"
        )


def check_text(what: str, text: str) -> None:
    """Raises InvalidArgument for a text that a terminal or a log cannot show safely: with control
    characters, line ends, or marks that change the direction of writing."""
    shown = printable(text)
    if shown != text:
        raise InvalidArgument(f"{what} {shown[:80]!r} has unprintable characters; leave them out")


def check_group_changeable(name: str) -> None:
    """Raises InvalidArgument for the group whose offsets only brokers change."""
    if name == KEPT_FROM_GROUP:
        raise InvalidArgument(
            f"group {name} belongs to the brokers, which note in it how far topics keep their "
            "messages: name a group of your own"
        )


def is_system_topic(name: str) -> bool:
    """Topics that clients may neither create, delete nor send to: our own, and those of Apache's
    brokers, which an imported folder may contain. RMQ_SYS_TRACE_TOPIC is none of them: clients
    send there what they trace."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_system_group(name: str) -> bool:
    """Internal groups, and groups of tools."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(name: str) -> bool:
    """A legal name of a topic in which a group's failed messages are redelivered or kept as dead
    letters. Each replica set creates its own when it needs it, and no nameserver lists them."""
    is_one = name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return is_one and len(name) <= RETRY_TOPIC_LENGTH_MAX and _LEGAL.fullmatch(name) is not None


def _check_is_text(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise IllegalName(f"the {kind} must be text, not {type(name).__name__}")


def _check(kind: str, name: str, length_max: int) -> None:
    if not name:
        raise IllegalName(f"the {kind} name is empty; give it 1 to {length_max} characters")
    if len(name) > length_max:
        raise IllegalName(
            f"{kind} name {name[:40]!r}... has {len(name)} characters; "
            f"at most {length_max} are allowed"
        )
    if _LEGAL.fullmatch(name) is None:
        raise IllegalName(
            f"{kind} name {name[:40]!r} is illegal: use letters, digits, '_', '-', '%' and '|' only"
        )
