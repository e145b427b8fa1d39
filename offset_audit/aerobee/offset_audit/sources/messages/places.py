"""Which place the options name."""

from __future__ import annotations

from aerobee.offset_audit.sources.messages.live_place import LivePlace
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import Place
from aerobee.offset_audit.sources.messages.store_place import StorePlace


def open_place(options: MessageOptions) -> Place:
    """A live cluster or stores' files."""
    return StorePlace(options) if options.path else LivePlace(options)
