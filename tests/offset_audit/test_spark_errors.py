"""What Spark says at length is told as what was meant, and ends a run with the right exit code."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aerobee.offset_audit.run.exit_codes import (
    BROKE_OFF,
    UNAVAILABLE,
    USAGE,
    SparkFailed,
    exit_code_of,
)
from aerobee.offset_audit.run.spark_errors import error_of, reason_of
from aerobee.runtime.errors import AerobeeError, InvalidArgument, Unreachable


def said(*lines: str) -> PySparkException:
    return PySparkException("\n".join(lines))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["[SOME] Spark says. SQLSTATE: 38000", "", "more"], "[SOME] Spark says."),
        (
            [
                "[X] Failed: Traceback (most recent call last):",
                "ValueError: 3 is odd",
                "SQLSTATE: 1",
            ],
            "ValueError: 3 is odd",
        ),
        (
            ["aerobee.errors.Unreachable: no answer SQLSTATE: 38000", "Other: later"],
            "no answer",
        ),
        ([""], "PySparkException"),
    ],
)
def test_the_reason_is_the_line_that_matters(lines: list[str], reason: str) -> None:
    assert reason_of(said(*lines)) == reason


def test_an_error_of_a_source_is_raised_as_what_it_was() -> None:
    away = error_of(said("aerobee.errors.Unreachable: no answer"), "the audit")
    assert (type(away), str(away), exit_code_of(away)) == (Unreachable, "no answer", UNAVAILABLE)
    bug = error_of(said("KeyError: 'x'"), "check LAG")
    assert (type(bug), str(bug)) == (SparkFailed, "check LAG failed: KeyError: 'x'")
    assert exit_code_of(bug) == BROKE_OFF


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("source", "options", "kind", "code"),
    [
        ("aerobee.registry", {"nameservers": "127.0.0.1:1"}, Unreachable, UNAVAILABLE),
        ("aerobee.offsets", {"nameservers": "127.0.0.1:1"}, Unreachable, UNAVAILABLE),
        ("aerobee.offsets", {"brokers": "h:1", "timeoutMs": "x"}, InvalidArgument, USAGE),
        ("aerobee.offsets", {"brokers": "h:1", "tls.ca": "x"}, InvalidArgument, USAGE),
    ],
)
def test_sources_that_cannot_read_say_why(
    spark: SparkSession, source: str, options: dict[str, str], kind: type[AerobeeError], code: int
) -> None:
    table = {"table": "brokers"}
    with pytest.raises(PySparkException) as raised:
        spark.read.format(source).options(**options, **table).load().collect()
    told = error_of(raised.value, "the audit")
    assert type(told) is kind
    assert exit_code_of(told) == code
    assert "Traceback" not in str(told)
    assert "SQLSTATE" not in str(told)
