"""Reads what has arrived since the last run, prints sums, and ends: the program of job.yaml."""

from __future__ import annotations

import json

from aerobee import BlockingPullConsumer, StartFrom


def main() -> None:
    sums: dict[str, int] = {}
    group = BlockingPullConsumer("nightly-report", auto_commit=False, start_from=StartFrom.FIRST)
    with group.subscribe("payments_made") as consumer:
        # An empty poll: nothing arrived for five seconds.
        while messages := consumer.poll(timeout=5.0):
            for message in messages:
                payment = json.loads(message.body)
                sums[payment["shop"]] = sums.get(payment["shop"], 0) + payment["amount"]
        for shop, amount in sorted(sums.items()):
            print(shop, amount)
        # Only now: a job that dies before has its messages again the next night.
        consumer.commit()


if __name__ == "__main__":
    main()
