"""How many examples a property test takes: few and always the same in `make test`, many and random
ones in `make search`."""

from __future__ import annotations

from hypothesis import Phase, settings

EXAMPLES = 100
"""Of a test that says nothing else; those that do give their number to `examples`."""
SEARCH_FACTOR = 20


def register_profiles() -> None:
    """`fixed`: the same examples on each machine. `search`: others each time, which are also kept
    in `.hypothesis`, so that a failure comes first the next time. `unshrunk`: as `fixed`, for whom
    the first failure is enough: no smaller one is looked for, which may take minutes."""
    settings.register_profile(
        "fixed", deadline=None, print_blob=True, max_examples=EXAMPLES, derandomize=True
    )
    settings.register_profile(
        "unshrunk",
        settings.get_profile("fixed"),
        phases=(Phase.explicit, Phase.generate),
    )
    settings.register_profile(
        "search",
        deadline=None,
        print_blob=True,
        max_examples=EXAMPLES * SEARCH_FACTOR,
        derandomize=False,
    )


def examples(count: int) -> int:
    """What a test passes as `max_examples`, for `count` examples in `make test`."""
    return count * settings().max_examples // EXAMPLES
