"""The options of the live sources, checked: whom to ask, what for, and how long to wait.

One set of options may serve all sources of a run, so options of others are ignored. What looks like
a mistyped option of ours is refused, because otherwise a different question would be answered; and
so is a request for protection that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.defaults import CLUSTER_DEFAULT
from aerobee.cluster_view.nameservers import parse_addresses
from aerobee.offset_audit.sources.option_texts import OptionTexts, meant
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
    registry_timeout_ms: int = 10_000
    """How long to wait for a nameserver, if that is less."""
    since_ms: int = 0
    """Of the offset journal: from this store time on."""
    skip_unreachable: bool = False
    """Of the offset journal: a broker that does not answer has no rows, instead of an error."""
    path: str = ""

    @property
    def nameserver_timeout_ms(self) -> int:
        return min(self.timeout_ms, self.registry_timeout_ms)


def parse_options(
    given: Mapping[str, str], tables: tuple[str, ...] = READ_TABLES, *, takes_path: bool = False
) -> LiveOptions:
    """Raises InvalidArgument that says which option is wrong, and how to write it."""
    texts = OptionTexts(given)
    _check_names(texts)
    table = texts.text("table")
    if table and table not in tables:
        raise InvalidArgument(f"table={table} is not one of {', '.join(tables)}")
    nameservers, brokers, path = (texts.text(name) for name in ("nameservers", "brokers", "path"))
    if bool(nameservers) + bool(brokers) + bool(path) != 1 or (path and not takes_path):
        ways = ["nameservers=HOST:PORT,...", "brokers=HOST:PORT,..."]
        raise InvalidArgument(
            f"name what to read: {' or '.join([*ways, 'path=FOLDER'] if takes_path else ways)}"
        )
    return LiveOptions(
        nameservers=parse_addresses(nameservers) if nameservers else (),
        brokers=_addresses(brokers),
        cluster=texts.text("cluster", CLUSTER_DEFAULT),
        table=table,
        topics=texts.names("topics"),
        groups=texts.names("groups"),
        first_unread=texts.flag("firstUnread"),
        matching_unread=texts.flag("matchingUnread"),
        timeout_ms=texts.number("timeoutMs", TIMEOUT_MS_DEFAULT, lowest=1),
        since_ms=texts.number("sinceMs", 0),
        skip_unreachable=texts.flag("skipUnreachable"),
        path=path,
    )


def _check_names(texts: OptionTexts) -> None:
    texts.refuse_protection()
    ours = {name.lower() for name in (*KNOWN, *OF_STORES)}
    for name in texts:
        if name not in ours and (known := meant(name, KNOWN, LIKENESS)):
            raise InvalidArgument(f"there is no option {name}; is {known} meant?")


def _addresses(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return parse_addresses(text)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("nameserver", "broker")) from error
