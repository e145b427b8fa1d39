"""Creating and changing topics, with what would change first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.admin_topics import Permission, Topic
from aerobee.console.editing import Field, Plan, Subject, differences, lines_of, pairs, whole
from aerobee.console.visit import Visit
from aerobee.console.words import counted
from aerobee.domain.names import check_topic_name
from aerobee.domain.topic_attributes import (
    DECLARED_TYPES,
    KEEP_BYTES,
    KEEP_MS,
    MESSAGE_TYPE,
    check_topic_attributes,
)
from aerobee.runtime.errors import AccessDenied, InvalidArgument, TopicExists, TopicNotFound

PERMISSIONS: Final[Mapping[str, str]] = {"rw": "send, read", "r": "read", "w": "send"}
_PERMISSION: Final[Mapping[str, Permission]] = {"rw": "rw", "r": "r", "w": "w"}
YES_NO: Final[Mapping[str, str]] = {"": "no", "yes": "yes"}
_TYPES: Final = {"": "normal", **{each: each.lower() for each in DECLARED_TYPES[1:]}}
_QUEUES_HELP: Final = "the total over all broker groups; empty: what the cluster's policy says"


async def new_topic(visit: Visit) -> Subject:
    async def plan(values: Mapping[str, str]) -> Plan:
        return await _creation(visit.admin, values)

    return Subject(
        title="Create a topic",
        fields=(
            Field("name", "Name", is_required=True),
            Field("queues", "Queues", help=_QUEUES_HELP),
            Field("type", "Type", choices=_TYPES),
            *_common_fields("rw", is_ordered=False, attributes={}),
        ),
        plan=plan,
        back="/topics",
        back_name="Topics",
        command="aerobee topic create NAME --queues 8",
    )


async def one_topic(visit: Visit) -> Subject:
    name = visit.name()
    topic = await _topic(visit.admin, name)

    async def plan(values: Mapping[str, str]) -> Plan:
        return _change(visit.admin, topic, values)

    return Subject(
        title=f"Change {name}",
        fields=(
            Field("queues", "Queues", str(topic.queues), help="the total; never fewer than now"),
            *_common_fields(
                topic.permission, is_ordered=topic.ordered, attributes=topic.attributes
            ),
        ),
        plan=plan,
        back=f"/topics/{quote(name, safe='')}",
        back_name=name,
        command=f"aerobee topic update {name} --queues {topic.queues + 1}",
    )


def _common_fields(
    permission: str, *, is_ordered: bool, attributes: Mapping[str, str]
) -> Sequence[Field]:
    choices = PERMISSIONS if permission else {"": "nothing", **PERMISSIONS}
    return (
        Field("permission", "Clients may", permission, choices=choices),
        Field(
            "ordered",
            "Consumers rely on the order",
            "yes" if is_ordered else "",
            choices=YES_NO,
        ),
        Field(
            "attributes",
            "Attributes",
            lines_of(attributes),
            help="NAME=VALUE on each line; a line that is taken away removes its attribute",
            is_long=True,
        ),
    )


async def _topic(admin: AdminClient, name: str) -> Topic:
    """As nameservers have it; for who may not list all topics, as its clients see it. Raises
    TopicNotFound, AccessDenied."""
    check_topic_name(name)
    try:
        listed = await admin.topics.list()
    except AccessDenied:
        seen = await admin.topics.describe(name)
        counts = Counter(each.queue.broker_name for each in seen.queues)
        return Topic(name, counts, seen.permission, seen.ordered, seen.attributes)
    for each in listed:
        if each.name == name:
            return each
    raise TopicNotFound(
        f"there is no topic {name!r} that can be changed; brokers keep their own topics themselves"
    )


async def _creation(admin: AdminClient, values: Mapping[str, str]) -> Plan:
    name = values["name"]
    queues = whole(values["queues"], "Queues", least=1) if values["queues"] else None
    permission, is_ordered, attributes = _common(values)
    if values["type"]:
        if attributes.get(MESSAGE_TYPE, values["type"]) != values["type"]:
            raise InvalidArgument(f"the type and the attribute {MESSAGE_TYPE} differ: name one")
        attributes = {**attributes, MESSAGE_TYPE: values["type"]}
    try:
        await _topic(admin, name)
    except (TopicNotFound, AccessDenied):
        pass  # Who may not see it may still create it, or is told so then.
    else:
        raise TopicExists(f"topic {name!r} is there already: change it, or choose another name")

    async def do() -> str:
        made = await admin.topics.create(
            name,
            queues=queues,
            permission=permission,
            ordered=is_ordered,
            attributes=attributes,
        )
        return f"Topic {name} is created, with {counted(made.queues, 'queue')}."

    return Plan(
        act="create topic",
        on=name,
        differences=differences(
            [
                ("Topic", "", name),
                ("Queues", "", "the cluster's choice" if queues is None else f"{queues:,}"),
                ("Clients may", "", PERMISSIONS[permission]),
                ("Consumers rely on the order", "", "yes" if is_ordered else "no"),
                *((f"Attribute {each}", "", value) for each, value in attributes.items()),
            ]
        ),
        do=do,
    )


def _change(admin: AdminClient, topic: Topic, values: Mapping[str, str]) -> Plan:
    queues = whole(values["queues"], "Queues", least=1)
    if queues < topic.queues:
        raise InvalidArgument(
            f"topic {topic.name} has {counted(topic.queues, 'queue')}, and never fewer: take some "
            f"out with aerobee topic spread {topic.name} --retire BROKER"
        )
    permission, is_ordered, attributes = _common(values)
    removed = {each: "" for each in topic.attributes if each not in attributes}
    changed = {
        each: value for each, value in attributes.items() if topic.attributes.get(each) != value
    }

    async def do() -> str:
        await admin.topics.update(
            topic.name,
            queues=queues if queues != topic.queues else None,
            permission=permission if permission != topic.permission else None,
            ordered=is_ordered if is_ordered != topic.ordered else None,
            attributes={**changed, **removed},
        )
        return f"Topic {topic.name} is changed; clients learn of it within a minute."

    notes = []
    if queues > topic.queues:
        notes.append(
            "keys are spread over more queues: some move, and newer messages of such a key may be "
            "handled before older ones"
        )
    if permission != topic.permission and "w" not in permission:
        notes.append("producers can no longer send to it")
    if permission != topic.permission and "r" not in permission:
        notes.append("consumers can no longer read it")
    if changed.keys() & {KEEP_BYTES, KEEP_MS}:
        notes.append("messages that it no longer keeps are gone for all its readers, read or not")
    return Plan(
        act="change topic",
        on=topic.name,
        differences=differences(
            [
                ("Queues", f"{topic.queues:,}", f"{queues:,}"),
                (
                    "Clients may",
                    PERMISSIONS.get(topic.permission, "nothing"),
                    PERMISSIONS[permission],
                ),
                ("Consumers rely on the order", _yes(topic.ordered), _yes(is_ordered)),
                *(
                    (f"Attribute {each}", topic.attributes.get(each, ""), value)
                    for each, value in sorted({**changed, **removed}.items())
                ),
            ]
        ),
        do=do,
        notes=notes,
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _common(values: Mapping[str, str]) -> tuple[Permission, bool, dict[str, str]]:
    """Raises InvalidArgument."""
    permission = _PERMISSION.get(values["permission"])
    if permission is None:
        raise InvalidArgument("say what clients may do with the topic")
    attributes = pairs(values["attributes"], "Attributes")
    check_topic_attributes(attributes)
    return permission, values["ordered"] == "yes", attributes
