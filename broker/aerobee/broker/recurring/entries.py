"""The entries of the schedules' journal as JSON.

    {"kind":"put", "name":"…", "topic":"…", "body":"…", "when":{…}, …, "progress":[…]}
    {"kind":"removed", "name":"…"}
    {"kind":"ran", "number":7, "name":"…", "time":…, "queueId":0, "progress":[…]}
    {"kind":"passed", "name":"…", "progress":[…]}
    {"kind":"acted", "through":8}
    {"kind":"counted", "next":8}

A body is base64. `progress` has the next run, the counts of runs and of missed runs, and the times
of the last run on schedule and on request.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aerobee.broker.journal.records import text_of, whole_of
from aerobee.broker.recurring.schedules import (
    Acted,
    Counted,
    Definition,
    MissedRule,
    Passed,
    Progress,
    Put,
    Ran,
    Removed,
    Schedule,
    ScheduleEntry,
)
from aerobee.broker.recurring.times import When

SCHEDULE_JOURNAL_TOPIC: Final = "AEROBEE_SCHEDULE_JOURNAL"


def entry_text(entry: ScheduleEntry) -> str:
    """One entry as JSON."""
    document: dict[str, object]
    match entry:
        case Put(schedule):
            document = {"kind": "put", **_schedule_object(schedule)}
        case Removed(name):
            document = {"kind": "removed", "name": name}
        case Ran(number, name, time_ms, queue_id, progress):
            document = {
                "kind": "ran",
                "number": number,
                "name": name,
                "time": time_ms,
                "queueId": queue_id,
                "progress": progress,
            }
        case Passed(name, progress):
            document = {"kind": "passed", "name": name, "progress": progress}
        case Acted(through):
            document = {"kind": "acted", "through": through}
        case Counted(next_number):
            document = {"kind": "counted", "next": next_number}
    return json.dumps(document, separators=(",", ":"))


def decode_entry(value: dict[str, Any]) -> ScheduleEntry | None:
    """The entry in a JSON object; None: its kind is unknown. Raises KeyError, TypeError,
    AttributeError or ValueError if it is not an entry."""
    match value["kind"]:
        case "put":
            return Put(_schedule_of(value))
        case "removed":
            return Removed(text_of(value["name"]))
        case "ran":
            return Ran(
                whole_of(value["number"]),
                text_of(value["name"]),
                whole_of(value["time"]),
                whole_of(value["queueId"]),
                _progress_of(value["progress"]),
            )
        case "passed":
            return Passed(text_of(value["name"]), _progress_of(value["progress"]))
        case "acted":
            return Acted(whole_of(value["through"]))
        case "counted":
            return Counted(whole_of(value["next"]))
    return None


def _schedule_object(schedule: Schedule) -> dict[str, object]:
    of, when = schedule.definition, schedule.definition.when
    document: dict[str, object] = {
        "name": of.name,
        "topic": of.topic,
        "body": b64encode(of.body).decode(),
        "when": {
            "cron": when.cron,
            "zone": when.zone,
            "every": when.every_ms,
            "from": when.from_ms,
            "until": when.until_ms,
        },
        "runsMax": of.runs_max,
        "missedRule": of.missed.value,
        "created": schedule.created_ms,
        "revision": schedule.revision,
        "paused": int(schedule.is_paused),
        "progress": schedule.progress,
    }
    if of.tag:
        document["tag"] = of.tag
    if of.keys:
        document["keys"] = list(of.keys)
    if of.properties:
        document["properties"] = dict(of.properties)
    return document


def _schedule_of(value: Mapping[str, Any]) -> Schedule:
    when = value["when"]
    definition = Definition(
        name=text_of(value["name"]),
        topic=text_of(value["topic"]),
        body=b64decode(value["body"], validate=True),
        when=When(
            text_of(when["cron"]),
            text_of(when["zone"]),
            whole_of(when["every"]),
            whole_of(when["from"]),
            whole_of(when["until"]),
        ),
        tag=text_of(value.get("tag", "")),
        keys=tuple(map(text_of, value.get("keys", ()))),
        properties={text_of(k): text_of(v) for k, v in value.get("properties", {}).items()},
        runs_max=whole_of(value["runsMax"]),
        missed=MissedRule(value["missedRule"]),
    )
    return Schedule(
        definition,
        created_ms=whole_of(value["created"]),
        revision=whole_of(value["revision"]),
        is_paused=bool(whole_of(value["paused"])),
        progress=_progress_of(value["progress"]),
    )


def _progress_of(value: Sequence[Any]) -> Progress:
    return Progress(*map(whole_of, value))
