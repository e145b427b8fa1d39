"""Reminders that arrive when they are due, whatever is restarted until then.

python examples/reminders.py 2 "tea is ready"
aerobee schedule list reminder_mails
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from aerobee import BlockingProducer, BlockingPullConsumer, Message, StartFrom


def remind(seconds: float, text: str) -> None:
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    with BlockingProducer() as producer:
        receipt = producer.send(Message("reminder_mails", text.encode(), deliver_at=due))
    print("to call it off: aerobee schedule recall", receipt.recall_handle)

    mails = BlockingPullConsumer("reminder-mailer", start_from=StartFrom.FIRST)
    with mails.subscribe("reminder_mails") as consumer:
        for message in consumer:
            is_early = datetime.now(UTC) < due
            print("early:" if is_early else "in time:", message.body.decode())
            break


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit('usage: reminders.py SECONDS TEXT, such as: reminders.py 2 "tea is ready"')
    with suppress(KeyboardInterrupt):
        remind(float(sys.argv[1]), sys.argv[2])
