"""`aerobee apply`: gives a cluster what a file declares: topics, groups, quotas, policies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.failures import FAILED, NEGATIVE, USAGE, Failure, failure_from
from aerobee.cli.options import confirm, dry_run_option, json_option, yes_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee import AdminClient
    from aerobee.cli.declared.plan import Change, Plan, Step, Value, Wish

PROBLEMS_SHOWN_MAX = 20


@click.command()
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(allow_dash=True),
    help="The file, YAML or JSON; - is standard input.",
)
@click.option(
    "--export",
    is_flag=True,
    help="Print a file that declares what the cluster has now, and change nothing.",
)
@dry_run_option
@click.option(
    "--prune",
    is_flag=True,
    help="Delete what the file's sections do not have: topics, quotas, policies of its users.",
)
@click.option(
    "--delete-unread",
    is_flag=True,
    help="With --prune: also topics with messages that a group has not read.",
)
@yes_option
@json_option
@target_options
def apply(
    target: Target,
    path: str | None,
    export: bool,
    dry_run: bool,
    prune: bool,
    delete_unread: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make the cluster match a file that declares topics, groups, quotas and policies.

    Prints what differs, asks, and changes it. What the file does not name stays as it is. If
    any change is impossible, nothing is changed: exit code 4. More queues than the file says are
    told and left as they are.

    --export prints what the cluster has as such a file, which `apply` then takes without a change.
    Users are only named in it: their secrets are theirs.

    \b
    --dry-run exits with 0 if nothing differs, with 1 if something does.
    """
    if delete_unread and not prune:
        raise click.UsageError("--delete-unread is for --prune")
    if export == (path is not None):
        raise click.UsageError("give either --file or --export")
    if path is None:
        _export(target, as_json)
    else:
        _apply(target, path, dry_run, prune, delete_unread, yes, as_json)


def _apply(
    target: Target,
    path: str,
    dry_run: bool,
    prune: bool,
    delete_unread: bool,
    yes: bool,
    as_json: bool,
) -> None:
    wish = _wish(path)
    plan = target.administer(lambda admin: _planned(admin, wish, prune, delete_unread))
    document = _document(plan, dry_run)
    if not as_json:
        _show(plan, say)
    elif not (dry_run or yes):
        # The plan goes before the question, so that the answer is about something seen.
        _show(plan, remark)
    if plan.refused:
        if as_json:
            print_json(document)
        refused = counted(len(plan.refused), "change")
        raise Failure(f"{refused} cannot be made, and nothing was changed", exit_code=FAILED)
    if dry_run or not plan.steps:
        if as_json:
            print_json(document)
        if plan.differs and dry_run:
            sys.exit(NEGATIVE)
        return
    confirm(f"Make {counted(len(plan.steps), 'change')}?", yes=yes)
    done: list[Step] = []
    failure = target.administer(lambda admin: _carry_out(admin, plan, done, delete_unread, as_json))
    if as_json:
        told = None if failure is None else failure.message
        print_json(document | {"done": len(done), "failed": told})
    if failure is not None:
        raise failure
    if not as_json:
        say(f"made {counted(len(done), 'change')}")


def _export(target: Target, as_json: bool) -> None:
    from aerobee.cli.declared.cluster import DeclaredCluster
    from aerobee.cli.declared.export import Export

    state = target.administer(lambda admin: DeclaredCluster(admin).present())
    export = Export(state)
    if as_json:
        print_json(export.sections)
    else:
        say(export.text(state.users), keep="\n", nl=False)
    for sentence in export.left_out:
        remark(f"left out: {sentence}", always=True)


def _wish(path: str) -> Wish:
    from aerobee.cli.declared.file import read_wish

    try:
        with click.open_file(path, "rb") as file:
            text = file.read().decode()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", exit_code=USAGE) from None
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is not UTF-8: {error.reason}", exit_code=USAGE) from None
    wish, problems = read_wish(text)
    if problems:
        for problem in problems[:PROBLEMS_SHOWN_MAX]:
            remark(f"{path}:{problem.line}: error: {problem.text}")
        raise Failure(
            f"{path} has {counted(len(problems), 'error')}, and nothing was changed",
            exit_code=USAGE,
        )
    return wish


async def _planned(admin: AdminClient, wish: Wish, prune: bool, delete_unread: bool) -> Plan:
    from aerobee.cli.declared.cluster import DeclaredCluster
    from aerobee.cli.declared.plan import Kind, plan, to_remove

    cluster = DeclaredCluster(admin)
    state = await cluster.state(wish)
    removed = to_remove(wish, state) if prune else []
    topics = {key.words[0]: key for key in removed if key.kind is Kind.TOPIC}
    counts = {} if delete_unread else await cluster.unread(topics)
    unread = {topics[name]: count for name, count in counts.items()}
    return plan(wish, state, removed=removed, unread=unread)


async def _carry_out(
    admin: AdminClient,
    plan: Plan,
    done: list[Step],
    delete_unread: bool,
    as_json: bool,
) -> Failure | None:
    """Ends at the first step that fails, which it returns; `done` has those before."""
    from aerobee.cli.declared.cluster import DeclaredCluster

    cluster = DeclaredCluster(admin)
    for step in plan.steps:
        try:
            await cluster.perform(step, with_unread=delete_unread)
        except Exception as error:
            failure = failure_from(error)
            if failure is None:
                raise
            left = [f"{each.action} {each.key}" for each in plan.steps[len(done) :]]
            return Failure(
                f"{counted(len(done), 'change')} made, {len(left)} not: {_some(left)}; the first "
                f"of them failed: {failure.message}; apply the file again when that is settled"
            )
        done.append(step)
        if not as_json:
            say(f"{_DONE[step.action]} {step.key}")
    return None


_DONE = {"create": "created", "change": "changed", "delete": "deleted"}


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:5])
    return f"{shown} and {len(texts) - 5} more" if len(texts) > 5 else shown


def _show(plan: Plan, by: Callable[[str], None]) -> None:
    for step in plan.steps:
        details = ", ".join(map(_change_text, step.changes))
        by(f"{step.action} {step.key}{': ' if details else ''}{details}")
    for drift in plan.drift:
        by(f"differs {drift.key}: {drift.why}")
    for refusal in plan.refused:
        by(f"cannot change {refusal.key}: {refusal.why}")
    counts = [
        f"{sum(step.action == action for step in plan.steps)} to {action}"
        for action in ("create", "change", "delete")
    ]
    if plan.drift:
        counts.append(f"{len(plan.drift)} left as it is")
    if plan.refused:
        counts.append(f"{len(plan.refused)} impossible")
    by(f"plan: {', '.join(counts)}, {plan.unchanged} unchanged")


def _change_text(change: Change) -> str:
    if change.before is None:
        return f"{change.field} {_value_text(change.after)}"
    return f"{change.field} {_value_text(change.before)} -> {_value_text(change.after)}"


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _document(plan: Plan, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "steps": [
            {
                "action": step.action,
                "kind": step.key.kind,
                "name": " ".join(step.key.words),
                "changes": [
                    {"field": each.field, "from": each.before, "to": each.after}
                    for each in step.changes
                ],
            }
            for step in plan.steps
        ],
        "drift": [
            {"kind": each.key.kind, "name": " ".join(each.key.words), "why": each.why}
            for each in plan.drift
        ],
        "refused": [
            {"kind": each.key.kind, "name": " ".join(each.key.words), "why": each.why}
            for each in plan.refused
        ],
        "unchanged": plan.unchanged,
        "done": 0,
        "failed": None,
    }
