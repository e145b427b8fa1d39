"""`aerobee topic`: create, list, show, update and delete topics."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.commands.topic_schema import schema
from aerobee.cli.commands.topic_spread import spread
from aerobee.cli.completion import topic_names
from aerobee.cli.moments import timestamp_text
from aerobee.cli.options import confirm, json_option, settings_option, wide_option, yes_option
from aerobee.cli.output import counted, print_documents, print_json, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options
from aerobee.cli.topic_keep import keep_options, with_kept
from aerobee.domain.topic_attributes import DECLARED_TYPES, MESSAGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee import (
        AdminClient,
        AnswerList,
        MessageQueue,
        Permission,
        QueueBounds,
        Topic,
        TopicDescription,
        TopicQueue,
    )

    _Count = tuple[int | None, tuple[str, ...]]

COUNTED_TOPICS_MAX = 100
COUNTED_QUEUES_MAX = 5_000
"""Within these, counting the messages of all topics takes a moment."""
COUNT_TIMEOUT_S = 2.0


@click.group()
def topic() -> None:
    """Create, list, show, change and delete topics."""


topic.add_command(spread)
topic.add_command(schema)

attribute_option = settings_option(
    "--attribute", "attributes", help="An attribute of the topic; repeatable."
)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--queues",
    type=click.IntRange(min=1),
    help="Total number of queues, spread over the broker groups.  [default: the cluster's choice]",
)
@click.option("--ordered", is_flag=True, help="Declare that consumers rely on the order.")
@click.option(
    "--type",
    "message_type",
    type=click.Choice(DECLARED_TYPES, case_sensitive=False),
    help=f"What Apache's clients may send to it: its attribute {MESSAGE_TYPE}.  [default: NORMAL]",
)
@keep_options
@attribute_option
@click.option("--if-missing", is_flag=True, help="Succeed if the topic already exists.")
@json_option
@target_options
def create(
    target: Target,
    names: tuple[str, ...],
    queues: int | None,
    ordered: bool,
    message_type: str | None,
    keep: str | None,
    keep_bytes: str | None,
    attributes: dict[str, str],
    if_missing: bool,
    as_json: bool,
) -> None:
    """Create the topics NAME..., each with the same settings.

    Stops at the first topic that cannot be created; topics created before it stay.
    """
    if message_type is not None:
        if attributes.get(MESSAGE_TYPE, message_type) != message_type:
            raise click.UsageError(f"--type and --attribute {MESSAGE_TYPE} differ: name one")
        attributes = {**attributes, MESSAGE_TYPE: message_type}
    attributes = with_kept(attributes, keep, keep_bytes)

    created: list[dict[str, Any]] = []

    async def create_all(admin: AdminClient) -> None:
        from aerobee.runtime.errors import TopicExists

        for name in names:
            try:
                made = await admin.topics.create(
                    name, queues=queues, ordered=ordered, attributes=attributes
                )
            except TopicExists:
                if not if_missing:
                    raise
                if not as_json:
                    say(f"topic {name} already exists")
            else:
                created.append(_config(made))
                if not as_json:
                    say(f"created topic {name} with {_spread(made)}")

    target.administer(create_all)
    if as_json:
        print_json(created)


@topic.command("list")
@click.option(
    "--all", "with_own", is_flag=True, help="Also list topics that brokers make themselves."
)
@click.option(
    "--counts/--no-counts",
    "is_counted",
    default=None,
    help="Count each topic's messages.  [default: if there are few topics]",
)
@json_option
@wide_option
@target_options
def list_topics(
    target: Target, with_own: bool, is_counted: bool | None, as_json: bool, wide: bool
) -> None:
    """List the cluster's topics.

    --all adds topics that brokers make: retry topics, dead-letter topics and system topics.
    """

    async def question(admin: AdminClient) -> tuple[AnswerList[Topic], dict[str, _Count]]:
        listed = await admin.topics.list(with_own=with_own)
        queues = sum(each.queues for each in listed)
        is_cheap = len(listed) <= COUNTED_TOPICS_MAX and queues <= COUNTED_QUEUES_MAX
        if not (is_cheap if is_counted is None else is_counted):
            return listed, {}
        counts = await _message_counts(admin, listed)
        for each in listed:
            if listed.unanswered and not each.revision:
                counts[each.name] = None, listed.unanswered
        return listed, counts

    listed, counts = target.administer(question)
    topics = [_config(each) for each in listed]
    for each in topics:
        if counts:
            each["messages"], silent = counts[each["topic"]]
            each["unanswered"] = list(silent)
        elif not each["revision"]:
            # Brokers made it themselves; one that does not answer may have more of it.
            each["unanswered"] = list(listed.unanswered)
    remark_unanswered(
        sorted({*listed.unanswered, *(name for _, names in counts.values() for name in names)})
    )
    if as_json:
        print_json(topics)
        return
    print_documents(
        topics,
        {
            "topic": "topic",
            "queues": "queues",
            **({"messages": "messages"} if counts else {}),
            "brokers": lambda each: len(each["queuesByBroker"]),
            "permission": "permission",
            "ordered": "ordered",
            "attributes": lambda each: (
                " ".join(f"{key}={value}" for key, value in sorted(each["attributes"].items()))
                or "-"
            ),
        },
        droppable=("brokers", "ordered", "attributes"),
        wide=wide,
        empty="no topics yet; create one with `aerobee topic create NAME`",
    )


@topic.command()
@click.argument("name", shell_complete=topic_names)
@json_option
@wide_option
@target_options
def show(target: Target, name: str, as_json: bool, wide: bool) -> None:
    """Show where the queues of the topic NAME are and what they hold."""

    async def question(
        admin: AdminClient,
    ) -> tuple[TopicDescription, dict[MessageQueue, QueueBounds], tuple[str, ...]]:
        described = await admin.topics.describe(name)
        # A queue whose broker is away is shown without its offsets.
        queues = [each.queue for each in described.queues]
        return described, *await admin.offsets.bounds_by_broker(queues)

    described, bounds, unanswered = target.administer(question)
    remark_unanswered(unanswered)
    permission = _permission(described.permission)
    queues = [_queue(each, bounds.get(each.queue)) for each in described.queues]
    if as_json:
        print_json(
            {
                "topic": name,
                "permission": permission,
                "ordered": described.ordered,
                "attributes": described.attributes,
                "retired": list(described.retired),
                "queues": queues,
                "unanswered": list(unanswered),
            }
        )
        return
    if described.retired:
        remark(f"retired from {', '.join(described.retired)}: these queues take no new messages")
    count = sum(found.count for found in bounds.values())
    print_documents(
        queues,
        {
            "broker": "broker",
            "address": lambda queue: queue["address"] or "away",
            "queue": "queue",
            "min": "minOffset",
            "max": "maxOffset",
            "messages": lambda queue: (
                None if queue["maxOffset"] is None else queue["maxOffset"] - queue["minOffset"]
            ),
            "last stored": lambda queue: timestamp_text(queue["lastStoredMs"] or 0),
        },
        times="last stored",
        droppable=("address", "broker"),
        wide=wide,
        title=f"{name}: {permission}, {'at least ' if unanswered else ''}"
        f"{counted(count, 'message')}",
    )


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--queues", type=click.IntRange(min=1), help="New total; it can only grow.")
@click.option("--permission", type=click.Choice(["rw", "r", "w"]), help="What clients may do.")
@keep_options
@attribute_option
@json_option
@target_options
def update(
    target: Target,
    name: str,
    queues: int | None,
    permission: Permission | None,
    keep: str | None,
    keep_bytes: str | None,
    attributes: dict[str, str],
    as_json: bool,
) -> None:
    """Change the topic NAME.

    Settings that are not given stay as they are. An attribute with an empty value is removed.

    What the topic no longer keeps is gone for all its readers, even if it keeps more again later.
    """
    attributes = with_kept(attributes, keep, keep_bytes)
    if queues is None and permission is None and not attributes:
        raise click.UsageError(
            "give what to change: --queues, --permission, --keep, --keep-bytes or --attribute"
        )
    changed = target.administer(
        lambda admin: admin.topics.update(
            name, queues=queues, permission=permission, attributes=attributes
        )
    )
    if as_json:
        print_json(_config(changed))
        return
    say(f"topic {name} now has {_spread(changed)}, permission {_permission(changed.permission)}")


# The name that Kafka's users look for.
alter = copy.copy(update)
alter.name, alter.hidden = "alter", True
topic.add_command(alter)


@topic.command()
@click.argument("name", shell_complete=topic_names)
@yes_option
@json_option
@target_options
def delete(target: Target, name: str, yes: bool, as_json: bool) -> None:
    """Delete the topic NAME with its messages, permanently.

    All groups' offsets on it are deleted, too.
    """
    confirm(
        f"Delete topic {name} with its messages?",
        yes=yes,
        before=lambda: target.administer(lambda admin: admin.topics.describe(name)),
    )
    target.administer(lambda admin: admin.topics.delete(name))
    if as_json:
        print_json({"topic": name, "deleted": True})
        return
    say(f"deleted topic {name}")


async def _message_counts(admin: AdminClient, topics: Sequence[Topic]) -> dict[str, _Count]:
    """Of each topic: the messages that its queues hold, None if a part of them is not known, and
    the broker groups that did not answer."""
    from aerobee.runtime.errors import AerobeeError

    async def count(topic: Topic) -> _Count:
        try:
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                described = await admin.topics.describe(topic.name)
                queues = [each.queue for each in described.queues]
                found, unanswered = await admin.offsets.bounds_by_broker(queues)
        except TimeoutError:
            return None, tuple(topic.queues_by_broker)
        except AerobeeError:
            return None, ()  # A topic of the brokers' own, which no route shows.
        return (None if unanswered else sum(each.count for each in found.values())), unanswered

    counts = await asyncio.gather(*(count(each) for each in topics))
    return {each.name: found for each, found in zip(topics, counts, strict=True)}


def _spread(topic: Topic) -> str:
    spread = ", ".join(f"{n} on {name}" for name, n in topic.queues_by_broker.items())
    return f"{counted(topic.queues, 'queue')} ({spread})"


def _permission(permission: str) -> str:
    return "".join(each if each in permission else "-" for each in "rw")


def _config(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "queues": topic.queues,
        "queuesByBroker": topic.queues_by_broker,
        "permission": _permission(topic.permission),
        "ordered": topic.ordered,
        "attributes": topic.attributes,
        "revision": topic.revision,
    }


def _queue(found: TopicQueue, bounds: QueueBounds | None) -> dict[str, Any]:
    return {
        "broker": found.queue.broker_name,
        "address": found.address,
        "queue": found.queue.queue_id,
        "minOffset": bounds.min_offset if bounds else None,
        "maxOffset": bounds.max_offset_end if bounds else None,
        "lastStoredMs": bounds.last_store_timestamp_ms if bounds else None,
    }
