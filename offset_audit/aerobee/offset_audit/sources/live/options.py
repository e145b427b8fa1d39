"""The options of the live sources, checked: whom to ask, what for, and how long to wait.

One set of options may serve all sources of a run, so options of others are ignored. What looks like
a mistyped option of ours is refused, because otherwise a different question would be answered; and
so is a request for protection that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from aerobee.client_core.defaults import CLUSTER_DEFAULT
from aerobee.cluster_view.nameservers import parse_addresses
from aerobee.offset_audit.sources.protection import refused_protection
from aerobee.offset_audit.sources.store.options import OPTION_NAMES as OF_STORES
from aerobee.runtime.errors import InvalidArgument

TIMEOUT_MS_DEFAULT: Final = 30_000
READ_TABLES: Final = (
    "brokers",
    "topics",
    "queues",
    "commits",
    "leases",
    "members",
    "epochs",
    "segments",
    "minutes",
    "waiting",
)
"""What brokers are asked for."""

LOG_TABLE: Final = "log_ranges"
"""Requested separately: brokers read every byte of their logs for it."""

REGISTRY_TABLES: Final = ("brokers", "groups", "topics")
SECURITY_PREFIXES: Final = ("tls.", "credentials.")

KNOWN: Final = (
    "nameservers",
    "cluster",
    "brokers",
    "table",
    "groups",
    "topics",
    "firstUnread",
    "matchingUnread",
    "timeoutMs",
    "sinceMs",
    "skipUnreachable",
    "path",
)
LIKENESS: Final = 0.8
"""From this similarity on, a name is taken for a mistyped one of ours."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What a reader asks. Empty `topics` and `groups`: all of them."""

    nameservers: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()
    cluster: str = CLUSTER_DEFAULT
    table: str = ""
    """Empty: all tables, in one frame."""
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    first_unread: bool = False
    matching_unread: bool = False
    timeout_ms: int = TIMEOUT_MS_DEFAULT
    """How long to wait for a broker, and for each of its parts."""
    since_ms: int = 0
    """Of the offset journal: from this store time on."""
    skip_unreachable: bool = False
    """Of the offset journal: a broker that does not answer has no rows, instead of an error."""
    path: str = ""


def parse_options(
    given: Mapping[str, str], tables: tuple[str, ...] = READ_TABLES, *, takes_path: bool = False
) -> LiveOptions:
    """Raises InvalidArgument that says which option is wrong, and how to write it."""
    options = {key.lower(): value for key, value in given.items()}
    _check_names(options)
    table = options.get("table", "")
    if table and table not in tables:
        raise InvalidArgument(f"table={table} is not one of {', '.join(tables)}")
    nameservers, brokers = options.get("nameservers", ""), options.get("brokers", "")
    path = options.get("path", "")
    if bool(nameservers) + bool(brokers) + bool(path) != 1 or (path and not takes_path):
        ways = ["nameservers=HOST:PORT,...", "brokers=HOST:PORT,..."]
        raise InvalidArgument(
            f"name what to read: {' or '.join([*ways, 'path=FOLDER'] if takes_path else ways)}"
        )
    return LiveOptions(
        nameservers=parse_addresses(nameservers) if nameservers else (),
        brokers=_addresses(brokers),
        cluster=options.get("cluster") or CLUSTER_DEFAULT,
        table=table,
        topics=_names(options.get("topics", "")),
        groups=_names(options.get("groups", "")),
        first_unread=_truth("firstUnread", options),
        matching_unread=_truth("matchingUnread", options),
        timeout_ms=_number("timeoutMs", options, TIMEOUT_MS_DEFAULT, lowest=1),
        since_ms=_number("sinceMs", options, 0, lowest=0),
        skip_unreachable=_truth("skipUnreachable", options),
        path=path,
    )


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    others = {name.lower() for name in OF_STORES}
    for name, value in options.items():
        if name == "tls.enabled" and value.lower() == "false":
            continue
        if name.startswith(SECURITY_PREFIXES):
            raise refused_protection(name)
        if name in known or name in others:
            continue
        if meant := get_close_matches(name, known, 1, LIKENESS):
            raise InvalidArgument(f"there is no option {name}; is {known[meant[0]]} meant?")


def _addresses(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return parse_addresses(text)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("nameserver", "broker")) from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _truth(name: str, options: Mapping[str, str]) -> bool:
    value = options.get(name.lower(), "false").lower()
    if value not in ("true", "false"):
        raise InvalidArgument(f"{name} must be true or false, not {value!r}")
    return value == "true"


def _number(name: str, options: Mapping[str, str], default: int, *, lowest: int) -> int:
    value = options.get(name.lower())
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()) or int(value) < lowest:
        raise InvalidArgument(f"{name} must be a whole number of {lowest} or more, not {value!r}")
    return int(value)
