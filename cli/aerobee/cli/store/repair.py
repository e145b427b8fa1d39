"""`aerobee store repair`: bring a store folder back in order, with a copy of all it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aerobee.broker.replication.replica_folder import note_log_repaired
from aerobee.cli.failures import NEGATIVE
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.store.folder import folder_options, open_folder, progress_bar, store_failures
from aerobee.cli.store.verify import lost_document, lost_text, print_verified, verify_document
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreLocked
from aerobee.store.engine.folder_state import LOCK_FILE, lock_store
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY
from aerobee.store.repair.planner import RepairPlan, RepairWishes, plan_repair
from aerobee.store.repair.repair import Repair, archive_name, undo_repair
from aerobee.store.repair.verify import Verified, verify_store


@click.command("repair")
@folder_options
@click.option(
    "--apply", "apply", is_flag=True, help="Apply the repair; without this, only print the plan."
)
@click.option(
    "--cut-at-damage",
    is_flag=True,
    help="Cut the log at the first damaged record and lose everything after it, instead of "
    "replacing damaged messages with empty ones.",
)
@click.option("--rebuild-queues", is_flag=True, help="Rebuild the consume queues from the log.")
@click.option(
    "--topic", "topics", multiple=True, help="Rebuild only this topic's queues; repeatable."
)
@click.option("--rebuild-index", is_flag=True, help="Rebuild the key index from the log.")
@click.option(
    "--drop-unreadable-tables",
    is_flag=True,
    help="Move away tables that are unreadable and have no readable backup.",
)
@click.option("--undo", metavar="REPAIR", help="Undo the repair with this name.")
@json_option
@click.pass_context
def store_repair(context: click.Context, /, folder: Path, **options: Any) -> None:
    """Plan the repair of FOLDER; with --apply, repair it.

    Saves everything it replaces in FOLDER/repair-TIME/, with a manifest. Refuses a folder in use.
    Exit code 0: nothing is left to repair; 1: something stays damaged.
    """
    with store_failures(folder):
        disk, measured = open_folder(folder, options["config"])
        config = measured.config
        if options["undo"]:
            _undo(disk, options["undo"])
            return
        wishes = RepairWishes(
            cut_at_damage=options["cut_at_damage"],
            rebuild_queues=options["rebuild_queues"] or bool(options["topics"]),
            topics=frozenset(options["topics"]),
            rebuild_index=options["rebuild_index"],
            drop_unreadable_tables=options["drop_unreadable_tables"],
        )
        if options["apply"]:
            is_good = _repair(disk, config, wishes, as_json=options["as_json"])
        else:
            is_good = _show(disk, config, wishes, as_json=options["as_json"])
    if not is_good:
        context.exit(NEGATIVE)


def _undo(disk: RealDisk, name: str) -> None:
    lock = lock_store(disk)
    try:
        for line in undo_repair(disk, name.rstrip("/").rpartition("/")[2]):
            say(line)
    finally:
        lock.release()


def _show(disk: RealDisk, config: StoreConfig, wishes: RepairWishes, *, as_json: bool) -> bool:
    if disk.is_locked(LOCK_FILE):
        raise StoreLocked(f"{disk} is in use by another process: stop that process first")
    verified, plan = _plan(disk, config, wishes, is_locked_by_us=False)
    if as_json:
        print_json({"plan": plan_document(plan), "verify": verify_document(verified)})
    else:
        _print_plan(plan, done=False)
        if plan.steps:
            say("nothing was changed; apply the repair with --apply")
    return not plan.left


def _repair(disk: RealDisk, config: StoreConfig, wishes: RepairWishes, *, as_json: bool) -> bool:
    clock = SystemClock()
    lock = lock_store(disk)
    try:
        _, plan = _plan(disk, config, wishes, is_locked_by_us=True)
        repair = Repair(disk, plan, clock)
        if any(step.file.startswith(COMMIT_LOG_DIRECTORY) for step in plan.steps):
            note_log_repaired(disk, system_random())
        if plan.steps:
            repair.apply(on_step=lambda _, step: remark(f"{step.name}: {step.file}"))
    finally:
        lock.release()
    warnings: tuple[str, ...] = ()
    if plan.steps:
        warnings = repair.open_once(config)
    with progress_bar(f"verifying {disk}") as on_progress:
        after = verify_store(disk, config, on_progress=on_progress)
    if as_json:
        print_json(
            {
                "plan": plan_document(plan),
                "recovery": list(warnings),
                "verify": verify_document(after),
            }
        )
    else:
        _print_plan(plan, done=True)
        for warning in warnings:
            say(f"recovery: {warning}")
        print_verified(after, disk)
    return after.is_sound


def _plan(
    disk: RealDisk, config: StoreConfig, wishes: RepairWishes, *, is_locked_by_us: bool
) -> tuple[Verified, RepairPlan]:
    with progress_bar(f"verifying {disk}") as on_progress:
        verified = verify_store(
            disk, config, is_locked_by_us=is_locked_by_us, on_progress=on_progress
        )
    return verified, plan_repair(verified, wishes, archive_name(disk, SystemClock()))


def plan_document(plan: RepairPlan) -> dict[str, Any]:
    """The plan, ready for JSON."""
    return {
        "archive": plan.folder if plan.steps else None,
        "steps": [
            {
                "action": step.name,
                "file": step.file,
                "position": step.position,
                "bytes": step.bytes,
                "text": step.text,
                "lost": [lost_document(each) for each in step.lost],
            }
            for step in plan.steps
        ],
        "lost": [lost_document(each) for each in plan.lost],
        "left": plan.left,
    }


def _print_plan(plan: RepairPlan, *, done: bool) -> None:
    if not plan.steps and not plan.left:
        say("nothing to repair")
        return
    for number, step in enumerate(plan.steps, 1):
        at = "" if step.position is None else f" at byte {step.position}"
        size = f" ({counted(step.bytes, 'byte')})" if step.bytes else ""
        say(f"{number}. {step.name} {step.file}{at}{size}: {step.text}")
    lost = plan.lost
    if lost:
        count = sum(each.count for each in lost)
        say(f"{'lost' if done else 'would be lost'}: {counted(count, 'message')}")
        for each in lost:
            say(f"    {lost_text(each)}")
    for text in plan.left:
        say(f"left as it is: {text}")
    if done and plan.steps:
        say(f"what was replaced is in {plan.folder}; undo with --undo {plan.folder}")
