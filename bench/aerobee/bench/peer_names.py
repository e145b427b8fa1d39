"""The names of what `aerobee bench peers` and `aerobee bench v2` measure.

Apart from what measures them, which is left out of the wheel: the command's help has the names.
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
)
V2 = ("rocketmq", "rocketmq-java", "rocketmq-idle")
"""Apache's proxy by our load, by Apache's Java client, and with clients that only wait."""
V2_ALONE = ("rocketmq", "rocketmq-idle")
"""Those of V2 for which ours needs nothing that is fetched."""
