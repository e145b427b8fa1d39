"""A broker for FastStream: subscribers are members of consumer groups, publishers send messages.

It is built as FastStream's own brokers are, on the parts that they share. FastStream calls those
internal, so each version of this module fits one series of FastStream. See docs/faststream.md.
"""

from __future__ import annotations

try:
    import faststream  # noqa: F401
except ImportError as missing:
    raise ImportError(
        "aerobee.integrations.faststream needs FastStream, which is not installed: "
        'pip install ".[faststream]" in a checkout'
    ) from missing

from aerobee.integrations.faststream.broker import AerobeeBroker
from aerobee.integrations.faststream.message import AerobeeMessage, Delivery
from aerobee.integrations.faststream.publishing import AerobeeResponse
from aerobee.integrations.faststream.registrator import AerobeeRouter
from aerobee.integrations.faststream.testing import TestAerobeeBroker

__all__ = [
    "AerobeeBroker",
    "AerobeeMessage",
    "AerobeeResponse",
    "AerobeeRouter",
    "Delivery",
    "TestAerobeeBroker",
]
