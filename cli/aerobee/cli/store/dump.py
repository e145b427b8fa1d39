"""`aerobee store dump`: a store folder's content, for people or as one JSON document."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_documents, print_table, say
from aerobee.cli.store.dump_document import DumpRequest, open_dump
from aerobee.cli.store.folder import folder_options, progress_bar, store_failures
from aerobee.cli.store.json_stream import collected, write_json
from aerobee.cli.store.questions import ChosenQuestions, GivenQuestions, Questions


@click.command("dump")
@folder_options
@click.option(
    "--messages-every",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="List every N-th message of a queue and the last one; 0 lists none. Default: all with "
    "--json, otherwise none. The keys of a million listed messages take about 450 MB of memory.",
)
@click.option("--topic", "topics", multiple=True, help="Show only this topic; repeatable.")
@click.option(
    "--questions",
    "questions_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Answer the questions in this document, an earlier dump or a manifest: its offsets out of "
    "range, times, keys and windows. Default: questions about what is listed.",
)
@json_option
def store_dump(
    folder: Path,
    config: dict[str, str],
    messages_every: int | None,
    topics: tuple[str, ...],
    questions_file: Path | None,
    as_json: bool,
) -> None:
    """Print the contents of the store in FOLDER, written by Aerobee or Apache RocketMQ.

    Writes nothing and takes no lock: a broker may be using the folder. Shows what a crash left as
    recovery would repair it. Digests always cover everything, whatever is listed.
    """
    request = DumpRequest(
        messages_every=messages_every if messages_every is not None else int(as_json),
        topics=topics,
        questions=_questions(questions_file),
    )
    with (
        store_failures(folder),
        progress_bar(f"reading {folder}") as on_progress,
        open_dump(folder, config, request, on_progress=on_progress) as document,
    ):
        if as_json:
            write_json(document, sys.stdout.write)
            sys.stdout.write("\n")
        else:
            _print_document(collected(document), topics)


def _questions(file: Path | None) -> Questions:
    if file is None:
        return ChosenQuestions()
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise click.BadParameter(
            f"{file} is not JSON: {error}", param_hint="--questions"
        ) from error
    if not isinstance(document, dict):
        raise click.BadParameter(f"{file} does not hold an object", param_hint="--questions")
    return GivenQuestions(document)


def _print_document(document: dict[str, Any], only: tuple[str, ...]) -> None:
    log = document["commitLog"]
    print_documents(
        log["segments"],
        {
            "Segment": "name",
            "Used bytes": "wrotePosition",
            "Ends at": lambda segment: int(segment["name"]) + segment["wrotePosition"],
        },
        title=f"Commit log: {counted(log['records'], 'record')}, {log['minOffset']} to "
        f"{log['maxOffset']}, SHA-256 {log['recordsSha256']}",
    )
    queues = [
        {"topic": topic, "queue": int(queue_id), **queue}
        for topic, by_id in document["topics"].items()
        for queue_id, queue in by_id.items()
    ]
    say()
    print_documents(
        queues,
        {
            "Topic": "topic",
            "Queue": "queue",
            "Min": "minOffset",
            "Max": "maxOffset",
            "Log end": "maxPhysicalOffset",
            "Records SHA-256": lambda queue: queue["recordsSha256"][:16],
        },
        title="Queues",
    )
    messages = [
        {**message, "topic": queue["topic"], "queue": queue["queue"]}
        for queue in queues
        for message in queue["messages"]
    ]
    if messages:
        say()
        print_documents(
            messages,
            {
                "Topic": "topic",
                "Queue": "queue",
                "Offset": "queueOffset",
                "Log position": "physicalOffset",
                "Size": "size",
                "Tag": "tags",
                "Keys": "keys",
                "Stored at": lambda message: _moment(message["storeTimestamp"]),
            },
            title="Messages",
        )
    _print_configs(document, only)


def _print_configs(document: dict[str, Any], only: tuple[str, ...]) -> None:
    """If `only` some topics are shown, no group is: its settings are about all that it reads."""
    offsets = [
        (group, topic, int(queue_id), offset)
        for key, queues in document["consumerOffsets"].items()
        for topic, _, group in [key.partition("@")]
        for queue_id, offset in queues.items()
    ]
    if offsets:
        say()
        print_table(("Group", "Topic", "Queue", "Next offset"), offsets, title="Consumer offsets")
    topics = [
        {"name": name, **config}
        for name, config in document["topicConfigs"].items()
        if not only or name in only
    ]
    if topics:
        say()
        print_documents(
            topics,
            {
                "Topic": "name",
                "Read": "readQueueNums",
                "Write": "writeQueueNums",
                "Perm": "perm",
                "Attributes": lambda topic: ", ".join(
                    f"{key}={value}" for key, value in sorted(topic["attributes"].items())
                ),
            },
            title="Topics",
        )
    groups = [{"name": name, **config} for name, config in document["subscriptionGroups"].items()]
    if groups and not only:
        say()
        print_documents(
            groups,
            {"Group": "name", "May consume": "consumeEnable", "Retries": "retryMaxTimes"},
            title="Subscription groups",
        )


def _moment(timestamp_ms: int) -> str:
    """In UTC; numbers that are no time stay numbers."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
