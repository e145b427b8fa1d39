"""Why a frame is none, and why an answer does not come."""

from __future__ import annotations


class FrameIllegal(ValueError):
    """Bytes that are no frame, or one above the limits: the connection cannot go on."""


class HeaderIllegal(ValueError):
    """Bytes that are no header, or one with too many fields."""


class ConnectionEnded(ConnectionError):
    """The connection ended before the answer came."""
