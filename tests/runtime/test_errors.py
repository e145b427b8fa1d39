"""The error tree, the protocol's codes and the gRPC table say the same."""

from __future__ import annotations

import pytest

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.own_protocol import (
    ERRORS,
    code_of,
    error_from_call,
    error_from_code,
    say_error,
)
from aerobee.runtime import errors
from aerobee.v1 import common_pb2

NOT_ON_THE_WIRE = {ERRORS[errors.Unreachable].code}
CLASSES = {said.code: kind for kind, said in ERRORS.items()}


def kinds(error: type[errors.AerobeeError]) -> set[type[errors.AerobeeError]]:
    """The error and all its heirs in the tree that is for every protocol."""
    found = {error} if getattr(errors, error.__name__, None) is error else set()
    return found.union(*(kinds(heir) for heir in error.__subclasses__()))


def test_every_refusal_of_the_protocol_has_one_class_and_the_other_way_round() -> None:
    refusals = {code for code in common_pb2.Code.values() if code >= 100}
    assert set(CLASSES) - NOT_ON_THE_WIRE == refusals


@pytest.mark.parametrize("code", sorted(set(CLASSES) - NOT_ON_THE_WIRE - {399}))
def test_a_class_is_named_as_its_code(code: int) -> None:
    name = common_pb2.Code.Name(code).replace("_", "").casefold()
    assert CLASSES[code].__name__.casefold() == name


def test_the_table_has_every_error_once() -> None:
    assert set(ERRORS) == kinds(errors.AerobeeError)
    assert len(CLASSES) == len(ERRORS)


def test_an_error_that_a_client_derives_is_said_as_what_it_derives_from() -> None:
    class Forked(errors.NotMaster): ...

    assert code_of(Forked("x")) == common_pb2.NOT_MASTER


def test_a_code_gives_its_class_back_and_an_unknown_one_the_base() -> None:
    assert type(error_from_code(205, "x")) is errors.DuplicateBroker
    assert type(error_from_code(12_345, "x")) is errors.AerobeeError


@pytest.mark.parametrize(
    ("resource", "told"),
    [("Topic:orders", "Topic:orders"), ("Topic:größe", ""), ("Topic:" + "a" * 1_000, ""), ("", "")],
    ids=["a name", "not ASCII", "too long", "none"],
)
def test_a_refusal_names_its_resource_beside_its_sentence(resource: str, told: str) -> None:
    said = say_error(errors.AccessDenied("user shop may not", resource=resource))
    heard = error_from_call(CallError(said.status, said.message, trailers=said.trailers), "host:1")
    assert isinstance(heard, errors.AccessDenied)
    assert (str(heard), heard.resource) == ("user shop may not", told)


@pytest.mark.parametrize("code", [100, 106, 207, 12_345])
def test_an_error_without_a_reason_is_a_sentence_all_the_same(code: int) -> None:
    error = error_from_code(code, "")
    assert str(error).startswith(f"{type(error).__name__} without a reason: ")
