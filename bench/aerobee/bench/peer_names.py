"""The names of what `aerobee bench peers`, `v2` and `remoting` measure.

Separate from the code that measures them, which is left out of the wheel: the command's help has
the names.
"""

from __future__ import annotations

PEER_NAMES = (
    "kafka",
    "librdkafka",
    "nats",
    "redis",
    "grpc-go",
    "rocketmq",
    "rocketmq-java",
    "rocketmq-idle",
    "rocketmq-remoting",
    "rocketmq-remoting-idle",
)
V2 = ("rocketmq", "rocketmq-java", "rocketmq-idle")
"""Apache's proxy under our load, under Apache's Java client, and with idle clients."""
V2_ALONE = ("rocketmq", "rocketmq-idle")
"""Those of V2 for which our side needs nothing fetched."""
REMOTING = ("rocketmq-remoting", "rocketmq-remoting-idle")
"""Apache's broker under Apache's own client of the remoting protocol, and with idle clients."""
REMOTING_ALONE = ("rocketmq-remoting-idle",)
"""As V2_ALONE."""
