"""`aerobee store verify`: is everything in a store folder what it should be?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aerobee.cli.failures import NEGATIVE
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, say
from aerobee.cli.store.folder import folder_options, open_folder, progress_bar, store_failures
from aerobee.store.repair.damage import DamagedRegion, LostRange
from aerobee.store.repair.findings import Finding, Severity
from aerobee.store.repair.verify import Verified, verify_store

_COLORS = {Severity.DAMAGE: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}


@click.command("verify")
@folder_options
@click.option("--no-index", is_flag=True, help="Do not check the key index: faster.")
@json_option
@click.pass_context
def store_verify(
    context: click.Context, folder: Path, config: dict[str, str], no_index: bool, as_json: bool
) -> None:
    """Check every file in FOLDER, written by Aerobee or Apache RocketMQ.

    Writes nothing. A broker may be using the folder: the command then does not judge what is newer
    than its own start. Exit code 0: sound, possibly with notes and warnings; 1: damaged.
    """
    with store_failures(folder):
        disk, options = open_folder(folder, config)
        with progress_bar(f"verifying {folder}") as on_progress:
            verified = verify_store(
                disk, options.config, check_index=not no_index, on_progress=on_progress
            )
    if as_json:
        print_json(verify_document(verified))
    else:
        print_verified(verified, folder)
    if not verified.is_sound:
        context.exit(NEGATIVE)


def verify_document(verified: Verified) -> dict[str, Any]:
    """Everything, ready for JSON. Of each kind of finding only the first ones are listed; `counts`
    has all."""
    findings = verified.findings
    return {
        "sound": verified.is_sound,
        "live": verified.folder.is_live,
        "damage": findings.count_of(Severity.DAMAGE),
        "warnings": findings.count_of(Severity.WARNING),
        "notes": findings.count_of(Severity.NOTE),
        "counts": {
            kind.name: count
            for kind, count in sorted(findings.counts.items(), key=lambda item: item[0].name)
        },
        "findings": [_finding(finding) for finding in findings.worst_first()],
        "damagedRegions": [_region(region) for region in verified.damage.regions],
        "read": {
            "segments": len(verified.folder.segments),
            "records": verified.totals.records,
            "recordBytes": verified.totals.record_bytes,
            "queues": len(verified.cursors),
            "queueEntries": verified.queued_records,
            "indexEntries": verified.index_entries,
            "minOffset": verified.folder.log_min_offset,
            "maxOffset": verified.damage.log_end,
        },
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        "file": finding.file,
        "position": finding.position,
        "text": finding.text,
        "meaning": finding.kind.meaning,
        "advice": finding.kind.advice,
        **({"details": finding.details} if finding.details else {}),
    }


def _region(region: DamagedRegion) -> dict[str, Any]:
    return {
        "start": region.start,
        "end": region.end,
        "code": region.kind.name,
        "lost": [lost_document(lost) for lost in region.lost()],
    }


def lost_document(lost: LostRange) -> dict[str, Any]:
    return {
        "topic": lost.topic,
        "queue": lost.queue_id,
        "firstOffset": lost.first,
        "lastOffset": lost.end - 1,
    }


def lost_text(lost: LostRange) -> str:
    """`orders, queue 3: offset 17` or `orders, queue 3: offsets 17 to 20 (4)`."""
    where = f"{lost.topic}, queue {lost.queue_id}"
    if lost.count == 1:
        return f"{where}: offset {lost.first}"
    return f"{where}: offsets {lost.first} to {lost.end - 1} ({lost.count})"


def print_verified(verified: Verified, folder: object) -> None:
    """Worst first; of each kind what it means and what to do is said once."""
    seen: set[str] = set()
    for finding in verified.findings.worst_first():
        at = "" if finding.position is None else f" at byte {finding.position}"
        said = f": {finding.code} {finding.file}{at}: {finding.text}"
        say(said, label=str(finding.severity), colour=_COLORS[finding.severity])
        if finding.code not in seen:
            seen.add(finding.code)
            say(f"    {finding.kind.meaning}; {finding.kind.advice}")
    for kind, count in verified.findings.counts.items():
        kept = sum(1 for finding in verified.findings if finding.kind is kind)
        if kept < count:
            say(f"{kind.name}: {count - kept} more like these")
    for region in verified.damage.regions:
        lost = region.lost()
        say(f"in log bytes {region.start} to {region.end} there were:")
        for each in lost:
            say(f"    {lost_text(each)}")
        if not lost:
            say("    messages that no queue knows")
    _print_summary(verified, folder)


def _print_summary(verified: Verified, folder: object) -> None:
    findings, totals = verified.findings, verified.totals
    state = "in use; read as it was at the start" if verified.folder.is_live else "not in use"
    say(
        f"{folder} ({state}): {counted(totals.records, 'record')} in "
        f"{counted(len(verified.folder.segments), 'segment')}, "
        f"{counted(len(verified.cursors), 'queue')} with "
        f"{counted(verified.queued_records, 'entry', 'entries')}, "
        f"{counted(verified.index_entries, 'index entry', 'index entries')}"
    )
    counts = ", ".join(
        counted(findings.count_of(severity), word, several)
        for severity, word, several in (
            (Severity.DAMAGE, "damage", "damage"),
            (Severity.WARNING, "warning", "warnings"),
            (Severity.NOTE, "note", "notes"),
        )
    )
    say(f"{'sound' if verified.is_sound else 'DAMAGED'}: {counts}")
