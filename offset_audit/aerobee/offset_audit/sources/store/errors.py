"""What may keep a store from being read."""

from __future__ import annotations

from aerobee.runtime.errors import InvalidArgument


class StoreUnreadable(InvalidArgument):
    """No store where one was named, or an option that does not fit its files."""
