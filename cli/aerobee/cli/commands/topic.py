"""`aerobee topic`: create, list, show, update and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.confirm import confirm, yes_option
from aerobee.cli.event_loop import run
from aerobee.cli.moments import timestamp_text
from aerobee.cli.output import counted, json_option, print_json, print_table, say, wide_option
from aerobee.cli.settings import parse_settings
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee.client_core import MessageQueue, QueueBounds
    from aerobee.v1 import common_pb2

READ = 4
WRITE = 2


@click.group()
def topic() -> None:
    """Create, list, show, update and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--queues",
    type=click.IntRange(min=1),
    help="In total, spread over the broker groups.  [default: the cluster's choice]",
)
@click.option("--ordered", is_flag=True, help="Say that consumers rely on the order.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--if-missing", is_flag=True, help="Succeed when the topic is already there.")
@target_options
def create(
    target: Target,
    name: str,
    queues: int | None,
    ordered: bool,
    attributes: tuple[str, ...],
    if_missing: bool,
) -> None:
    """Create the topic NAME."""
    settings = parse_settings(attributes, option="--attribute")

    async def main() -> None:
        from aerobee.client_core import Topics
        from aerobee.runtime.errors import TopicExists

        async with target.connect() as connection:
            try:
                made = await Topics(connection).create(
                    name, queues=queues or 0, order=ordered, attributes=settings
                )
            except TopicExists:
                if not if_missing:
                    raise
                say(f"topic {name} is already there")
                return
        say(f"created topic {name} with {_spread(made)}")

    run(main)


@topic.command("list")
@json_option
@target_options
def list_topics(target: Target, as_json: bool) -> None:
    """List all topics."""

    async def main() -> None:
        from aerobee.client_core import Topics

        async with target.connect() as connection:
            topics = await Topics(connection).list()
        if as_json:
            print_json([_config(topic) for topic in topics])
            return
        print_table(
            ["topic", "queues", "brokers", "permission", "ordered", "attributes"],
            [
                [
                    each.name,
                    sum(each.queues_by_broker.values()),
                    len(each.queues_by_broker),
                    _permission(each.perm),
                    each.order,
                    _attributes(each),
                ]
                for each in topics
            ],
            empty="no topics yet; create one with `aerobee topic create NAME`",
        )

    run(main)


@topic.command()
@click.argument("name")
@json_option
@wide_option
@target_options
def show(target: Target, name: str, as_json: bool, wide: bool) -> None:
    """Show the queues of the topic NAME, where they are and what they hold."""

    async def main() -> None:
        from aerobee.client_core import Offsets

        async with target.connect() as connection:
            route = await connection.routes.route(name)
            # A queue whose broker is away is shown without its offsets.
            alive = [queue for queue in route.queues if route.master(queue.broker_name)]
            bounds = await Offsets(connection).bounds(alive)
        addresses = {broker: endpoint.address for broker, endpoint in route.masters.items()}
        if as_json:
            print_json(
                {
                    "topic": name,
                    "permission": _permission(route.perm),
                    "ordered": route.is_ordered,
                    "attributes": dict(route.attributes),
                    "queues": [
                        _queue(queue, bounds.get(queue), addresses.get(queue.broker_name))
                        for queue in route.queues
                    ],
                }
            )
            return
        rows = [_row(queue, bounds.get(queue), addresses) for queue in route.queues]
        print_table(
            ["broker", "address", "queue", "min", "max", "messages", "last stored"],
            rows,
            droppable=("address", "broker"),
            wide=wide,
            title=f"{name}: {_permission(route.perm)}, "
            f"{counted(sum(found.count for found in bounds.values()), 'message')}",
        )

    run(main)


@topic.command()
@click.argument("name")
@click.option("--queues", type=click.IntRange(min=1), help="New total; it can only grow.")
@click.option("--permission", type=click.Choice(["rw", "r", "w"]), help="What clients may do.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@target_options
def update(
    target: Target,
    name: str,
    queues: int | None,
    permission: str | None,
    attributes: tuple[str, ...],
) -> None:
    """Change the topic NAME; what is not given stays. An empty value removes an attribute."""
    settings = parse_settings(attributes, option="--attribute")
    if queues is None and permission is None and not settings:
        raise click.UsageError("say what to change: --queues, --permission or --attribute")
    perm = None
    if permission is not None:
        perm = READ * ("r" in permission) + WRITE * ("w" in permission)

    async def main() -> None:
        from aerobee.client_core import Topics

        async with target.connect() as connection:
            changed = await Topics(connection).update(
                name, queues=queues, perm=perm, attributes=settings
            )
        say(f"topic {name} now has {_spread(changed)}, permission {_permission(changed.perm)}")

    run(main)


@topic.command()
@click.argument("name")
@yes_option
@target_options
def delete(target: Target, name: str, yes: bool) -> None:
    """Delete the topic NAME; its messages and all groups' offsets go with it, for good."""
    confirm(f"Delete topic {name} with its messages?", yes=yes)

    async def main() -> None:
        from aerobee.client_core import Topics

        async with target.connect() as connection:
            await Topics(connection).delete(name)
        say(f"deleted topic {name}")

    run(main)


def _spread(config: common_pb2.TopicConfig) -> str:
    spread = ", ".join(f"{n} on {name}" for name, n in sorted(config.queues_by_broker.items()))
    return f"{counted(sum(config.queues_by_broker.values()), 'queue')} ({spread})"


def _permission(perm: int) -> str:
    return ("r" if perm & READ else "-") + ("w" if perm & WRITE else "-")


def _attributes(config: common_pb2.TopicConfig) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(config.attributes.items())) or "-"


def _config(config: common_pb2.TopicConfig) -> dict[str, object]:
    return {
        "topic": config.name,
        "queues": sum(config.queues_by_broker.values()),
        "queuesByBroker": dict(sorted(config.queues_by_broker.items())),
        "permission": _permission(config.perm),
        "ordered": config.order,
        "attributes": dict(config.attributes),
        "revision": config.revision,
    }


def _queue(
    queue: MessageQueue, bounds: QueueBounds | None, address: str | None
) -> dict[str, object]:
    return {
        "broker": queue.broker_name,
        "address": address,
        "queue": queue.queue_id,
        "minOffset": bounds.min_offset if bounds else None,
        "maxOffset": bounds.max_offset_end if bounds else None,
        "lastStoredMs": bounds.last_store_timestamp_ms if bounds else None,
    }


def _row(
    queue: MessageQueue, bounds: QueueBounds | None, addresses: dict[str, str]
) -> list[object]:
    if bounds is None:
        return [queue.broker_name, "away", queue.queue_id, None, None, None, "-"]
    return [
        queue.broker_name,
        addresses[queue.broker_name],
        queue.queue_id,
        bounds.min_offset,
        bounds.max_offset_end,
        bounds.count,
        timestamp_text(bounds.last_store_timestamp_ms),
    ]
