"""The error tree, the protocol's codes and the gRPC table say the same."""

from __future__ import annotations

import pytest

from aerobee.runtime import errors
from aerobee.runtime.rpc import STATUS
from aerobee.v1 import common_pb2

NOT_ON_THE_WIRE = {errors.Unreachable.code}
CLASSES = errors.error_classes()


def test_every_refusal_of_the_protocol_has_one_class_and_the_other_way_round() -> None:
    refusals = {code for code in common_pb2.Code.values() if code >= 100}
    assert set(CLASSES) - NOT_ON_THE_WIRE == refusals


@pytest.mark.parametrize("code", sorted(set(CLASSES) - NOT_ON_THE_WIRE - {399}))
def test_a_class_is_named_as_its_code(code: int) -> None:
    name = common_pb2.Code.Name(code).replace("_", "").casefold()
    assert CLASSES[code].__name__.casefold() == name


def test_every_class_has_a_grpc_status() -> None:
    assert set(STATUS) == set(CLASSES.values())


def test_a_code_gives_its_class_back_and_an_unknown_one_the_base() -> None:
    assert type(errors.error_from_code(205, "x")) is errors.DuplicateBroker
    assert type(errors.error_from_code(12_345, "x")) is errors.MqError


@pytest.mark.parametrize("code", [100, 106, 207, 12_345])
def test_an_error_without_a_reason_is_a_sentence_all_the_same(code: int) -> None:
    error = errors.error_from_code(code, "")
    assert str(error).startswith(f"{type(error).__name__}, and no reason was given: ")
