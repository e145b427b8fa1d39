"""How many examples a property test runs: few and always the same in `make test`, twice as many in
`make test-thorough`, many random ones in `make search`."""

from __future__ import annotations

from hypothesis import Phase, settings

EXAMPLES = 100
"""Default of a test; other tests pass their number to `examples`."""
FIXED_PART = 2
"""Fixed examples find what a change breaks at once or never: `make test` runs half of them."""
SEARCH_FACTOR = 20


def register_profiles() -> None:
    """`whole`: the same examples on each machine. `fixed`: a part of them. `search`: new ones each
    time, also kept in `.hypothesis`, so that a failure comes first the next time. `unshrunk`: as
    `whole`, without searching for a smaller failure, which may take minutes."""
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
    """The `max_examples` to pass for `count` examples in `make test-thorough`."""
    return count * settings().max_examples // EXAMPLES
