"""Errors in who may do what, and in what others can read."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

SECURITY: Final = (
    # ------------------------------------------------------------------------------ open ports
    Mutant(
        name="leaving-searches-for-the-waiter",
        breaks="a stranger's hundred thousand waiting calls freeze a node when they end",
        at="waiting.py::Waiters.wait",
        old="self._waiting.pop(waiter, None)",
        new="self._waiting = dict.fromkeys({*self._waiting} - {waiter})",
        tests=(
            "tests/runtime/test_waiting.py"
            "::test_leaving_costs_the_same_among_a_hundred_thousand_that_wait_for",
        ),
    ),
    Mutant(
        name="watches-without-limit",
        breaks="anybody fills a node with watches of its health",
        at="serving_health.py::ServingHealth._watching",
        old="own >= WATCHES_PER_CONNECTION_MAX or",
        new="",
        tests=(
            "tests/rpc/test_serving_health.py"
            "::test_a_connection_has_a_few_watches_and_always_its_check",
        ),
    ),
    Mutant(
        name="messages-inflate-while-they-wait",
        breaks="three megabytes of a stranger hold gigabytes of a node",
        at="inbox.py::Inbox.feed",
        old="self._add(Packed(message) if flag else message)",
        new="self._add(self.plain(Packed(message)) if flag else message)",
        tests=("tests/rpc/core/test_memory.py::test_compressed_messages_wait_as_they_came",),
    ),
    Mutant(
        name="methods-own-limit-after-inflating",
        breaks="a small method's request inflates to the limit of the largest",
        at="server_call.py::ServerCall._open_inbox",
        old="inbox.decompressed_bytes_max = min(inbox.decompressed_bytes_max, "
        "method.plain_bytes_max)",
        new="pass",
        tests=(
            "tests/rpc/core/test_memory.py"
            "::test_a_methods_own_limit_holds_before_its_request_is_inflated",
        ),
    ),
    Mutant(
        name="numbers-of-any-length",
        breaks="a stranger's header makes a node write a traceback, hundreds of times a second",
        at="hpack.py::_contradicts",
        old="or len(value) > _CONTENT_LENGTH_DIGITS_MAX",
        new="",
        tests=(
            "tests/rpc/core/test_heads.py"
            "::test_a_content_length_beyond_any_length_fails_its_stream",
        ),
    ),
    Mutant(
        name="parsers-errors-escape",
        breaks="what the parser of a peer's bytes raises is a traceback in the log",
        at="connection.py::Connection._receive",
        old="except Exception as error:",
        new="except ZeroDivisionError as error:",
        tests=(
            "tests/rpc/core/test_heads.py"
            "::test_whatever_a_parser_raises_ends_the_connection_with_one_line",
        ),
    ),
    Mutant(
        name="memory-for-a-length",
        breaks="a stranger who says that a message is long gets memory for it",
        at="inbox.py::Inbox.make_place",
        old="or arrived * _PLACED_SHARE < size",
        new="",
        tests=(
            "tests/rpc/core/test_long_frames.py"
            "::test_nobody_gets_memory_for_the_length_of_a_message",
        ),
    ),
    Mutant(
        name="reserved-memory-uncounted",
        breaks="messages that never end hold more of a node's memory than its limit",
        at="stream.py::Stream.feed",
        old="connection.hold_reserved(inbox.reserved_bytes - reserved_bytes)",
        new="pass",
        tests=(
            "tests/rpc/core/test_long_frames.py"
            "::test_nobody_gets_memory_for_the_length_of_a_message",
        ),
    ),
    Mutant(
        name="every-frame-may-be-long",
        breaks="a stranger's header block of any size waits for its end",
        at="parser.py::FrameParser._check_long",
        old="length > self.limits.header_block_bytes_max",
        new="False",
        tests=("tests/rpc/core/test_long_frames.py::test_frames_other_than_data_may_not_be_long",),
    ),
    Mutant(
        name="long-frames-wait-whole",
        breaks="each byte of a long frame costs as much as all before it",
        at="parser.py::FrameParser.parse",
        old="if length > _WHOLE_BYTES_MAX and kind == frames.DATA:",
        new="if False:",
        tests=(
            "tests/rpc/core/test_long_frames.py"
            "::test_small_parts_of_a_long_frame_do_not_wait_for_its_end",
        ),
    ),
    Mutant(
        name="long-frames-of-many-batches",
        breaks="a frame of tiny batches after a large one stops the loop",
        at="long_frames.py::_batches_of",
        old="if len(batches) == _BATCHES_MAX:\n    return None",
        new="",
        tests=("tests/broker/edge/test_long_frames.py::test_other_frames_are_left_to_protobuf",),
    ),
    Mutant(
        name="handshakes-without-limit",
        breaks="half-open handshakes of a stranger take a node's memory",
        at="server.py::Server.count_handshake",
        old="len(self._handshaking) >= self._handshakes_max",
        new="len(self._handshaking) >= self._connections_max",
        tests=(
            "tests/rpc/core/test_tls.py"
            "::test_half_open_handshakes_have_an_eighth_of_the_memory_and_the_oldest_makes_room",
        ),
    ),
    Mutant(
        name="old-garbage-stays",
        breaks="garbage among old objects fills the memory, and the kernel ends the node",
        at="spared_collector.py::SparedCollector.look",
        old="self._used_bytes() < self._full_bytes",
        new="self._used_bytes() >= 0",
        tests=(
            "tests/runtime/test_spared_collector.py"
            "::test_everything_is_looked_through_only_when_memory_is_short",
        ),
    ),
    Mutant(
        name="memory-beyond-the-limit",
        breaks="strangers fill a container's memory until the kernel ends the node",
        at="memory_budget.py::MemoryBudget.__init__",
        old="min(int(left * part.share), part.bytes_max)",
        new="part.bytes_max",
        tests=("tests/rpc/test_memory_budget.py::test_all_parts_together_are_less_than_the_limit",),
    ),
    # ------------------------------------------------------------------------------ access
    Mutant(
        name="operators-act-as-brokers",
        breaks="a command with the cluster secret deposes a master, or acknowledges for a slave",
        at="rights.py::check_who",
        old="who is Who.BROKERS and role != BROKER",
        new='who is Who.BROKERS and role not in (BROKER, "operator")',
        tests=("tests/access/test_gate.py::test_no_user_is_a_node_and_no_node_another",),
    ),
    Mutant(
        name="users-hear-rings",
        breaks="a user learns when messages of others' groups come",
        at="rights.py::check_who",
        old="who is Who.NODES and role not in (BROKER, NAMESERVER)",
        new='who is Who.NODES and role not in (BROKER, NAMESERVER, OPERATOR, "")',
        tests=("tests/access/test_doors.py::test_nodes_doors_are_shut_for",),
    ),
    Mutant(
        name="sealed-secrets-of-anybody",
        breaks="who writes to etcd gives a user's secret to another",
        at="sealing.py::unseal",
        old="decrypt(nonce, closed, name.encode())",
        new='decrypt(nonce, closed, b"")',
        tests=("tests/access/test_signatures.py::test_sealed_secrets_open_for_their_user_only",),
    ),
    Mutant(
        name="proofs-of-nodes-again",
        breaks="who sees a node's proof on the way uses it once more",
        at="nodes.py::_Process.take",
        old="-ahead >= _WINDOW or self.seen >> -ahead & 1",
        new="-ahead >= _WINDOW",
        tests=(
            "tests/access/test_gate.py"
            "::test_a_nodes_proof_counts_once_for_its_method_and_for_a_while",
        ),
    ),
    Mutant(
        name="brokers-speak-for-others",
        breaks="one broker registers, replicates and alters the in-sync set as another",
        at="rights.py::Rights._check_speaker",
        old="said is not None and said != self._caller.node",
        new="said is not None and self._caller.node is None",
        tests=("tests/access/test_node_identity.py::test_no_broker_speaks_for_another",),
    ),
    Mutant(
        name="any-certificate-is-a-nodes",
        breaks="who has the secret and one node's certificate is every other node, and an operator",
        at="node_certificates.py::NodeCertificates.check",
        old="needed not in uris",
        new="not uris",
        tests=(
            "tests/access/test_node_identity.py"
            "::test_a_certificate_must_name_the_node_that_proves_itself",
        ),
    ),
    Mutant(
        name="withdrawn-authorities-stay",
        breaks="streams of those whose authority was taken out of the file go on for ever",
        at="tls.py::FollowedTls.distrusts",
        old="tls is not None and authority_of(tls) in self._withdrawn",
        new="tls is not None and authority_of(tls) is None",
        tests=(
            "tests/rpc/core/test_tls.py"
            "::test_a_server_ends_calls_of_those_it_trusts_no_more_and_no_others",
        ),
    ),
    Mutant(
        name="client-ids-of-anybody",
        breaks="a user without rights reads, keeps and releases messages by another's client id",
        at="table.py::client_key",
        old='f"{user}/{client_id}" if user else client_id',
        new="client_id",
        tests=(
            "tests/broker/edge/test_client_identity.py"
            "::test_a_question_never_reaches_another_user_with_the_producers_client_id",
        ),
    ),
    Mutant(
        name="users-stay-at-the-first-node",
        breaks="the same as before, for calls that a node passes on",
        at="caller.py::Caller.passed_on",
        old="((FORWARDED_USER_KEY, self.user),) if self.user else ()",
        new="()",
        tests=(
            "tests/broker/edge/test_client_identity.py"
            "::test_the_user_travels_with_a_call_that_a_node_passes_on",
        ),
    ),
    Mutant(
        name="users-are-who-they-say",
        breaks="a user speaks for another by saying that its call was passed on",
        at="running.py::user_of_call",
        old='rights.user_name or str(metadata.get(FORWARDED_USER_KEY, ""))',
        new='str(metadata.get(FORWARDED_USER_KEY, "")) or rights.user_name',
        tests=(
            "tests/broker/edge/test_client_identity.py"
            "::test_a_user_that_says_it_is_passed_on_for_another_is_itself",
        ),
    ),
    Mutant(
        name="questions-to-former-senders",
        breaks="who may no longer send to a topic is still told its messages",
        at="producers.py::ProducerTable.ask",
        old="may_send(topic)",
        new="may_send",
        tests=(
            "tests/rocketmq_api/test_producers.py"
            "::test_a_stream_whose_user_may_not_send_to_the_topic_now_is_never_asked",
            "tests/broker/edge/test_client_identity.py"
            "::test_who_may_no_longer_send_is_not_asked_on_a_stream_that_stays_open",
        ),
    ),
    Mutant(
        name="invented-clients-push-out-others",
        breaks="a user without rights has every consumer's messages redelivered",
        at="table.py::ClientTable._make_room",
        old="self._forget(next(iter(most)))",
        new="self._forget(next(iter(self._clients)))",
        tests=(
            "tests/rocketmq_api/test_client_table.py"
            "::test_a_user_that_invents_clients_only_pushes_out_its_own",
        ),
    ),
    Mutant(
        name="lists-show-denied-topics",
        breaks="a user finds what a policy denies it in lists of everything",
        at="running.py::sight.sees",
        old="is_seen = found[name] = not rights.hides(need_of(name))",
        new="is_seen = found[name] = True",
        tests=(
            "tests/access/test_denied_topics.py"
            "::test_no_method_shows_a_denied_topic_that_was_not_named",
        ),
    ),
    Mutant(
        name="positions-show-denied-topics",
        breaks="a user reads by its position what a policy denies it",
        at="admin_service.py::AdminService.GetMessage",
        old="require_seen(self._needs.record(Record(record)))",
        new="",
        tests=(
            "tests/access/test_denied_topics.py::test_no_position_of_the_log_shows_a_denied_topic",
        ),
    ),
    Mutant(
        name="waiting-messages-of-denied-topics",
        breaks="a user reads in the broker's own queues what a policy denies it",
        at="rules.py::UserRules.decide",
        old="hiding = self._hiding(source) if need.shows_all_topics else None",
        new="hiding = None",
        tests=(
            "tests/access/test_denied_topics.py"
            "::test_queues_of_the_broker_itself_are_closed_to_whom_a_topic_is_denied",
            "tests/access/test_decisions.py::test_what_shows_all_topics_needs_that_none_is_hidden",
        ),
    ),
    Mutant(
        name="etcd-asks-for-no-certificate",
        breaks="every user of the machine writes to the etcd of `up --tls`",
        at="programs.py::_etcd_tls",
        # Without the second flag alone, etcd still asks for certificates, because of the first.
        old='f"--trusted-ca-file={tls.ca.resolve()}",\n        "--client-cert-auth",',
        new="",
        tests=(
            "tests/cli/test_up_tls.py"
            "::test_only_the_nameservers_certificate_opens_etcd_which_has_one_port",
        ),
    ),
    Mutant(
        name="emptied-audit-logs-pass",
        breaks="who empties the audit log leaves one that is intact",
        at="verification.py::raw_lines",
        old='yield RawLine(path, 0, b"", is_ended=True)',
        new="pass",
        tests=(
            "tests/runtime/test_audit_log.py"
            "::test_a_log_that_was_emptied_or_whose_last_line_was_cut_is_not_intact",
        ),
    ),
    # ------------------------------------------------------------------------------- files
    Mutant(
        name="store-left-open",
        breaks="other users of the machine read the messages of a store that was taken over",
        at="private_files.py::_close",
        old="os.chmod(path, mode & ~_OTHERS)",
        new="",
        tests=(
            "tests/broker/life/test_private_store.py"
            "::test_a_store_that_is_there_is_closed_when_it_is_opened",
        ),
    ),
    Mutant(
        name="secret-in-a-log",
        breaks="who reads a nameserver's log signs in as a user",
        at="access_service.py::AccessService.RotateUser",
        old="user=user.name",
        new="user=user.name, it=secret",
        tests=("tests/access/test_secrets_in_logs.py::test_no_line_at_any_level_has_a_secret",),
    ),
    # ------------------------------------------------------------------------------- image
    Mutant(
        name="bill-without-what-has-no-hash",
        breaks="a package that is in the image is not in its bill of materials",
        at="sbom.py::python_packages",
        old="yield component",
        new="if digest:\n    yield component",
        tests=(
            "tests/deploy/test_sbom.py"
            "::test_all_that_is_installed_is_listed_with_version_licence_and_hash",
        ),
    ),
)
