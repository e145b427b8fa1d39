"""`aerobee store dump`: a store folder's content, for people or as one JSON document."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from aerobee.broker.store.errors import StoreUnusable
from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.json_stream import collected, write_json
from aerobee.cli.output import counted, json_option, print_table, say
from aerobee.cli.store_document import DumpRequest, OnProgress, dump_store, open_dump
from aerobee.cli.store_questions import ChosenQuestions, GivenQuestions, Questions

__all__ = ["dump_store", "store_dump"]


@click.command("dump")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config",
    multiple=True,
    metavar="NAME=VALUE",
    help="A store option under Apache's name, for example mappedFileSizeCommitLog=262144. "
    "Sizes that are not given are taken from the files.",
)
@click.option(
    "--messages-every",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="List each N-th message of a queue and its last; 0 lists none. Default: all with --json, "
    "else none. The keys of a million listed messages take about 450 MB of memory.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option(
    "--questions",
    "questions_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Answer the questions of this document, an earlier dump or a manifest: its offsets out of "
    "range, times, keys and windows. Default: questions around what is listed.",
)
@json_option
def store_dump(
    folder: Path,
    config: tuple[str, ...],
    messages_every: int | None,
    topics: tuple[str, ...],
    questions_file: Path | None,
    as_json: bool,
) -> None:
    """Print what the store in FOLDER holds, ours or Apache's.

    Nothing is written and nothing locked: a broker may be using the folder. What a crash left is
    shown as recovery would repair it. Digests always cover everything, whatever is listed.
    """
    request = DumpRequest(
        messages_every=messages_every if messages_every is not None else int(as_json),
        topics=topics,
        questions=_questions(questions_file),
    )
    try:
        with (
            _progress(folder) as on_progress,
            open_dump(folder, _overrides(config), request, on_progress=on_progress) as document,
        ):
            if as_json:
                write_json(document, sys.stdout.write)
                sys.stdout.write("\n")
            else:
                _print_document(collected(document))
    except StoreUnusable as error:
        raise EnvironmentFailure(str(error)) from error
    except OSError as error:
        raise EnvironmentFailure(f"cannot read the store {folder}: {error}") from error


def _questions(file: Path | None) -> Questions:
    if file is None:
        return ChosenQuestions()
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise click.BadParameter(f"{file} is no JSON: {error}", param_hint="--questions") from error
    if not isinstance(document, dict):
        raise click.BadParameter(f"{file} holds no object", param_hint="--questions")
    return GivenQuestions(document)


def _overrides(config: tuple[str, ...]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for option in config:
        name, separator, value = option.partition("=")
        if not separator:
            raise click.BadParameter(f"{option!r} is not NAME=VALUE", param_hint="--config")
        overrides[name.strip()] = value.strip()
    return overrides


@contextlib.contextmanager
def _progress(folder: Path) -> Iterator[OnProgress | None]:
    """A bar on a terminal's standard error, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reading {folder}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_document(document: dict[str, Any]) -> None:
    _print_log(document["commitLog"])
    _print_queues(document["topics"])
    _print_messages(document["topics"])
    _print_offsets(document["consumerOffsets"])
    _print_configs(document)


def _print_log(log: dict[str, Any]) -> None:
    rows = [
        (segment["name"], segment["wrotePosition"], int(segment["name"]) + segment["wrotePosition"])
        for segment in log["segments"]
    ]
    title = (
        f"Commit log: {counted(log['records'], 'record')}, {log['minOffset']} to "
        f"{log['maxOffset']}, SHA-256 {log['recordsSha256']}"
    )
    print_table(("Segment", "Used bytes", "Ends at"), rows, title=title)


def _print_queues(topics: dict[str, Any]) -> None:
    rows = [
        (
            topic,
            int(queue_id),
            queue["minOffset"],
            queue["maxOffset"],
            queue["maxPhysicalOffset"],
            queue["recordsSha256"][:16],
        )
        for topic, queues in topics.items()
        for queue_id, queue in queues.items()
    ]
    headers = ("Topic", "Queue", "Min", "Max", "Log end", "Records SHA-256")
    say()
    print_table(headers, rows, title="Queues")


def _print_messages(topics: dict[str, Any]) -> None:
    rows = [
        (
            topic,
            int(queue_id),
            message["queueOffset"],
            message["physicalOffset"],
            message["size"],
            message["tags"],
            message["keys"],
            _moment(message["storeTimestamp"]),
        )
        for topic, queues in topics.items()
        for queue_id, queue in queues.items()
        for message in queue["messages"]
    ]
    if rows:
        headers = ("Topic", "Queue", "Offset", "Log position", "Size", "Tag", "Keys", "Stored at")
        say()
        print_table(headers, rows, title="Messages")


def _moment(timestamp_ms: int) -> str:
    """In UTC; numbers that are no time stay numbers."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _print_offsets(offsets: dict[str, Any]) -> None:
    rows = []
    for key, queues in offsets.items():
        topic, _, group = key.partition("@")
        rows += [(group, topic, int(queue_id), offset) for queue_id, offset in queues.items()]
    if rows:
        say()
        print_table(("Group", "Topic", "Queue", "Next offset"), rows, title="Consumer offsets")


def _print_configs(document: dict[str, Any]) -> None:
    rows = [
        (
            name,
            config["readQueueNums"],
            config["writeQueueNums"],
            config["perm"],
            ", ".join(f"{key}={value}" for key, value in sorted(config["attributes"].items())),
        )
        for name, config in document["topicConfigs"].items()
    ]
    if rows:
        say()
        print_table(("Topic", "Read", "Write", "Perm", "Attributes"), rows, title="Topics")
    groups = [
        (name, config["consumeEnable"], config["retryMaxTimes"])
        for name, config in document["subscriptionGroups"].items()
    ]
    if groups:
        say()
        print_table(("Group", "May consume", "Retries"), groups, title="Subscription groups")
