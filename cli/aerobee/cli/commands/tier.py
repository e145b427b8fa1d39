"""`aerobee tier`: what is in an object store, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aerobee.broker.tier.places import open_tier
from aerobee.cli.failures import NEGATIVE, EnvironmentFailure
from aerobee.cli.moments import delay_argument, timestamp_text
from aerobee.cli.options import confirm, json_option, yes_option
from aerobee.cli.output import counted, print_json, remark, say
from aerobee.cli.store.folder import progress_bar
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.private_files import make_private_folder
from aerobee.store.engine.disk import RealDisk
from aerobee.store.tier.chain import Chain, TierFinding, compare_store, read_chain, verify_objects
from aerobee.store.tier.config import TierConfig
from aerobee.store.tier.forgetting import at_or_after, before, forget, older_than
from aerobee.store.tier.manifest import Manifest
from aerobee.store.tier.objects import Objects
from aerobee.store.tier.restoring import restore

Command = TypeVar("Command", bound=Callable[..., Any])


def tier_options(command: Command) -> Command:
    """Adds BROKER, --tier and --cluster (parameters `broker`, `url`, `cluster`)."""
    url = click.option(
        "--tier",
        "url",
        metavar="URL",
        required=True,
        envvar="AEROBEE_BROKER_TIER_URL",
        help="The brokers' tier.url (environment: AEROBEE_BROKER_TIER_URL).",
    )
    cluster = click.option(
        "--cluster",
        envvar="AEROBEE_CLUSTER",
        default="aerobee",
        show_default=True,
        help="The cluster's name (environment: AEROBEE_CLUSTER).",
    )
    return click.argument("broker")(url(cluster(command)))


def _open(url: str, cluster: str, broker: str) -> Objects:
    """Raises InvalidArgument."""
    config = TierConfig(url=url)
    return open_tier(config.url, cluster=cluster, broker_name=broker, clock=SystemClock())


@click.group()
def tier() -> None:
    """Show, check, restore and prune the log segments of a broker group in an object store.

    BROKER is the broker group's name. The commands need no broker and no nameserver.
    """


@tier.command()
@tier_options
@json_option
def status(broker: str, url: str, cluster: str, as_json: bool) -> None:
    """Show which part of BROKER's log is in the tier."""
    chain = read_chain(_open(url, cluster, broker))
    if as_json:
        print_json(_document(chain))
    else:
        _print_status(chain)
        _print_findings(chain)


@tier.command()
@tier_options
@click.option("--quick", is_flag=True, help="Compare sizes only; read no segment of the tier.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Also compare this store, which a broker may be using.",
)
@json_option
@click.pass_context
def verify(
    context: click.Context,
    broker: str,
    url: str,
    cluster: str,
    quick: bool,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Check everything that BROKER has in the tier.

    Reads every byte, unless --quick is given, and changes nothing. Finds what is missing, cut,
    swapped or of another chain. Exit code 0: sound, perhaps with left-overs, which a master
    removes; 1: damaged.
    """
    objects = _open(url, cluster, broker)
    chain = read_chain(objects)
    total = sum(manifest.size_bytes for manifest in chain.manifests)
    with progress_bar("verifying") as on_progress:
        verify_objects(objects, chain, is_whole=not quick, on_chunk=_meter(on_progress, total))
    compared = 0 if folder is None else _compare(chain, folder)
    if as_json:
        print_json({**_document(chain), "compared": compared})
    else:
        if folder is not None:
            say(f"compared     {counted(compared, 'segment')} of {folder}")
        _print_status(chain)
        _print_findings(chain)
        if not chain.findings:
            say("everything is there and sound" if not quick else "everything is there")
    if not chain.is_sound:
        context.exit(NEGATIVE)


def _compare(chain: Chain, folder: Path) -> int:
    try:
        with progress_bar(f"comparing {folder}") as on_progress:
            total = sum(manifest.size_bytes for manifest in chain.manifests)
            return compare_store(chain, RealDisk(folder), _meter(on_progress, total))
    except OSError as error:
        raise EnvironmentFailure(f"cannot read the store {folder}: {error}") from error


@tier.command("restore")
@tier_options
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
def restore_command(broker: str, url: str, cluster: str, folder: Path, as_json: bool) -> None:
    """Make a store in FOLDER of what BROKER has in the tier.

    FOLDER must be empty or not exist. Restores the segments up to the newest one, from the last
    break in the chain on, and checks every byte. The broker that is then started over FOLDER
    builds the queues. What was not in the tier is missing: the messages of the last segment.
    """
    objects = _open(url, cluster, broker)
    manifests = read_chain(objects).newest_part
    total = sum(manifest.size_bytes for manifest in manifests)
    try:
        make_private_folder(folder)
        with progress_bar("restoring") as on_progress:
            restore(objects, manifests, RealDisk(folder), _meter(on_progress, total))
    except OSError as error:
        raise EnvironmentFailure(f"cannot make a store in {folder}: {error}") from error
    begin, end = manifests[0].base, manifests[-1].end
    if as_json:
        print_json({"segments": len(manifests), "minOffset": begin, "maxOffset": end})
    else:
        count = counted(len(manifests), "segment")
        say(f"{folder}: the log from {begin} to {end}, {count}; start the broker over it")


@tier.command("forget")
@tier_options
@click.option("--before", "until", type=click.IntRange(min=0), metavar="OFFSET", help="Older ones.")
@click.option("--from", "since", type=click.IntRange(min=0), metavar="OFFSET", help="Newer ones.")
@click.option(
    "--older-than",
    "age_ms",
    metavar="AGE",
    callback=delay_argument,
    help="Those last written to before that, such as 90d.",
)
@yes_option
@json_option
def forget_command(
    broker: str,
    url: str,
    cluster: str,
    until: int | None,
    since: int | None,
    age_ms: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove segments of BROKER's log from the tier, for good.

    To save space: --before OFFSET removes those that end there or earlier, --older-than AGE the
    oldest ones, never the newest one. After an unclean election: --from OFFSET removes those with
    bytes there or later, which the log no longer has.
    """
    if [until, since, age_ms].count(None) != 2:
        raise click.UsageError("give one of --before, --older-than and --from")
    objects = _open(url, cluster, broker)
    manifests = read_chain(objects).manifests
    if since is not None:
        doomed = at_or_after(manifests, since)
    elif until is not None:
        doomed = before(manifests, until)
    else:
        doomed = older_than(manifests, SystemClock().now_ms() - (age_ms or 0))
    if doomed:
        confirm(f"Remove {counted(len(doomed), 'segment')} of {broker} for good?", yes=yes)
    forget(
        objects,
        doomed,
        is_marked=since is None,
        on_segment=lambda each: remark(f"removed {each.base} to {each.end}"),
    )
    if as_json:
        print_json({"removed": len(doomed), "kept": len(manifests) - len(doomed)})
    else:
        kept = len(manifests) - len(doomed)
        say(f"{counted(len(doomed), 'segment')} removed, {counted(kept, 'segment')} kept")


# ---------------------------------------------------------------------------------- output


def _meter(on_progress: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if on_progress is not None:
            on_progress(min(done, total), total)

    return advance


def _document(chain: Chain) -> dict[str, Any]:
    manifests = chain.manifests
    return {
        "sound": chain.is_sound,
        "segments": [_segment(manifest) for manifest in manifests],
        "bytes": sum(manifest.size_bytes for manifest in manifests),
        "minOffset": chain.newest_part[0].base if manifests else None,
        "maxOffset": manifests[-1].end if manifests else None,
        "findings": [_finding(finding) for finding in chain.findings],
    }


def _segment(manifest: Manifest) -> dict[str, Any]:
    return {
        "minOffset": manifest.base,
        "maxOffset": manifest.end,
        "object": manifest.object_name,
        "epoch": manifest.epoch,
        "written": manifest.written_ms,
        "uploaded": manifest.uploaded_ms,
    }


def _finding(finding: TierFinding) -> dict[str, Any]:
    return {
        "kind": str(finding.kind),
        "damage": finding.kind.is_damage,
        "object": finding.name,
        "text": finding.text,
    }


def _print_status(chain: Chain) -> None:
    if not chain.manifests:
        say("nothing is in the tier")
        return
    part = chain.newest_part
    say(f"segments     {len(chain.manifests):,}")
    say(f"bytes        {sum(manifest.size_bytes for manifest in chain.manifests):,}")
    say(f"log          {part[0].base} to {part[-1].end}, without a break")
    first, last = timestamp_text(part[0].written_ms), timestamp_text(part[-1].written_ms)
    say(f"written      {first} to {last}")
    say(f"last upload  {timestamp_text(part[-1].uploaded_ms)}, epoch {part[-1].epoch}")


def _print_findings(chain: Chain) -> None:
    for finding in chain.findings:
        colour = "red" if finding.kind.is_damage else "blue"
        say(f" {finding.name}: {finding.text}", label=str(finding.kind), colour=colour)
