"""Tag expressions, by which consumers say which messages they want: `a || b`, `*`, empty."""

from __future__ import annotations

from aerobee.runtime.errors import FilterIllegal

ALL_TAGS = "*"
SEPARATOR = "||"
EXPRESSION_LENGTH_MAX = 16_384


def parse_tags(expression: str) -> tuple[str, ...] | None:
    """The wanted tags in the order written, each once; None means every message.

    Raises:
        FilterIllegal: no tag in it, `*` beside other tags, or unprintable characters.
    """
    wanted = expression.strip()
    if wanted in ("", ALL_TAGS):
        return None
    if len(wanted) > EXPRESSION_LENGTH_MAX:
        raise FilterIllegal(
            f"the tag expression has {len(wanted)} characters; at most {EXPRESSION_LENGTH_MAX} are "
            "allowed"
        )
    tags = tuple(dict.fromkeys(tag for part in wanted.split(SEPARATOR) if (tag := part.strip())))
    if not tags:
        raise FilterIllegal(
            f"the tag expression {wanted[:40]!r} names no tag; write 'a || b', or '*' for all"
        )
    if ALL_TAGS in tags:
        raise FilterIllegal(
            f"the tag expression {wanted[:40]!r} mixes '*' with other tags; use '*' alone"
        )
    if not all(tag.isprintable() for tag in tags):
        raise FilterIllegal(f"the tag expression {wanted[:40]!r} has unprintable characters")
    return tags
