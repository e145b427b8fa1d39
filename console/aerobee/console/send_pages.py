"""Sending one message for a trial, after a look at it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from aerobee.client_core.message import Message
from aerobee.console.editing import Field, Plan, Subject, differences, lines_of, pairs
from aerobee.console.visit import Visit
from aerobee.console.words import counted


async def one_message(visit: Visit) -> Subject:
    topic = visit.name()
    await visit.admin.topics.describe(topic)

    async def plan(values: Mapping[str, str]) -> Plan:
        message = Message(
            topic,
            values["body"].encode(),
            tag=values["tag"] or None,
            keys=values["keys"].split(),
            properties=pairs(values["properties"], "Properties"),
        )

        async def do() -> str:
            sent = await visit.admin.messages.send(message)
            place = f"{sent.queue.broker_name}:{sent.queue.queue_id}:{sent.queue_offset}"
            return f"Message {sent.message_id} is sent to {topic}, at {place}."

        return Plan(
            act="send message",
            on=topic,
            differences=differences(
                [
                    ("Message", "", f"to {topic}"),
                    ("Body", "", counted(len(message.body), "byte")),
                    ("Tag", "", message.tag or ""),
                    ("Keys", "", " ".join(message.keys)),
                    ("Properties", "", lines_of(message.properties).replace("\n", ", ")),
                ]
            ),
            do=do,
            notes=["every group that reads the topic gets it, and nothing takes it back"],
        )

    return Subject(
        title=f"Send a message to {topic}",
        fields=(
            Field("body", "Body", is_long=True, is_required=True),
            Field("tag", "Tag"),
            Field("keys", "Keys", help="separated by spaces"),
            Field("properties", "Properties", help="NAME=VALUE on each line", is_long=True),
        ),
        plan=plan,
        back=f"/topics/{quote(topic, safe='')}",
        back_name=topic,
        command=f"aerobee produce {topic}",
    )
