"""What a run of the audit should do, checked before Spark is started.

Imports neither pyspark nor pyarrow: a wrong argument is reported at once, on any machine.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from aerobee.offset_audit.rules.limits import LIMIT_NAMES
from aerobee.runtime.errors import InvalidArgument

ENGINES = ("local", "spark")
FORMATS = ("text", "json", "prometheus", "none")
DEFAULT_WATCH_S = 30
NAMESERVER_VARIABLE = "AEROBEE_NAMESERVER"
DEFAULT_NAMESERVER = "127.0.0.1:8081"
CLUSTER_VARIABLE = "AEROBEE_CLUSTER"
HISTORY_RUNS = 20
"""How many earlier runs are read; the checks that look back need at least ten."""

_IDENTITY = re.compile(r"(?P<name>[^/=:]+)(?::(?P<id>\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store's folder, or a pattern of many, and whose it is; None: as its own files say."""

    path: str
    broker_name: str | None = None
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """One run. Empty `nameservers` and `brokers`: no live cluster is asked."""

    nameservers: str = ""
    cluster: str | None = None
    """Its name; None: the usual one."""
    brokers: str = ""
    """Addresses of single brokers, instead of a nameserver's list."""
    stores: tuple[StorePlace, ...] = ()
    is_deep: bool = False
    history: str | None = None
    """A folder on any file system that Spark reaches: Parquet of all runs, this one is added."""
    out: str | None = None
    """Like `report`, on any file system that Spark reaches, as `history`."""
    report: str | None = None
    after: Mapping[str, Any] | None = None
    """The content of an earlier run's `summary.json`."""
    format: str = "text"
    engine: str | None = None
    """One of ENGINES; None: by size."""
    master: str | None = None
    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Passed to the sources unchanged: TLS, credentials, timeouts."""
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    watch_s: int | None = None

    @property
    def is_live(self) -> bool:
        return bool(self.nameservers or self.brokers)

    @property
    def parquet(self) -> str | None:
        """Where the tables of all runs are."""
        return self.history or self.out


def request_of(values: Mapping[str, Any]) -> AuditRequest:
    """The request that parsed arguments, by the names of `arguments.ARGUMENTS`, ask for.

    Arguments that name neither a cluster nor a store mean the cluster that other commands would
    use; those that name only a cluster mean that one at the usual nameservers.

    Raises:
        InvalidArgument: an argument cannot be understood; the sentence names it.
    """
    known = {one.name for one in fields(AuditRequest)}
    plain = {key: value for key, value in values.items() if key in known and value is not None}
    options = dict(_settings("--option", values.get("option") or ()))
    if values.get("options") is not None:
        options = {**_settings_file(Path(values["options"])), **options}
    request = AuditRequest(
        **{
            **plain,
            "nameservers": values.get("nameserver") or "",
            "cluster": _cluster(values.get("cluster")),
            "stores": tuple(store_place(text) for text in values.get("store") or ()),
            "groups": tuple(values.get("group") or ()),
            "topics": tuple(values.get("topic") or ()),
            "limits": _limits(values.get("limit") or ()),
            "source_options": options,
            "spark_settings": _settings("--spark", values.get("spark") or ()),
            "is_deep": bool(values.get("deep")),
            "watch_s": _watch(values),
            "after": _earlier(values.get("after")),
        }
    )
    if not request.is_live and (request.cluster is not None or not request.stores):
        usual = os.environ.get(NAMESERVER_VARIABLE) or DEFAULT_NAMESERVER
        request = replace(request, nameservers=usual)
    if request.is_live and request.cluster is None:
        request = replace(request, cluster=os.environ.get(CLUSTER_VARIABLE) or None)
    if request.engine == "local" and (request.master is not None or request.spark_settings):
        raise InvalidArgument("--engine local needs no --master and no --spark")
    if request.watch_s is not None and request.is_deep and (request.is_live or not request.stores):
        raise InvalidArgument(
            "--watch --deep reads stores: name some with --store, and no cluster, whose brokers "
            "would read their whole logs for each run"
        )
    return request


def store_place(text: str) -> StorePlace:
    """`/data/a`, `/data/a=broker-a` or `/data/a=broker-a:1`.

    Raises:
        InvalidArgument: no path.
    """
    path, equals, rest = text.rpartition("=")
    found = _IDENTITY.fullmatch(rest) if equals else None
    if found is None:
        path = text
    if not path:
        raise InvalidArgument(f"--store takes PATH, PATH=NAME or PATH=NAME:ID, not {text!r}")
    if found is None:
        return StorePlace(path)
    return StorePlace(path, found["name"], int(found["id"]) if found["id"] else None)


def _cluster(name: str | None) -> str | None:
    if name is not None and ":" in name:
        raise InvalidArgument(
            f"--cluster takes a cluster's name, not an address; use --nameserver {name}"
        )
    return name


def _earlier(path: str | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    try:
        document = json.loads(Path(path).read_text())
        run = document["run_id"], document["run_at_ms"], document["findings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"--after takes a run's summary.json: {path}: {error}") from error
    return dict(zip(("run_id", "run_at_ms", "findings"), run, strict=True))


def _watch(values: Mapping[str, Any]) -> int | None:
    if not values.get("watch"):
        return None
    interval_s = values.get("interval")
    interval_s = DEFAULT_WATCH_S if interval_s is None else int(interval_s)
    if interval_s < 1:
        raise InvalidArgument(f"--interval takes seconds, 1 or more, not {interval_s}")
    return interval_s


def _limits(texts: Sequence[str]) -> dict[str, int]:
    found = {}
    for key, value in _settings("--limit", texts).items():
        name = key.replace("-", "_")
        if name not in LIMIT_NAMES:
            known = ", ".join(name.replace("_", "-") for name in LIMIT_NAMES)
            raise InvalidArgument(f"--limit has no {key!r}; known are: {known}")
        if not value.isascii() or not value.isdigit():
            raise InvalidArgument(f"--limit {key} takes a whole number, not {value!r}")
        found[name] = int(value)
    return found


def _settings(option: str, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidArgument(f"{option} takes KEY=VALUE, not {text!r}")
        found[key.strip()] = value.strip()
    return found


def _settings_file(path: Path) -> dict[str, str]:
    """Lines KEY=VALUE, so that a password need not be on a command line."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"--options cannot be read: {error}") from error
    return _settings("--options", [line for line in lines if line and not line.startswith("#")])
