"""How errors are said in apache.rocketmq.v2, and understood again by the node that forwarded."""

from __future__ import annotations

import inspect

import pytest

from aerobee.rocketmq_api.codes import (
    CODES,
    CODES_OF_REASONS,
    OK,
    Refused,
    common_status,
    error_of,
    status_of,
)
from aerobee.rocketmq_api.rules import refusals
from aerobee.rocketmq_api.rules.refusals import Reason, topic_not_found
from aerobee.runtime import errors
from apache.rocketmq.v2 import definition_pb2 as v2

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.AerobeeError)
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))


def test_the_table_has_every_error() -> None:
    assert set(CODES) == set(KINDS)


@each_kind
def test_an_error_comes_back_as_it_was_from_another_node(kind: type[errors.AerobeeError]) -> None:
    back = error_of(status_of(kind("broker 'a' is away: retry")))
    assert type(back) is kind
    assert str(back) == "broker 'a' is away: retry"


@each_kind
def test_every_error_is_said_with_its_reason(kind: type[errors.AerobeeError]) -> None:
    status = status_of(kind("it is late"))
    assert status.code == CODES[kind] != v2.OK
    assert "it is late" in status.message
    is_named = status.message != "it is late"
    assert not is_named or status.message == f"{kind.__name__}: it is late"


def test_a_class_that_derives_from_an_error_is_said_as_that_one() -> None:
    class Mine(errors.Busy):
        pass

    assert status_of(Mine("wait")) == v2.Status(code=v2.TOO_MANY_REQUESTS, message="wait")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicNotFound, v2.TOPIC_NOT_FOUND),
        (errors.GroupNotFound, v2.CONSUMER_GROUP_NOT_FOUND),
        (errors.Busy, v2.TOO_MANY_REQUESTS),
        (errors.DeadlineExceeded, v2.PROXY_TIMEOUT),
        (errors.NotEnoughReplicas, v2.HA_NOT_AVAILABLE),
        (errors.NotWritableTopic, v2.FORBIDDEN),
        (errors.MessageNotFound, v2.MESSAGE_NOT_FOUND),
        (errors.NotMaster, v2.INTERNAL_SERVER_ERROR),
        (errors.AerobeeError, v2.INTERNAL_SERVER_ERROR),
    ],
)
def test_codes_are_those_of_apaches_server(error: type[errors.AerobeeError], code: v2.Code) -> None:
    assert status_of(error("x")).code == code


@pytest.mark.parametrize("code", sorted(set(v2.Code.values()) - {v2.OK, v2.MULTIPLE_RESULTS}))
def test_every_code_of_another_node_is_passed_on(code: v2.Code) -> None:
    error = error_of(v2.Status(code=code, message="why"))
    assert error is not None
    assert status_of(error) == v2.Status(code=code, message="why")


def test_an_error_without_a_reason_gets_one() -> None:
    for code in (v2.TOPIC_NOT_FOUND, v2.ILLEGAL_TOPIC):
        error = error_of(v2.Status(code=code))
        assert str(error).endswith("without a reason")


def test_a_refusal_is_an_invalid_argument_to_those_who_know_no_codes() -> None:
    refused = Refused(v2.ILLEGAL_MESSAGE_TAG, "the tag is blank")
    assert isinstance(refused, errors.InvalidArgument)
    assert status_of(refused) == v2.Status(code=v2.ILLEGAL_MESSAGE_TAG, message="the tag is blank")


def test_every_reason_of_the_rules_has_a_code_of_its_own() -> None:
    assert list(CODES_OF_REASONS) == list(Reason)
    assert len(set(CODES_OF_REASONS.values())) == len(Reason)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: str(reason.name))
def test_a_refusal_by_the_rules_is_said_with_its_code_and_words(reason: Reason) -> None:
    status = status_of(refusals.Refused(reason, "use another one"))
    assert status == v2.Status(code=CODES_OF_REASONS[reason], message="use another one")
    back = error_of(status)
    assert back is not None
    assert status_of(back) == status


def test_a_refusal_by_another_node_keeps_its_reason() -> None:
    back = error_of(status_of(refusals.Refused(Reason.ILLEGAL_TAG, "the tag is blank")))
    assert isinstance(back, refusals.Refused)
    assert back.reason is Reason.ILLEGAL_TAG


def test_success_is_no_error() -> None:
    assert error_of(OK) is None
    assert error_of(v2.Status(code=v2.MULTIPLE_RESULTS)) is None
    assert (OK.code, OK.message) == (20_000, "OK")


def test_results_that_agree_are_one_result() -> None:
    bad = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="stale")
    assert common_status([OK, OK]) == OK
    assert common_status([bad, bad]) == bad
    assert common_status([OK, bad]).code == v2.MULTIPLE_RESULTS
    assert common_status([]).code == v2.INTERNAL_SERVER_ERROR


def test_an_unknown_topic_is_told_in_the_words_that_clients_look_for() -> None:
    status = status_of(topic_not_found("orders"))
    assert status.code == v2.TOPIC_NOT_FOUND
    assert "No topic route info in name server for the topic: orders" in status.message
