"""Where a broker group's tier is."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from aerobee.broker.tier.cloud_objects import CloudObjects
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.tier.folder_objects import FolderObjects
from aerobee.store.tier.objects import Objects


def open_tier(url: str, *, cluster: str, broker_name: str, clock: Clock) -> Objects:
    """The objects of one broker group. Connects to nothing yet.

    Raises InvalidArgument: the URL cannot be used.
    """
    place = f"{cluster}/{broker_name}"
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderObjects(unquote(parts.path), place, clock)
    if not parts.netloc:
        raise InvalidArgument(f"tier.url {url!r} names no bucket or container")
    return CloudObjects.at(url, place)
