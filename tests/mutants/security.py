"""Errors in who may do what, and in what others can read."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

SECURITY: Final = (
    # ------------------------------------------------------------------------------ access
    Mutant(
        name="operators-act-as-brokers",
        breaks="a command with the cluster secret deposes a master, or acknowledges for a slave",
        file="access/aerobee/access/gate.py",
        old="        if who is Who.BROKERS and role != BROKER:\n",
        new='        if who is Who.BROKERS and role not in (BROKER, "operator"):\n',
        tests=("tests/access/test_doors.py::test_nodes_doors_are_shut_for",),
    ),
    Mutant(
        name="sealed-secrets-of-anybody",
        breaks="who writes to etcd gives a user's secret to another",
        file="access/aerobee/access/sealing.py",
        old="decrypt(nonce, closed, name.encode())",
        new='decrypt(nonce, closed, b"")',
        tests=("tests/access/test_signatures.py::test_sealed_secrets_open_for_their_user_only",),
    ),
    Mutant(
        name="proofs-of-nodes-again",
        breaks="who sees a node's proof on the way uses it once more",
        file="access/aerobee/access/nodes.py",
        old="        if -ahead >= _WINDOW or self.seen >> -ahead & 1:\n",
        new="        if -ahead >= _WINDOW:\n",
        tests=(
            "tests/access/test_gate.py"
            "::test_a_nodes_proof_counts_once_for_its_method_and_for_a_while",
        ),
    ),
    # ------------------------------------------------------------------------------- files
    Mutant(
        name="store-left-open",
        breaks="other users of the machine read the messages of a store that was taken over",
        file="runtime/aerobee/runtime/private_files.py",
        old="    os.chmod(path, mode & ~_OTHERS)\n",
        new="",
        tests=(
            "tests/broker/test_private_store.py"
            "::test_a_store_that_is_there_is_closed_when_it_is_opened",
        ),
    ),
    Mutant(
        name="secret-in-a-log",
        breaks="who reads a nameserver's log signs in as a user",
        file="nameserver/aerobee/nameserver/access_service.py",
        old='log_event(log, "user has a new secret", user=user.name)',
        new='log_event(log, "user has a new secret", user=user.name, it=secret)',
        tests=("tests/access/test_secrets_in_logs.py::test_no_line_at_any_level_has_a_secret",),
    ),
    # ------------------------------------------------------------------------------- image
    Mutant(
        name="bill-without-what-has-no-hash",
        breaks="a package that is in the image is not in its bill of materials",
        file="deploy/image/sbom.py",
        old="        yield component\n",
        new="        if digest:\n            yield component\n",
        tests=(
            "tests/deploy/test_sbom.py"
            "::test_all_that_is_installed_is_listed_with_version_licence_and_hash",
        ),
    ),
)
