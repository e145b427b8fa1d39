"""docs/configuration.md and its parts say of every setting what its class says, and all of it."""

from __future__ import annotations

import pytest

from aerobee.cli.config_reference import SERVICES, ServiceKind
from aerobee.cli.field_texts import field_texts, unit_of
from aerobee.runtime.config import Change, Key, keys_of
from docs.site.reference_pages import DOCS, REGENERATE, configuration_pages

TEXTS = {kind.name: field_texts(kind.config) for kind in SERVICES}
KEYS = [(kind, key) for kind in SERVICES for key in keys_of(kind.config)]


def test_the_pages_are_what_the_classes_say() -> None:
    for path, text in configuration_pages().items():
        is_fresh = path.is_file() and path.read_text("utf-8") == text
        assert is_fresh, f"make {path.name} anew: {REGENERATE}"


@pytest.mark.parametrize(
    ("kind", "key"), KEYS, ids=[f"{kind.name}-{key.name}" for kind, key in KEYS]
)
def test_a_key_has_its_sentence_its_unit_and_its_cost(kind: ServiceKind, key: Key) -> None:
    """Written below its field: a text, `Costs:`, and `Unit:` where its name does not say it."""
    text = TEXTS[kind.name][key.name]
    assert text.sentence.endswith((".", ")")), "a sentence"
    assert text.costs.endswith("."), "what it costs"
    assert unit_of(key, text), "its unit"
    page = DOCS / "reference" / f"configuration-{kind.name}.md"
    assert f"| `{key.name}` |" in page.read_text("utf-8")


def test_only_the_log_changes_while_a_service_runs() -> None:
    """What SIGHUP applies is `Reload` of the service's command; the page must not promise more."""
    live = {key.name for _, key in KEYS if key.change is Change.LIVE}
    assert live == {"log.format", "log.level", "log.repeats_per_s_max"}
