"""PURE: the tables of a folder beside a segment in the tier, as one object.

A log does not say which topics and groups there are, so a broker that is built from the tier alone
gets them from here. They are as of the upload: what is newer comes from the nameservers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aerobee.runtime.errors import TierDamaged
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
)

TABLE_PATHS: Final = (TOPICS_PATH, SUBSCRIPTION_GROUPS_PATH, CONSUMER_OFFSETS_PATH)


def pack_tables(disk: Disk) -> bytes:
    """The folder's tables; those that do not exist yet are left out. Raises OSError."""
    tables: dict[str, str] = {}
    for path in TABLE_PATHS:
        try:
            tables[path] = disk.read_file(path).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            continue
    return json.dumps(tables, sort_keys=True).encode()


def unpack_tables(data: bytes) -> Mapping[str, bytes]:
    """The files by their paths. Raises TierDamaged."""
    try:
        document = json.loads(data)
        tables = {path: document[path].encode() for path in TABLE_PATHS if path in document}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise TierDamaged(f"the tables of a segment cannot be read: {error}") from error
    return tables
