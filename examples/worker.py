"""A worker whose failures come again and, after the last attempt, become dead letters.

aerobee group configure packing --retries-max 2 --back-off exponential --initial 200ms
python examples/worker.py &
echo '{"id": "17", "plugs": 0}' | aerobee produce parcels_to_pack
aerobee dead-letter list packing
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from aerobee import BlockingPushConsumer, ConsumerConfig, ReceivedMessage, StartFrom


def pack(messages: Sequence[ReceivedMessage]) -> None:
    """Runs in a thread, so it may block. If it raises, the message is delivered again."""
    for message in messages:
        order = json.loads(message.body)
        if order["plugs"] < 1:
            raise ValueError(f"order {order['id']} has no plugs")
        print(f"packed order {order['id']}, attempt {message.reconsume_times + 1}", flush=True)


def main() -> None:
    consumer = BlockingPushConsumer(
        "packing",
        pack,
        max_concurrency=4,
        start_from=StartFrom.FIRST,
        config=ConsumerConfig(await_topics=True),
    )
    consumer.subscribe("parcels_to_pack")
    # On Ctrl-C and SIGTERM, running calls end and their offsets are committed before it returns.
    consumer.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
