"""The Spark session of an audit: quiet, with our Python in the workers and all sources registered.

Invariants: a session opened here leaves no JVM, socket or temporary file when it is closed; one
from `spark-submit` or a notebook is used as it is, with only the necessary settings.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from aerobee.offset_audit.run.class_archive import class_archive
from aerobee.offset_audit.run.engine import SMALL_ROWS
from aerobee.offset_audit.run.exit_codes import SparkFailed
from aerobee.offset_audit.run.java import require_java
from aerobee.offset_audit.run.java_gateway import PORT, end_java, start_java
from aerobee.runtime.private_files import make_private_folder, private_opener

DEFAULT_MASTER = "local[2]"
APPLICATION = "aerobee offset audit"
SOURCES = (
    "aerobee.offset_audit.sources.live.journal",
    "aerobee.offset_audit.sources.live.offsets",
    "aerobee.offset_audit.sources.registry",
    "aerobee.offset_audit.sources.store.source",
    "aerobee.offset_audit.sources.messages",
)
"""Modules whose data sources a session knows by name."""

SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Nobody reads plans of thousands of lines, which would otherwise be written out for each
    # question.
    "spark.sql.maxPlanStringLength": "1000",
    # Partitions that a small table does not fill are merged, even if cores stay idle.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""Settings for every session, ours or not."""

SMALL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.limit.initialNumPartitions": "1000",
}
"""Nothing is compiled, nothing is replanned midway, and a few rows in many partitions are one job.
"""

TINY_ROWS = 50_000
"""Below this, one core joins tables in less time than a broadcast takes to start."""

TINY_SETTINGS = {
    **SMALL_SETTINGS,
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
}
"""Nothing is broadcast either: that would be a separate job for which the question waits."""

SUMS_SETTINGS = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    ),
}
"""Otherwise rows at hand are filtered while a question is planned, on one core, and more than once.
That pays only if none of them remain, so that everything after is optimised away."""

BRIEF_JAVA = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:MetaspaceSize=400m",
    # A single compiler gets only 48 MiB, and a JVM that has filled them breaks down.
    "-XX:ReservedCodeCacheSize=240m",
)
"""For a JVM that lives for seconds: no time is spent on what would pay off later."""

BRIEF_HEAP = ("-Xms1g", "-Xmn640m")
"""Room for what a small audit creates, so that it ends before much is collected."""

LAST_WORDS = 6
_JAVA_NOISE = re.compile(r"^(WARNING: |\s+at |Using Spark's default log4j|$)")


def open_session(
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    is_brief: bool = False,
    knows_sources: bool = True,
    java_log: Path | None = None,
) -> SparkSession:
    """A session that knows the sources `aerobee.*`, the running one if there is one.

    Args:
        master: Spark's address; None is this machine with two cores, or what `spark-submit` says.
        settings: more of Spark's own settings; they win over ours.
        is_brief: the session lives for seconds, so Java should not spend them on optimising.
        knows_sources: False where none of them is asked for by its name; it costs a Python process.
        java_log: where Java's standard error goes; None keeps it only until the session is there.

    Raises:
        NotReady: Java is missing or too old.
        SparkFailed: Spark did not start.
    """
    found = SparkSession.getActiveSession()
    session = found if found is not None else _start(master, settings or {}, is_brief, java_log)
    for key, value in SESSION_SETTINGS.items():
        if settings is None or key not in settings:
            session.conf.set(key, value)
    if knows_sources:
        register_sources(session)
    return session


def close_session(session: SparkSession) -> None:
    """Stop it, and the JVM too if we started it; the session must not be used again."""
    session.stop()
    gateway: Any = SparkContext._gateway
    if getattr(gateway, "proc", None) is not None:
        _end_gateway(gateway)


def keep_classes(session: SparkSession) -> None:
    """Let later sessions start faster, once this one has done what they will do. May take seconds;
    does nothing if it was done before."""
    gateway: Any = SparkContext._gateway
    if getattr(gateway, "proc", None) is None or session.sparkContext._jsc is None:
        return
    if (archive := class_archive(require_java())) is not None:
        archive.make(gateway)


@contextmanager
def audit_session(master: str | None = None, **options: Any) -> Iterator[SparkSession]:
    """`open_session` for a `with`; a session that already existed keeps running after it."""
    was_running = SparkSession.getActiveSession() is not None
    session = open_session(master, **options)
    try:
        yield session
    finally:
        if not was_running:
            close_session(session)


def register_sources(session: SparkSession) -> None:
    """Make `spark.read.format("aerobee.offsets")` and the others known."""
    for source in data_sources():
        session.dataSource.register(source)


def settings_for(session: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Settings that suit this many rows; afterwards the previous ones are restored."""
    if rows < TINY_ROWS:
        return _told(session, TINY_SETTINGS)
    return _told(session, SMALL_SETTINGS if rows < SMALL_ROWS else {})


def settings_for_sums(session: SparkSession) -> AbstractContextManager[None]:
    """Settings that suit sums and lists of rows at hand, none of which are left out."""
    return _told(session, SUMS_SETTINGS)


@contextmanager
def _told(session: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    before = {key: session.conf.get(key, None) for key in chosen}
    for key, value in chosen.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, earlier)


def suit_more(session: SparkSession, rows: int) -> None:
    """More rows arrive than `settings_for` was told: if they are many, switch to the settings for
    many until it ends."""
    if rows < SMALL_ROWS:
        return
    launched = session.sparkContext.getConf()
    for key in TINY_SETTINGS:
        usual = launched.get(key)
        if usual is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, usual)


def task_counts(session: SparkSession) -> tuple[int, int]:
    """Finished and known tasks of the running stages; may be called from any thread."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)


def data_sources() -> list[type[DataSource]]:
    """All sources of this package."""
    found: dict[str, type[DataSource]] = {}
    for module_name in SOURCES:
        for value in vars(import_module(module_name)).values():
            if isinstance(value, type) and issubclass(value, DataSource):
                found[value.__name__] = value
    return [source for source in found.values() if source is not DataSource]


def _start(
    master: str | None, settings: Mapping[str, str], is_brief: bool, java_log: Path | None
) -> SparkSession:
    if PORT in os.environ:
        return _join_submitted(master, settings)
    java = require_java()
    # Workers of another Python would not have this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    options = _java_options(java, is_brief, has_own_memory="spark.driver.memory" in settings)
    launched = _launch_settings(master or DEFAULT_MASTER, options)
    for key, value in {**launched, **settings}.items():
        conf.set(key, value)
    with _opened(java_log) as errors:
        try:
            context = _context(conf, start_java(conf, errors))
        except Exception as error:
            raise SparkFailed(f"Spark did not start: {_last_words(errors) or error}") from error
    return SparkSession(context)


def _context(conf: SparkConf, gateway: Any) -> SparkContext:
    try:
        return SparkContext(conf=conf, gateway=gateway)
    except BaseException:
        _end_gateway(gateway)
        raise


def _end_gateway(gateway: Any) -> None:
    # pyspark keeps it for the next session, even if its first one did not start.
    if SparkContext._gateway is gateway:
        SparkContext._gateway = None
        SparkContext._jvm = None
    gateway.shutdown()
    end_java(gateway.proc)


def _join_submitted(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """The JVM is already running; settings given to `spark-submit` stay, unless the caller
    insists."""
    builder = SparkSession.builder.appName(APPLICATION)
    for key, value in {**({"spark.master": master} if master else {}), **settings}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        raise SparkFailed(f"Spark did not start: {error}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _java_options(java: Path, is_brief: bool, *, has_own_memory: bool) -> str:
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    options = [f"-Dlog4j2.configurationFile={log_settings}"]
    if is_brief:
        options += BRIEF_JAVA if has_own_memory else (*BRIEF_JAVA, *BRIEF_HEAP)
    if (archive := class_archive(java)) is not None:
        options += archive.java_options()
    return " ".join(options)


def _launch_settings(master: str, java_options: str) -> dict[str, str]:
    found = {
        "spark.master": master,
        "spark.app.name": APPLICATION,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # Otherwise each expression makes four more JVM calls, to record its line of Python.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "aerobee-warehouse"),
        "spark.driver.extraJavaOptions": java_options,
    }
    if master.startswith("local"):
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "8",
            # Transfers rows from Python workers with a third less CPU than TCP.
            "spark.python.unix.domain.socket.enabled": "true",
            # Tables and entries name topics, groups and members: readable by the owner only.
            "spark.hadoop.fs.permissions.umask-mode": "077",
        }
    return found


@contextmanager
def _opened(java_log: Path | None) -> Iterator[IO[bytes]]:
    if java_log is None:
        with tempfile.TemporaryFile() as file:
            yield file
    else:
        make_private_folder(java_log.parent)
        with open(java_log, "a+b", opener=private_opener) as file:
            yield file


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").splitlines()
    return " / ".join([line.strip() for line in lines if not _JAVA_NOISE.match(line)][-LAST_WORDS:])
