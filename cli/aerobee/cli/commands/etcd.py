"""`aerobee etcd`: upkeep of the etcd that a cluster keeps its registry in."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from aerobee.cli.etcd_members import EtcdMembers, Member, MemberStatus
from aerobee.cli.failures import NEGATIVE, EnvironmentFailure, Failure
from aerobee.cli.options import json_option, wide_option
from aerobee.cli.output import print_json, print_table, remark, say
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import RegistryUnavailable

_FILE = click.Path(dir_okay=False, path_type=Path)
_MIB = 1024 * 1024


def etcd_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of `etcdctl` for endpoints and certificates, and its variables; the command
    gets `etcd`, an EtcdMembers."""

    @click.option(
        "--endpoints",
        envvar="ETCDCTL_ENDPOINTS",
        default="127.0.0.1:2379",
        show_default=True,
        metavar="HOST:PORT[,...]",
        help="Some members; the others are found by asking them (environment: ETCDCTL_ENDPOINTS).",
    )
    @click.option(
        "--cacert",
        envvar="ETCDCTL_CACERT",
        type=_FILE,
        help="PEM file of the authorities to trust (ETCDCTL_CACERT).",
    )
    @click.option(
        "--cert",
        envvar="ETCDCTL_CERT",
        type=_FILE,
        help="PEM file of a client's certificate (ETCDCTL_CERT).",
    )
    @click.option(
        "--key", envvar="ETCDCTL_KEY", type=_FILE, help="PEM file of its private key (ETCDCTL_KEY)."
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        endpoints: str,
        cacert: Path | None,
        cert: Path | None,
        key: Path | None,
        **kwargs: Any,
    ) -> Any:
        tls = _tls(cacert, cert, key)
        named = [one.strip() for one in endpoints.split(",") if one.strip()]
        if not named:
            raise click.UsageError("--endpoints names no member: give HOST:PORT[,...]")
        return command(*args, etcd=EtcdMembers(named, tls), **kwargs)

    return wrapped


def _tls(cacert: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cacert is None and cert is None:
        return None
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key belong together: give both")
    try:
        context = ssl.create_default_context(cafile=cacert)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise EnvironmentFailure(f"a certificate cannot be read: {error}") from error
    return context


@click.group()
def etcd() -> None:
    """Look after the etcd of a cluster: space, snapshots, and when backups were made."""


@etcd.command()
@etcd_options
@json_option
@wide_option
def status(etcd: EtcdMembers, as_json: bool, wide: bool) -> None:
    """Show the members, their sizes, and alarms.

    Exit code 1: a member does not answer, or there is an alarm.
    """
    rows: list[dict[str, Any]] = []
    for member in etcd.members():
        try:
            found = etcd.status(member)
        except RegistryUnavailable as error:
            rows.append(_named(member) | {"errors": [str(error)]})
            continue
        rows.append(_document(member, found))
    if as_json:
        print_json(rows)
    else:
        _show(rows, wide=wide)
    if any(row["errors"] for row in rows):
        raise click.exceptions.Exit(NEGATIVE)


def _named(member: Member) -> dict[str, Any]:
    return {"member": member.name, "endpoint": member.endpoint}


def _document(member: Member, found: MemberStatus) -> dict[str, Any]:
    return _named(member) | {
        "version": found.version,
        "leader": found.is_leader,
        "size": found.size,
        "sizeInUse": found.size_in_use,
        "errors": list(found.errors),
    }


def _show(rows: list[dict[str, Any]], *, wide: bool) -> None:
    print_table(
        ["member", "endpoint", "version", "leader", "MiB", "in use"],
        [
            [
                row["member"],
                row["endpoint"],
                row.get("version", "-"),
                {True: "yes", False: "no"}.get(row.get("leader", ""), "-"),
                _mib(row["size"]) if "size" in row else "-",
                _mib(row["sizeInUse"]) if "size" in row else "-",
            ]
            for row in rows
        ],
        droppable=("version", "in use"),
        wide=wide,
    )
    for row in rows:
        for error in row["errors"]:
            say(f"{row['member']}: {error}")


@etcd.command()
@etcd_options
@click.option(
    "--gain-min-mib",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Skip members that would return less.",
)
@json_option
def defragment(etcd: EtcdMembers, gain_min_mib: int, as_json: bool) -> None:
    """Return the space that compaction has freed.

    One member at a time, the leader last. A member does not answer while it is defragmented, so all
    members must be healthy before each one: with another member away, etcd would stop. Does not
    compact: etcd does that itself with --auto-compaction-retention.
    """
    members = etcd.members()
    order = sorted(_all_well(etcd, members), key=lambda found: found.is_leader)
    documents: list[dict[str, Any]] = []
    try:
        for planned in order:
            # As it is now: the one before has just been silent.
            (found,) = (one for one in _all_well(etcd, members) if one.member == planned.member)
            is_worth = found.gain >= gain_min_mib * _MIB
            if is_worth:
                etcd.defragment(found.member)
            after = etcd.status(found.member) if is_worth else found
            documents.append(_document(found.member, after) | {"defragmented": is_worth})
            if not as_json:
                name = (
                    f"{found.member.name}: {_mib(found.size)} MiB, {_mib(found.size_in_use)} in use"
                )
                now = f"defragmented, {_mib(after.size)} MiB now"
                say(f"{name}: {now if is_worth else 'nothing worth defragmenting'}")
    finally:
        # Also before a failure that ends the command: a program shall know which ones are done.
        if as_json and documents:
            print_json(documents)


def _all_well(etcd: EtcdMembers, members: list[Member]) -> list[MemberStatus]:
    """Raises Failure: a member is away, or there is no leader among them."""
    try:
        found = [etcd.status(member) for member in members]
    except RegistryUnavailable as error:
        raise Failure(
            f"{error}; no further member is defragmented while one is away: start it first"
        ) from error
    if not any(one.is_leader for one in found):
        raise Failure("etcd has no leader now; no further member is defragmented: try again later")
    return found


@etcd.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@etcd_options
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=48,
    show_default=True,
    help="How many snapshots to keep in the folder.",
)
@click.option(
    "--cluster",
    envvar="AEROBEE_CLUSTER",
    default="aerobee",
    show_default=True,
    help="The cluster whose metrics get the time (environment: AEROBEE_CLUSTER).",
)
@json_option
def save(folder: Path, etcd: EtcdMembers, keep: int, cluster: str, as_json: bool) -> None:
    """Save a snapshot as FOLDER/etcd-TIME.db.

    Removes the oldest ones and notes the time. Checks the snapshot by the hash that etcd sends. The
    nameservers' metrics have the age of the newest one. Restore it with `etcdutl snapshot restore`.
    """
    from aerobee.cli import etcd_backup

    begun_ms = SystemClock().now_ms()
    second = datetime.fromtimestamp(begun_ms // 1_000, UTC).strftime("%Y%m%dT%H%M%S")
    name = f"{second}.{begun_ms % 1_000:03}Z"  # Two in one second are two.
    try:
        path = _saved_of_anyone(etcd, folder, name)
        gone = etcd_backup.remove_older(folder, keep)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be written: {error.strerror}") from error
    if not as_json:
        say(f"saved {path}, {_mib(path.stat().st_size)} MiB")
        if gone:
            say(f"removed {len(gone)} older")
    etcd.put(etcd_backup.note_key(cluster, "etcd"), etcd_backup.note_value(begun_ms))
    if as_json:
        print_json(
            {
                "file": str(path),
                "size": path.stat().st_size,
                "atMs": begun_ms,
                "removed": list(map(str, gone)),
            }
        )


def _saved_of_anyone(etcd: EtcdMembers, folder: Path, name: str) -> Path:
    """A snapshot of the first member that gives a whole one."""
    from aerobee.cli import etcd_backup

    *others, last = etcd.members()
    for member in others:
        try:
            return etcd_backup.save(folder, name, etcd.snapshot(member))
        except RegistryUnavailable as error:
            remark(f"{member.name}: {error}")
    return etcd_backup.save(folder, name, etcd.snapshot(last))


@etcd.command("note-backup")
@click.argument("what")
@etcd_options
@click.option(
    "--cluster",
    envvar="AEROBEE_CLUSTER",
    default="aerobee",
    show_default=True,
    help="The cluster whose metrics get the time (environment: AEROBEE_CLUSTER).",
)
@json_option
def note_backup(what: str, etcd: EtcdMembers, cluster: str, as_json: bool) -> None:
    """Note that WHAT, such as broker-a, was backed up just now.

    Run it after each successful backup that `aerobee etcd save` did not make. The nameservers'
    metrics have its age, and an alert fires after two days.
    """
    from aerobee.cli import etcd_backup

    if not what or "/" in what:
        raise click.UsageError(f"WHAT is a name without `/`, such as broker-a, not {what!r}")
    now_ms = SystemClock().now_ms()
    etcd.put(etcd_backup.note_key(cluster, what), etcd_backup.note_value(now_ms))
    if as_json:
        print_json({"what": what, "atMs": now_ms})


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f}"
