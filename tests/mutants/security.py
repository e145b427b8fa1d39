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
        name="users-hear-rings",
        breaks="a user learns when messages of others' groups come",
        file="access/aerobee/access/gate.py",
        old="        if who is Who.NODES and role not in (BROKER, NAMESERVER):\n",
        new='        if who is Who.NODES and role not in (BROKER, NAMESERVER, OPERATOR, ""):\n',
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
    Mutant(
        name="brokers-speak-for-others",
        breaks="one broker registers, replicates and alters the in-sync set as another",
        file="access/aerobee/access/gate.py",
        old="        if said is not None and said != self._caller.node:\n",
        new="        if said is not None and self._caller.node is None:\n",
        tests=("tests/access/test_node_identity.py::test_no_broker_speaks_for_another",),
    ),
    Mutant(
        name="any-certificate-is-a-nodes",
        breaks="who has the secret and one node's certificate is every other node, and an operator",
        file="access/aerobee/access/node_certificates.py",
        old="        if needed not in uris:\n",
        new="        if not uris:\n",
        tests=(
            "tests/access/test_node_identity.py"
            "::test_a_certificate_must_name_the_node_that_proves_itself",
        ),
    ),
    Mutant(
        name="withdrawn-authorities-stay",
        breaks="streams of those whose authority was taken out of the file go on for ever",
        file="grpc_core/aerobee/grpc_core/tls.py",
        old="        return tls is not None and authority_of(tls) in self._withdrawn\n",
        new="        return tls is not None and authority_of(tls) is None\n",
        tests=(
            "tests/grpc_core/test_tls.py"
            "::test_a_server_ends_calls_of_those_it_trusts_no_more_and_no_others",
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
