"""`aerobee up`: a cluster on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource

from aerobee.cli.event_loop import run_until_signal
from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster import plan as planning
from aerobee.cli.local_cluster.addresses import CLUSTER_DEFAULT, ready_document, ready_lines
from aerobee.cli.local_cluster.child import Child, ChildEnded
from aerobee.cli.local_cluster.cluster import LocalCluster, running_cluster
from aerobee.cli.local_cluster.console import LocalConsole, missing_for
from aerobee.cli.local_cluster.folder import write_document
from aerobee.cli.local_cluster.plan import ClusterPlan, Ports
from aerobee.cli.local_cluster.ports import free_numbers, free_ports
from aerobee.cli.local_cluster.sizes import SMALL, SMALLEST, note_sizes, sizes_of
from aerobee.cli.options import settings_option
from aerobee.cli.output import counted, remark, say
from aerobee.console.settings import PORT
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.machine import usable_cores
from aerobee.runtime.private_files import make_private_folder, private_opener

DATA_DEFAULT = "aerobee-data"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
PORT_MAX = 65_535
_OWN_KEYS = frozenset({"store.flush_mode", "replication.mode"})
"""Settings of brokers that options of `up` stand for."""


AUTO = 0


def _metrics_port(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """The first port; AUTO for free ones, None for none."""
    if text is None or text == "auto":
        return AUTO if text else None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= PORT_MAX):
        raise click.BadParameter(f"{text!r} is no port: use 1 to {PORT_MAX}, or no number at all")
    return int(text)


def _brokers(context: click.Context, parameter: click.Parameter, text: str) -> int:
    """The number of broker groups; `--replicas` is known already."""
    if text == "auto":
        return _brokers_of_cores(max(1, int(usable_cores())), context.params["replicas"])
    numbers = click.IntRange(1, planning.BROKERS_MAX)
    return int(numbers(text, parameter, context))


def _brokers_of_cores(cores: int, replicas: int) -> int:
    """How many broker groups the cores are good for; tells why."""
    brokers = planning.brokers_of_cores(cores, replicas)
    of_replicas = f" of {replicas} replicas each" if replicas > 1 else ""
    remark(
        f"{counted(brokers, 'broker group')}{of_replicas}: a broker uses one core, this process "
        f"may use {cores}, and one is for the nameserver, etcd and clients"
    )
    return brokers


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Folder for all data; a restart continues from it.  [default: {DATA_DEFAULT}]",
)
@click.option("--ephemeral", is_flag=True, help="Use a temporary folder and remove it at the end.")
@click.option(
    "--brokers",
    metavar="NUMBER|auto",
    callback=_brokers,
    default="1",
    show_default=True,
    help="Number of broker groups; each uses up to one core. auto: as many processes as this "
    "process may use cores, but one.",
)
@click.option(
    "--replicas",
    is_eager=True,
    type=click.IntRange(1, planning.REPLICAS_MAX),
    default=1,
    show_default=True,
    help="Processes in each broker group: a master, and slaves that take over if it dies.",
)
@click.option(
    "--replication",
    type=click.Choice(["async", "sync"]),
    default="sync",
    show_default=True,
    help="When a master with slaves acknowledges. sync: once every replica in sync has the "
    "message; async: at once.",
)
@click.option(
    "--cluster",
    default=CLUSTER_DEFAULT,
    show_default=True,
    envvar="AEROBEE_CLUSTER",
    help="The cluster's name (environment: AEROBEE_CLUSTER).",
)
@click.option(
    "--ports",
    type=click.Choice(["fixed", "auto"]),
    default="fixed",
    show_default=True,
    help="auto: any free ports, except for ports given as options.",
)
@click.option(
    "--nameserver-port",
    type=int,
    default=planning.NAMESERVER_PORT,
    show_default=True,
    help="The nameserver's port.",
)
@click.option(
    "--broker-port",
    type=int,
    default=planning.BROKER_PORT_FIRST,
    show_default=True,
    help=f"The first broker's port; each further group's is {planning.BROKER_PORT_STEP} higher, "
    "each further replica's 1 higher.",
)
@click.option(
    "--host",
    default="",
    metavar="NAME",
    help="Let clients on other machines in: listen on all addresses, and tell clients this name. "
    "etcd stays on 127.0.0.1.",
)
@click.option(
    "--outside-host",
    default="",
    metavar="NAME",
    help="Listen on a second set of ports, and tell the clients that connect there this name; see "
    f"docs/listeners.md. The nameserver's is 1 higher, a broker's {planning.OUTSIDE_STEP} higher.",
)
@click.option(
    "--metrics",
    "metrics_port",
    is_flag=False,
    flag_value="auto",
    metavar="[PORT]",
    callback=_metrics_port,
    help="Serve the metrics of the nameserver and of each broker on 127.0.0.1: on PORT and those "
    "after it, or on free ports.",
)
@click.option(
    "--etcd-port",
    type=int,
    default=planning.ETCD_PORT,
    show_default=True,
    help="etcd's port.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    default="async",
    show_default=True,
    help="When brokers acknowledge. async: once the message is in the page cache; sync: after "
    "fdatasync.",
)
@click.option(
    "--grpc-engine",
    type=click.Choice(["own", "grpcio"]),
    help="The gRPC server of the nameserver and all brokers; see `grpc.engine` in "
    "docs/configuration.md.  [default: own]",
)
@click.option(
    "--tls",
    "is_encrypted",
    is_flag=True,
    help="Encrypt everything, etcd included, with certificates of an authority made for this run.",
)
@settings_option(
    "--broker-set",
    "broker_settings",
    help="A setting for all brokers, from those in `aerobee broker --help`; repeatable.",
)
@click.option(
    "--access",
    is_flag=True,
    help="Refuse calls that no policy allows; see docs/access.md. The cluster secret is made in "
    "the data folder.",
)
@click.option(
    "--no-console",
    is_flag=True,
    help="Do not offer the console for browsers, which otherwise listens on 127.0.0.1.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A JSON file with addresses and process ids, which exists while the cluster serves.",
)
def up(
    data: Path | None,
    ephemeral: bool,
    brokers: int,
    replicas: int,
    replication: str,
    cluster: str,
    ports: str,
    nameserver_port: int,
    broker_port: int,
    host: str,
    outside_host: str,
    metrics_port: int | None,
    etcd_port: int,
    flush: str,
    grpc_engine: str | None,
    is_encrypted: bool,
    broker_settings: dict[str, str],
    access: bool,
    no_console: bool,
    ready_file: Path | None,
) -> None:
    """Run a cluster on this machine until Ctrl-C: etcd, a nameserver and brokers.

    All processes keep their data in one folder, and their logs in its subfolder logs/. A process
    that dies is restarted. Everything listens on 127.0.0.1 only, unless --host or
    --outside-host is given; the console for browsers always does.
    """
    if ephemeral and data is not None:
        raise click.UsageError("give either --ephemeral or --data, not both")
    _check_names(host, outside_host)
    if metrics_port is not None and "metrics.listen" in broker_settings:
        raise click.UsageError("give either --metrics or --broker-set metrics.listen, not both")
    settings = {
        "store.flush_mode": flush,
        **({"replication.mode": f"{replication}_master"} if replicas > 1 else {}),
        **broker_settings,
    }
    _check_keys(settings)
    chosen = planning.default_ports(
        brokers=brokers,
        replicas=replicas,
        nameserver=nameserver_port,
        broker_first=broker_port,
        etcd=etcd_port,
        with_outside=bool(outside_host),
        metrics_first=metrics_port or None,
    )
    if ports == "auto":
        chosen = _free_where_not_given(chosen, brokers=brokers, replicas=replicas)
    if metrics_port == AUTO:
        chosen = _with_free_metrics(chosen, count=brokers * replicas + 1)
    _check_numbers(chosen)
    with _folder(data, ephemeral) as folder:
        plan = ClusterPlan(
            data=folder,
            cluster=cluster,
            ports=chosen,
            grpc_engine=grpc_engine,
            is_encrypted=is_encrypted,
            broker_settings=settings,
            access=access,
            host=host,
            outside_host=outside_host,
        )
        if access:
            make_cluster_secret(plan)
        plan = _sized(plan, ephemeral, settings)
        console = None if no_console else 0 if ports == "auto" else PORT
        run_until_signal(lambda stop: _serve(plan, console, ready_file, stop))


def make_cluster_secret(plan: ClusterPlan) -> None:
    """Unless the folder has one."""
    file = plan.cluster_secret_file
    try:
        if not file.exists():
            make_private_folder(file.parent)
            with open(file, "x", opener=private_opener) as out:
                out.write(secrets.token_hex(32) + "\n")
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot write {file}: {error.strerror}; "
            "choose another --data or change its permissions"
        ) from error
    remark(f"access control is on; for all rights: export AEROBEE_CLUSTER_SECRET_FILE={file}")


async def _serve(
    plan: ClusterPlan, console_port: int | None, ready_file: Path | None, stop: asyncio.Event
) -> None:
    """`console_port`: where the console is, if that is free; None: there is none."""
    announcer = _Announcer(ready_file)
    # One that a killed cluster left behind must not be taken for ours.
    announcer.remove_ready_file()
    clock = SystemClock()
    started_s = clock.monotonic_s()
    try:
        async with running_cluster(
            plan,
            clock=clock,
            chance=system_random(),
            on_started=announcer.on_started,
            on_ended=announcer.on_ended,
        ) as cluster:
            if await _serving_before(stop, cluster):
                note_sizes(plan, plan.broker_settings)
                console = None
                if console_port is not None:
                    announcer.no_console = missing_for(plan)
                    if not announcer.no_console:
                        console = LocalConsole(plan, port=console_port)
                        announcer.console = console.address
                announcer.on_serving(cluster, clock.monotonic_s() - started_s)
                if console is not None:
                    await console.serve(stop)
                await stop.wait()
            announcer.on_stopping()
    finally:
        announcer.remove_ready_file()
    remark("stopped")


async def _serving_before(stop: asyncio.Event, cluster: LocalCluster) -> bool:
    """Wait for the cluster, but no longer than the user does; False if they gave up first."""
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(cluster.wait_serving(), name="wait-serving")
        stopped = tasks.create_task(stop.wait(), name="wait-stop")
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        stopped.cancel()
    return serving.done() and not serving.cancelled()


@dataclass(slots=True)
class _Announcer:
    """What the user and the ready file are told, and when."""

    ready_file: Path | None
    cluster: LocalCluster | None = None
    console: str = ""
    """Its address."""
    no_console: str = ""
    """Why there is none, if it was wanted."""

    def on_serving(self, cluster: LocalCluster, elapsed_s: float) -> None:
        self.cluster = cluster
        for line in ready_lines(cluster.plan, elapsed_s, self.console or self.no_console):
            say(line)
        # Last: who waits for it may read what was said.
        self._write_ready_file()
        for name, reason in cluster.not_writable.items():
            remark(f"{name} takes no messages: {reason}")

    def on_started(self, child: Child) -> None:
        if self.cluster is not None:
            remark(f"{child.name} runs again (process {child.pid}, restart {child.restarts})")
            self._write_ready_file()

    def on_ended(self, ended: ChildEnded) -> None:
        remark(ended.sentence())

    def on_stopping(self) -> None:
        self.cluster = None
        self.remove_ready_file()
        remark("stopping brokers, nameserver, etcd (Ctrl-C again: at once)")

    def remove_ready_file(self) -> None:
        if self.ready_file is not None:
            self.ready_file.unlink(missing_ok=True)

    def _write_ready_file(self) -> None:
        if self.ready_file is not None and self.cluster is not None:
            write_document(
                self.ready_file,
                ready_document(self.cluster.plan, self.cluster.pids(), self.console),
                advice="choose another --ready-file",
            )


@contextlib.contextmanager
def _folder(data: Path | None, ephemeral: bool) -> Iterator[Path]:
    """The data folder as an absolute path; a temporary one is removed at the end."""
    if not ephemeral:
        yield (data or Path(DATA_DEFAULT)).expanduser().absolute()
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="aerobee-"))
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot make a temporary folder: {error.strerror}; set TMPDIR to a writable folder"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sized(plan: ClusterPlan, ephemeral: bool, settings: Mapping[str, str]) -> ClusterPlan:
    smallest = SMALLEST if ephemeral else SMALL
    return replace(plan, broker_sizes=sizes_of(plan, smallest, settings))


def _check_names(host: str, outside_host: str) -> None:
    """Raises click.UsageError."""
    for option, name in (("--host", host), ("--outside-host", outside_host)):
        if name and not _HOST.fullmatch(name):
            raise click.UsageError(
                f"{option} takes a name or an IPv4 address without a port, not {name!r}"
            )


def _with_free_metrics(chosen: Ports, *, count: int) -> Ports:
    taken = frozenset(chosen.named().values())
    free = free_numbers(count, chance=system_random(), taken=taken)
    return replace(chosen, metrics=tuple(free))


def _free_where_not_given(chosen: Ports, *, brokers: int, replicas: int) -> Ports:
    """Any free ports, but those of `chosen` that the user named."""
    context = click.get_current_context()

    def given(parameter: str) -> bool:
        return context.get_parameter_source(parameter) is not ParameterSource.DEFAULT

    chance, taken = system_random(), frozenset(chosen.named().values())
    found = free_ports(brokers=brokers, replicas=replicas, chance=chance, taken=taken)
    found = replace(
        found,
        metrics=chosen.metrics,
        outside=tuple(
            free_numbers(
                len(chosen.outside), chance=chance, taken=taken | {*found.named().values()}
            )
        ),
    )
    if given("nameserver_port"):
        found = replace(found, nameserver=chosen.nameserver)
    if given("etcd_port"):
        found = replace(found, etcd_client=chosen.etcd_client)
    return replace(found, brokers=chosen.brokers) if given("broker_port") else found


def _check_keys(settings: Mapping[str, str]) -> None:
    """Raises click.UsageError for a key that brokers do not have."""
    # Only where a user names keys: what a broker's configuration is made of takes a while to load.
    if settings.keys() <= _OWN_KEYS:
        return
    from aerobee.broker.config import BrokerConfig
    from aerobee.runtime.config import keys_of, nearest

    known = {key.name: key for key in keys_of(BrokerConfig)}
    for name in settings:
        if name not in known:
            near = nearest(name, known)
            hint = near if "did you mean" in near else "; `aerobee config reference` lists them"
            raise click.UsageError(f"--broker-set: a broker has no key {name!r}{hint}")


def _check_numbers(ports: Ports) -> None:
    """Raises click.UsageError for ports that cannot be, or are used twice."""
    seen: dict[int, str] = {}
    for purpose, port in ports.named().items():
        if not 1 <= port <= PORT_MAX:
            raise click.UsageError(f"{purpose} cannot listen on port {port}: use 1 to {PORT_MAX}")
        if port in seen:
            raise click.UsageError(f"{seen[port]} and {purpose} would both listen on port {port}")
        seen[port] = purpose
