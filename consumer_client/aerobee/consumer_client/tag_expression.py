"""Which tags a subscription wants, compared as text. PURE.

Owns: reading `a || b`, and the second filter. The broker filters by the tag's hash, which two tags
may share; the client compares the tags themselves.
"""

from __future__ import annotations

from aerobee.runtime.errors import FilterIllegal

ALL_TAGS = "*"
SEPARATOR = "||"


def parse_tag_expression(expression: str) -> frozenset[str] | None:
    """The wanted tags; None wants every message.

    Raises:
        FilterIllegal: no tag in it, or `*` beside other tags.
    """
    if not isinstance(expression, str):
        raise FilterIllegal(
            f"a tag expression is text, not {type(expression).__name__}; write 'a || b', or '*'"
        )
    text = expression.strip()
    if text in ("", ALL_TAGS):
        return None
    tags = {tag for part in text.split(SEPARATOR) if (tag := part.strip())}
    if not tags:
        raise FilterIllegal(
            f"the tag expression {text[:40]!r} names no tag; write 'a || b', or '*' for all"
        )
    if ALL_TAGS in tags:
        raise FilterIllegal(
            f"the tag expression {text[:40]!r} mixes '*' with other tags; '*' stands alone"
        )
    return frozenset(tags)
