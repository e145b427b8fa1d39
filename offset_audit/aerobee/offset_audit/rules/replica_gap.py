"""REPLICA_GAP: what is reported about a broker that met `misplaced` records: texts of SQL over its
row."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import either, phrase

NAME: Final = "REPLICA_GAP"
TITLE: Final = "A broker met records that do not continue their queues."
COMMAND: Final = "aerobee audit --deep"
EVIDENCE: Final = phrase(
    "{broker_name}:{broker_id} met {records} not continue their queue, since it opened its folder: "
    "messages in between are missing, or came twice.",
    records=either("misplaced = 1", "1 record that does", "{misplaced} records that do"),
)
