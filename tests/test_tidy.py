"""What a reviewer would say twice, said by a test: layers, import fences, file heads, lengths."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import pytest

from tests.mutants.entries import MUTANTS
from tests.mutants.mutant import Mutant, Tree, what_is_stale
from tests.support.private_reaches import may_reach, reaches_in
from tests.support.product_sources import ROOT, Source, product_paths, product_sources
from tests.support.source_trees import source_trees

# Which packages each package, or which of their parts, may import. Arrows never point back.
LAYERS: dict[str, frozenset[str]] = {
    "v1": frozenset(),
    "runtime": frozenset(),
    "rpc": frozenset({"runtime"}),
    "domain": frozenset({"runtime"}),
    "store": frozenset({"runtime"}),
    "access": frozenset({"runtime", "rpc", "domain"}),
    "cluster_view": frozenset({"access", "v1", "runtime", "rpc", "domain"}),
    "remoting_core": frozenset(),
    "rocketmq_api": frozenset(
        {"access", "cluster_view", "rpc", "runtime", "domain", "store.format"}
    ),
    "rocketmq_remoting": frozenset(
        {
            "access",
            "cluster_view",
            "domain",
            "remoting_core",
            "rocketmq_api",
            "runtime",
            "store.format",
        }
    ),
    "nameserver": frozenset(
        {
            "access",
            "cluster_view",
            "domain",
            "remoting_core",
            "rocketmq_api",
            "rocketmq_remoting",
            "rpc",
            "runtime",
            "v1",
        }
    ),
    "broker": frozenset(
        {
            "access",
            "cluster_view",
            "domain",
            "remoting_core",
            "rocketmq_api",
            "rocketmq_remoting",
            "rpc",
            "runtime",
            "store",
            "v1",
        }
    ),
    "client_core": frozenset(
        {"access", "cluster_view", "v1", "runtime", "rpc", "domain", "store.format"}
    ),
    # Loaded by those who want it; no client knows of it.
    "otel": frozenset(
        {
            "client_core",
            "cluster_view",
            "consumer_client",
            "producer_client",
            "runtime",
            "domain",
            "store.format",
        }
    ),
    # What users import; nothing of the product does.
    "__init__.py": frozenset(
        {
            "errors",
            "access",
            "client_core",
            "cluster_view",
            "consumer_client",
            "producer_client",
            "runtime",
            "rpc",
            "domain",
        }
    ),
    "errors.py": frozenset({"client_core", "cluster_view", "producer_client", "runtime"}),
    "producer_client": frozenset(
        {"access", "client_core", "cluster_view", "v1", "runtime", "rpc", "domain", "store.format"}
    ),
    "consumer_client": frozenset(
        {"access", "client_core", "cluster_view", "v1", "runtime", "rpc", "domain", "store.format"}
    ),
    # Frameworks that bring their own way of writing workers; nothing of the product knows them.
    "integrations": frozenset(
        {
            "access",
            "client_core",
            "cluster_view",
            "consumer_client",
            "domain",
            "producer_client",
            "rpc",
            "runtime",
            "store.format",
        }
    ),
    "offset_audit": frozenset(
        {
            "client_core",
            "cluster_view",
            "v1",
            "runtime",
            "rpc",
            "domain",
            "store.engine.queues.queue_ends",
            "store.format",
        }
    ),
    "cli": frozenset(
        {
            "offset_audit",
            "v1",
            "runtime",
            "rpc",
            "domain",
            "store",
            "access",
            "nameserver",
            "broker",
            "cluster_view",
            "client_core",
            "producer_client",
            "consumer_client",
            "bench",
            "console",
        }
    ),
    # Pages on the clients' administration, in the words of the command line; no wire.
    "console": frozenset(
        {
            "access",
            "cli.cluster_picture",
            "cli.moments",
            "cli.queue_places",
            "cli.retry_words",
            "client_core",
            "cluster_view",
            "domain",
            "runtime",
        }
    ),
    "testing": frozenset(
        {
            "runtime",
            "rpc",
            "domain",
            "store",
            "nameserver",
            "broker",
            "client_core",
            "producer_client",
            "consumer_client",
        }
    ),
    "bench": frozenset(
        {
            "v1",
            "runtime",
            "rpc",
            "domain",
            "store",
            "broker",
            "cluster_view",
            "client_core",
            "producer_client",
            "consumer_client",
            "offset_audit",
            "cli",
        }
    ),
}

# What runs in a node, where strangers can make thousands of calls wait.
SERVED = (
    "access/",
    "broker/",
    "cluster_view/",
    "domain/",
    "nameserver/",
    "remoting_core/",
    "rocketmq_api/",
    "rocketmq_remoting/",
    "rpc/",
    "runtime/",
    "store/",
)
CLIENTS = ("cluster_view/", "client_core/", "producer_client/", "consumer_client/")
TOOLS = ("cli/", "bench/", "offset_audit/")

# Modules that only the named places may import (prefixes of paths below a source root's `aerobee/`
# folder). What speaks to others over the wire are the edges: behind them nothing knows a protocol.
FENCES: dict[str, tuple[str, ...]] = {
    "grpc": (
        "rpc/serving.py",
        "rpc/call_border.py",
        "rpc/own_engine.py",
        "rpc/grpcio_engine.py",
        "rpc/health_server.py",
        "nameserver/etcd",
        "nameserver/access_service.py",
        "nameserver/service.py",
        "broker/edge/",
        "bench/",
    ),
    "aerobee.v1": (
        "broker/edge/",
        "broker/cluster/",
        "nameserver/access_service.py",
        "nameserver/app.py",
        "nameserver/broker_session.py",
        "nameserver/convert.py",
        "nameserver/request_limits.py",
        "nameserver/rocketmq.py",
        "nameserver/service.py",
        "nameserver/sessions.py",
        *CLIENTS,
        *TOOLS,
    ),
    "apache.rocketmq": ("rocketmq_api/",),
    "google.protobuf": (
        "rocketmq_api/",
        "rpc/call_border.py",
        "rpc/reflection.py",
        "rpc/request_limits.py",
        "rpc/standard_limits.py",
        "broker/edge/",
        "nameserver/etcd",
        *CLIENTS,
        *TOOLS,
    ),
    "etcd3": ("nameserver/etcd",),
    "numpy": (
        "store/format/",
        "store/engine/",
        "broker/reading/tag_filter.py",
        "broker/reading/sql_filter.py",
        "broker/timers/",
        "broker/delayed/apache_",
        "store/repair/",
        "offset_audit/",
        "bench/",
        "cli/",
    ),
    "obstore": ("broker/tier/cloud_objects.py",),
    "opentelemetry": ("otel/",),
    "pyspark": ("offset_audit/", "bench/"),
    "pyarrow": ("offset_audit/", "bench/"),
    "cryptography": ("access/sealing.py", "cli/local_cluster/", "rpc/tls.py"),
    "click": ("cli/", "bench/"),
    "fast_depends": ("integrations/faststream/",),
    "faststream": ("integrations/faststream/",),
    "jinja2": ("console/", "offset_audit/outputs/report/"),
    "starlette": ("console/",),
    "taskiq": ("integrations/taskiq.py",),
    "uvicorn": ("console/",),
    "rich": ("cli/", "bench/"),
}

# No event loop and no threads where state must be decided by pure, synchronous code.
LOOP_FREE = (
    "store/format/",
    "domain/sql_filter/",
    "access/",
    "store/engine/",
    "broker/timers/",
    "broker/pop/",
    "rocketmq_api/clients/",
    "rocketmq_api/receiving/",
    "rocketmq_api/routes/",
    "rocketmq_api/rules/",
    "rocketmq_api/sending/",
    "store/repair/",
    "consumer_client/strategies.py",
)

# What all protocols of RocketMQ share, and all that it knows of ours: it knows none of them.
RULES_KNOW = (
    "aerobee.domain.",
    "aerobee.rocketmq_api.rules.",
    "aerobee.runtime.errors.",
    "aerobee.store.format.",
)
SHARED_BY_PROTOCOLS: dict[str, tuple[str, ...]] = {
    "rocketmq_api/rules/": RULES_KNOW,
    "rocketmq_api/ports.py": (*RULES_KNOW, "aerobee.cluster_view.route."),
}

# Tests that still reach into privates of the product, and how often: these numbers only fall. What
# a feature holds it says in a statistic, a `repr`, a metric or a listing; a fake is passed in.
PRIVATE_REACHES: dict[str, int] = {
    "client_core/test_same_arguments.py": 1,
    "consumer_client/test_processing.py": 1,
    "consumer_client/test_wrong_values.py": 2,
    "producer_client/test_sending.py": 3,
    "rpc/core/fuzz_client.py": 2,
    "simulation/cluster/process_loop.py": 2,
    "simulation/cluster/transacting.py": 1,
    "support/loop_wakes.py": 1,
}

# Tests that still ask the composition of a broker (`broker.wiring`) for one of its parts, and how
# often: these numbers only fall, too. Ask its calls and figures, a feature, or what its folder
# holds; a part that only a test needs is declared by a feature of that test.
WIRING_REACHES: dict[str, int] = {
    "broker/edge/test_rocketmq_api.py": 1,
    "broker/edge/test_rocketmq_passing.py": 1,
    "broker/observe/test_unread_told_four_ways.py": 1,
    "broker/transactions/test_checks.py": 1,
    "broker/transactions/test_checks_elsewhere.py": 1,
}

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600


@pytest.fixture(scope="module")
def sources() -> Sequence[Source]:
    return product_sources()


def test_a_package_imports_only_the_layers_below_it(sources: Sequence[Source]) -> None:
    wrong = []
    for source in sources:
        package = source.name.split("/")[0]
        allowed = LAYERS[package] | {package}
        for module in source.imports:
            parts = module.split(".")
            names = {".".join(parts[1:end]) for end in range(2, len(parts) + 1)}
            if parts[0] == "aerobee" and not names & allowed:
                wrong.append(f"{source.name} must not import {module}")
    assert wrong == []


def test_special_modules_stay_behind_their_fences(sources: Sequence[Source]) -> None:
    wrong = []
    for source in sources:
        for module in source.imports:
            first = module.split(".")[0]
            is_outside = any(
                f"{module}.".startswith(f"{fenced}.") and not source.name.startswith(places)
                for fenced, places in FENCES.items()
            )
            is_loop = first in {"asyncio", "threading"} and source.name.startswith(LOOP_FREE)
            if is_outside or is_loop:
                wrong.append(f"{source.name} must not import {module}")
    assert wrong == []


@pytest.mark.parametrize("place", SHARED_BY_PROTOCOLS)
def test_what_protocols_of_rocketmq_share_knows_none_of_them(
    sources: Sequence[Source], place: str
) -> None:
    shared = [source for source in sources if source.name.startswith(place)]
    assert shared
    wrong = [
        f"{source.name} must not import {module}"
        for source in shared
        for module in source.imports
        if module.split(".")[0] in {"aerobee", "apache", "google", "grpc"}
        and not f"{module}.".startswith(SHARED_BY_PROTOCOLS[place])
    ]
    assert wrong == []


def test_no_refusal_by_the_rules_is_missed_for_want_of_a_code() -> None:
    """`codes.Refused` is only a part of what is refused."""
    folder = ROOT / "rocketmq_api" / "aerobee" / "rocketmq_api"
    wrong = [
        path.name
        for path, tree in source_trees(sorted(folder.rglob("*.py")))
        if any(
            isinstance(node, ast.ImportFrom)
            and node.module == "aerobee.rocketmq_api.codes"
            and any(alias.name == "Refused" for alias in node.names)
            for node in ast.walk(tree)
        )
        and re.search(r"(except|suppress\() ?\(?Refused\b", path.read_text())
    ]
    assert wrong == []


def test_each_file_opens_with_what_it_is_for(sources: Sequence[Source]) -> None:
    assert [source.name for source in sources if not source.docstring] == []


def test_each_file_is_short_enough_for_one_idea(sources: Sequence[Source]) -> None:
    long = [source.name for source in sources if source.lines > FILE_LINES_MAX]
    assert long == []


def test_functions_fit_on_one_screen(sources: Sequence[Source]) -> None:
    wrong = []
    for source in sources:
        for node in source.functions:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                wrong.append(f"{source.name}: {node.name} has {lines} lines")
    assert wrong == []


def test_no_state_lives_in_modules(sources: Sequence[Source]) -> None:
    """Module-level dicts, lists and sets are constants: no function changes them."""
    assert [source.name for source in sources if source.uses_global] == []


def test_no_function_keeps_a_cache_in_its_module(sources: Sequence[Source]) -> None:
    """An owner holds it, who also knows when it is stale."""
    wrong = [
        f"{source.name}: {node.name}"
        for source in sources
        for node in source.functions
        for decorator in node.decorator_list
        if "cache" in ast.unparse(decorator).split(".")[-1]
    ]
    assert wrong == []


def test_what_calls_wait_for_together_is_left_without_a_search() -> None:
    """asyncio's locks search a list for who leaves; those of `runtime/waiting.py` do not."""
    wrong = [
        f"{name}: {found}"
        for name, path in product_paths()
        if name.startswith(SERVED)
        for found in re.findall(
            r"asyncio\.(?:Lock|Condition|Barrier|\w*Semaphore)\b", path.read_text("utf-8")
        )
    ]
    assert wrong == []


def test_no_test_reaches_into_more_privates_than_it_did(sources: Sequence[Source]) -> None:
    """A rename inside one class must not break tests of another room."""
    privates = frozenset().union(*(source.privates for source in sources))
    tests = ROOT / "tests"
    paths = [path for path in sorted(tests.rglob("*.py")) if may_reach(path.read_text("utf-8"))]
    found = {
        path.relative_to(tests).as_posix(): count
        for path, tree in source_trees(paths)
        if (count := len(list(reaches_in(tree, privates))))
    }
    assert found == PRIVATE_REACHES, "ask for what is public, and lower the number if it has fallen"


def test_no_test_asks_the_composition_of_a_broker_for_more_parts_than_it_did() -> None:
    """A part that moves must not break tests of what it does."""
    tests = ROOT / "tests"
    paths = [
        path
        for path in sorted(tests.rglob("*.py"))
        if ".wiring" in path.read_text("utf-8") and path.name != "conftest.py"
    ]
    found = {
        path.relative_to(tests).as_posix(): count
        for path, tree in source_trees(paths)
        if (
            count := sum(
                isinstance(node, ast.Attribute) and node.attr == "wiring" for node in ast.walk(tree)
            )
        )
    }
    assert found == WIRING_REACHES, "lower the number if it has fallen"


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_known_error_still_fits_the_code_and_names_tests_that_exist(
    mutant: Mutant, tree: Tree
) -> None:
    """After a change of its lines: say it anew, or `make mutants` tells nothing of them."""
    assert what_is_stale(mutant, tree) == []


def test_known_errors_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_one_root_alone_opens_the_package() -> None:
    """Its `__init__.py` extends the path by the other roots; a second one would hide it or be
    hidden by it."""
    assert [
        root.name for root in ROOT.iterdir() if (root / "aerobee" / "__init__.py").exists()
    ] == ["client_core"]
