"""From what a user names to store folders: paths, patterns, and the owner of each store.

The owner comes from the caller, else from the store's own files (ours: replicaState.json; Apache's
with a controller: brokerIdentity), else from its folder's name.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aerobee.runtime.errors import InvalidArgument

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"
CONFIG = "config"

_NAMED = re.compile(r"(?P<path>.+)=(?P<name>[^/=:]+)(?::(?P<id>\d+))?")


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose messages a store holds."""

    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A store: its root, as a user would find it, and whose it is."""

    root: str
    origin: Origin

    def path(self, *parts: str) -> Path:
        return Path(self.root, *parts)


@dataclass(frozen=True, slots=True)
class Names:
    """What the caller says about all stores; None: use what the store says."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_id: int | None = None


def find_stores(paths: Iterable[str], names: Names | None = None) -> list[StoreFolder]:
    """The stores that `paths` name, each once, sorted by root.

    A path is a store, a folder of stores, or a pattern that matches these; `PATH=NAME` and
    `PATH=NAME:ID` also give the store's owner. Raises StoreUnreadable if there is none.
    """
    names = names or Names()
    found: dict[str, StoreFolder] = {}
    for text in paths:
        path, given = _split_name(text, names)
        roots = list(_stores_below(path))
        if not roots:
            raise StoreUnreadable(
                f"there is no store at {path}: a store has a folder {COMMIT_LOG} or {CONSUME_QUEUE}"
            )
        for root in roots:
            found[str(root)] = StoreFolder(str(root), _origin(root, given))
    if not found:
        raise StoreUnreadable("no store is named; give the path of a store's folder")
    return [found[root] for root in sorted(found)]


def _split_name(text: str, names: Names) -> tuple[str, Names]:
    match = _NAMED.fullmatch(text)
    if match is None or Path(text).exists():
        return text, names
    broker_id = names.broker_id if match["id"] is None else int(match["id"])
    return match["path"], replace(names, broker_name=match["name"], broker_id=broker_id)


def _stores_below(path: str) -> Iterator[Path]:
    """The stores that a path or pattern leads to, directly or one level down."""
    path = path.removeprefix("file://")
    matches = [path] if Path(path).exists() else sorted(glob.glob(path))
    for match in matches:
        root = Path(match).absolute()
        if _is_store(root):
            yield root
        elif root.is_dir():
            yield from (child for child in sorted(root.iterdir()) if _is_store(child))


def _is_store(root: Path) -> bool:
    return (root / COMMIT_LOG).is_dir() or (root / CONSUME_QUEUE).is_dir()


def _origin(root: Path, names: Names) -> Origin:
    own = _replica_state(root) or _broker_identity(root) or Origin()
    return Origin(
        own.cluster if names.cluster is None else names.cluster,
        names.broker_name or own.broker_name or root.name,
        own.broker_id if names.broker_id is None else names.broker_id,
    )


def _replica_state(root: Path) -> Origin | None:
    try:
        state = json.loads((root / CONFIG / "replicaState.json").read_bytes())
        return Origin(str(state["cluster"]), str(state["brokerName"]), int(state["brokerId"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _broker_identity(root: Path) -> Origin | None:
    try:
        parts = (root / "brokerIdentity").read_text().strip().split("#")
        return Origin(parts[0], parts[1], int(parts[2]))
    except (OSError, ValueError, IndexError):
        return None


class StoreUnreadable(InvalidArgument):
    """There is no store at the given place, or an option does not fit its files."""
