"""`aerobee transaction`: transactions whose end nobody has said yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.completion import topic_names
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.moments import time_argument, timestamp_text
from aerobee.cli.one_by_one import do_each
from aerobee.cli.options import always_json_option, confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_json, print_table, remark, remark_unanswered, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee import AdminClient, OpenTransaction, OpenTransactions, ReceivedMessage
    from aerobee.cli.one_by_one import Change

ids_argument = click.argument("transaction_ids", metavar="ID...", nargs=-1, required=True)


@click.group()
def transaction() -> None:
    """Find, commit and roll back transactions that are open or were set aside.

    The ID of a transaction is the id of its message.
    """


@transaction.command("list")
@click.argument("topic", shell_complete=topic_names, required=False, default="")
@click.option(
    "--from",
    "begin_ms",
    metavar="TIME",
    callback=time_argument,
    help="Only those begun at or after.",
)
@click.option(
    "--until", "end_ms", metavar="TIME", callback=time_argument, help="Only those begun before."
)
@click.option(
    "--max",
    "max_transactions",
    type=click.IntRange(min=1, max=100_000),
    default=100,
    show_default=True,
    help="List at most this many transactions, the oldest.",
)
@click.option(
    "--set-aside", is_flag=True, help="List those that no producer ended, instead of open ones."
)
@click.option("--ids", is_flag=True, help="Print only the ids, one per line.")
@json_option
@wide_option
@target_options
def list_(
    target: Target,
    topic: str,
    begin_ms: int | None,
    end_ms: int | None,
    max_transactions: int,
    set_aside: bool,
    ids: bool,
    as_json: bool,
    wide: bool,
) -> None:
    """List open transactions of TOPIC, or of all topics, oldest first.

    TIME is a local time such as 2026-01-31T12:00, or Unix milliseconds. Exit code 1: there is no
    such topic.
    """
    found = target.administer(
        lambda admin: admin.transactions.list(
            topic,
            begin_ms=begin_ms or 0,
            end_ms=end_ms or 0,
            set_aside=set_aside,
            max_transactions=max_transactions,
        )
    )
    if as_json:
        print_json(
            {
                "transactions": [_document(each) for each in found.transactions],
                "more": found.more,
                "unanswered": list(found.unanswered),
            }
        )
    elif ids:
        for each in found.transactions:
            say(each.transaction_id)
    elif found.transactions:
        _print_list(found, wide=wide)
    if found.more and not as_json:
        remark("there are more: bound the time with --from and --until, or raise --max")
    remark_unanswered(found.unanswered)
    if not found.transactions:
        if topic:
            target.administer(lambda admin: admin.topics.describe(topic))
        if not as_json:
            if set_aside:
                remark("no matching transaction is set aside; without --set-aside, lists open ones")
            else:
                remark("no matching transaction is open; --set-aside lists those never ended")


@transaction.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("transaction_id", metavar="ID")
@always_json_option
@target_options
def show(target: Target, topic: str, transaction_id: str) -> None:
    """Show the transaction ID of TOPIC and its message as JSON.

    It may be open or set aside. Exit code 1: there is none.

    Several brokers may have a transaction with this ID, each with its own message.
    """
    from aerobee.cli.message_lines import document_of_message

    async def question(admin: AdminClient) -> list[tuple[OpenTransaction, ReceivedMessage]]:
        transactions = admin.transactions
        found: list[OpenTransaction] = []
        for set_aside in (False, True):
            page = await transactions.list(
                topic, transaction_id=transaction_id, set_aside=set_aside
            )
            found += page.transactions
        return [(each, await transactions.message(each)) for each in found]

    found = target.administer(question)
    for each, message in found:
        print_json({**_document(each), "message": document_of_message(message)})
    if not found:
        remark(f"topic {topic} has no open transaction {transaction_id}")
        raise click.exceptions.Exit(NEGATIVE)


@transaction.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("transaction_id", metavar="ID")
@json_option
@target_options
def check(target: Target, topic: str, transaction_id: str, as_json: bool) -> None:
    """Have a producer asked now how the open transaction ID of TOPIC ends.

    The broker would ask with its next scan; the answer comes to it later. Exit code 1: no producer
    is connected that can be asked.
    """
    is_asked = target.administer(lambda admin: admin.transactions.check(topic, transaction_id))
    if as_json:
        print_json({"topic": topic, "transactionId": transaction_id, "asked": is_asked})
    elif is_asked:
        say(f"a producer of {topic} is asked about {transaction_id}")
    if not is_asked:
        remark(f"no producer of {topic} is connected that can be asked", always=True)
        raise click.exceptions.Exit(NEGATIVE)


@transaction.command()
@click.argument("topic", shell_complete=topic_names)
@ids_argument
@yes_option
@json_option
@target_options
def commit(
    target: Target, topic: str, transaction_ids: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Commit transactions of TOPIC: their messages are delivered.

    Exit code 1: a transaction is unknown, or has already ended differently. The others are
    committed nevertheless.
    """
    confirm(f"Commit {counted(len(transaction_ids), 'transaction')}?", yes=yes)

    async def change(admin: AdminClient, transaction_id: str) -> dict[str, Any]:
        await admin.transactions.commit(topic, transaction_id)
        return {"topic": topic}

    _each(target, transaction_ids, change, "committed", as_json)


@transaction.command()
@click.argument("topic", shell_complete=topic_names)
@ids_argument
@yes_option
@json_option
@target_options
def rollback(
    target: Target, topic: str, transaction_ids: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Roll back transactions of TOPIC; nobody gets their messages.

    Exit code 1: a transaction is unknown, or has already ended differently. The others are rolled
    back nevertheless.
    """
    confirm(f"Roll back {counted(len(transaction_ids), 'transaction')} for good?", yes=yes)

    async def change(admin: AdminClient, transaction_id: str) -> dict[str, Any]:
        await admin.transactions.rollback(topic, transaction_id)
        return {"topic": topic}

    _each(target, transaction_ids, change, "rolled back", as_json)


def _each(
    target: Target, transaction_ids: tuple[str, ...], change: Change, done: str, as_json: bool
) -> None:
    do_each(
        target,
        transaction_ids,
        change,
        member="transactionId",
        done=done,
        noun="transaction",
        as_json=as_json,
    )


def _document(found: OpenTransaction) -> dict[str, object]:
    return {
        "topic": found.queue.topic,
        "broker": found.queue.broker_name,
        "queue": found.queue.queue_id,
        "transactionId": found.transaction_id,
        "producerGroup": found.producer_group,
        "bornMs": found.born_timestamp_ms,
        "storedMs": found.store_timestamp_ms,
        "checks": found.checks,
        "recordBytes": found.record_bytes,
    }


def _print_list(found: OpenTransactions, *, wide: bool) -> None:
    print_table(
        ["begun", "topic", "broker", "id", "group", "checks", "bytes"],
        [
            [
                timestamp_text(each.born_timestamp_ms),
                each.queue.topic,
                each.queue.broker_name,
                each.transaction_id,
                each.producer_group,
                each.checks,
                each.record_bytes,
            ]
            for each in found.transactions
        ],
        times="begun",
        droppable=("bytes", "group", "broker", "checks"),
        wide=wide,
    )
