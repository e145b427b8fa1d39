"""Every example that the audit's own help and page give is understood, by the sources too."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aerobee.cli.commands.audit import audit
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.run.request import request_of
from aerobee.offset_audit.run.source_options import live_options, options_of
from aerobee.offset_audit.sources.live.journal import OffsetJournalSource
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.tables import JOURNAL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
EXAMPLE = re.compile(r"(?m)^ *(aerobee audit(?: .*)?)$")


def examples() -> list[str]:
    shells = re.findall(r"(?s)```sh\n(.*?)```", PAGE.read_text("utf-8"))
    found = [line for text in (audit.help or "", *shells) for line in EXAMPLE.findall(text)]
    return [line.strip() for line in dict.fromkeys(found)]


def test_there_are_examples_of_stores_and_of_live_clusters() -> None:
    assert any("--store" in one for one in examples())
    assert any("--nameserver" in one for one in examples())


@pytest.mark.parametrize("example", examples())
def test_an_example_is_understood_down_to_the_options_of_its_sources(example: str) -> None:
    words = shlex.split(example, comments=True)
    request = request_of(audit.make_context("audit", words[2:]).params)
    if request.is_live:
        assert live_options(request).nameservers
    for place in request.stores:
        options = options_of(request, place)
        stores = StoreOptions.parse({**options, "path": place.path})
        assert stores.names.broker_name == place.broker_name
        assert stores.names.broker_id == place.broker_id
        OffsetJournalSource({**options, "path": place.path}).reader(schema(JOURNAL))
