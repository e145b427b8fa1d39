"""How many examples a property test takes: few and always the same in `make test`, twice as many in
`make test-thorough`, many and random ones in `make search`."""

from __future__ import annotations

from hypothesis import Phase, settings

EXAMPLES = 100
"""Of a test that says nothing else; those that do give their number to `examples`."""
FIXED_PART = 2
"""What is always the same finds what a change has broken or never will: in `make test`, half."""
SEARCH_FACTOR = 20


def register_profiles() -> None:
    """`whole`: the same examples on each machine. `fixed`: a part of them. `search`: others each
    time, which are also kept in `.hypothesis`, so that a failure comes first the next time.
    `unshrunk`: as `whole`, for whom the first failure is enough: no smaller one is looked for,
    which may take minutes."""
    settings.register_profile(
        "whole", deadline=None, print_blob=True, max_examples=EXAMPLES, derandomize=True
    )
    settings.register_profile(
        "fixed", settings.get_profile("whole"), max_examples=EXAMPLES // FIXED_PART
    )
    settings.register_profile(
        "unshrunk",
        settings.get_profile("whole"),
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
    """What a test passes as `max_examples`, for `count` examples in `make test-thorough`."""
    return count * settings().max_examples // EXAMPLES
