"""What replication promises holds in clusters with faults, and what is promised of messages that
wait, fail, are received by POP or are of transactions; broken ones are caught.

`make simulation` runs 200,000 of them.
"""

from __future__ import annotations

import pytest

from tests.simulation.cluster.campaign import CAMPAIGN
from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.scenario import FIRST_HANG, run_seed

pytestmark = pytest.mark.timeout(600)
"""They take processor time alone, of which a busy machine has little."""

SEEDS = 300
"""A few seconds' worth, and enough for errors that no other quick test sees."""
MUTANT_SEEDS_MAX = 2_000
WAITING = ("lost-roll", "repeated-move", "attempt-not-journalled", "move-not-journalled")
"""Errors in what waits or fails, which happens in odd seeds; the others are faster."""
POPPED = (
    "pop-answers-unwritten",
    "pop-hands-out-unwritten",
    "pop-overtaken-retry",
    "pop-stale-handle",
)
"""Errors in what is received by POP, which happens in every eighth seed."""
TRANSACTED = (
    "half-taken-unread",
    "end-not-journalled",
    "end-answered-early",
    "commit-not-finished",
    "finished-commit-forgotten",
    "check-of-what-ended",
    "set-aside-lost",
)
"""Errors in transactions, likewise; theirs are the seeds in the middle between those."""
FIRST_SEED_OF = {
    "lease-from-answer": 100,
    "other-epoch-counts": 1_800,
    "deletes-under-holders": 1_300,
    "pop-hands-out-unwritten": 1_112,
    "unclean-unrecorded": 3_279_276,
    "half-taken-unread": 2_009_204,
    "commit-not-finished": 44,
    "finished-commit-forgotten": 892,
    "check-of-what-ended": 812,
}
"""Of mutants that no earlier seed catches, so that those are not run for nothing."""
NO_SEED_KNOWN = ("snapshot-before-log",)
"""Seed 8,763 caught it until a slave stored and acknowledged a part in one turn. To look for
another: `python -m tests.simulation cluster --mutant snapshot-before-log --seeds 40000`."""
ONCE_WRONG = (
    *(365, 595, 1060, 1984, 2305, 3688, 9128, 10175, 16512, 48469, 63942, 87545, 99560),
    *(2_008_756, 2_009_204, 2_023_452, 2_031_300, 3_022_796, 3_209_532),
    *(3_279_276, 3_303_084, 3_462_300, 3_902_076, 3_953_580, 3_988_684),
)
"""Seeds beyond those that found something: a snapshot ahead of its log, a mover that never
rested, transactions that stood still after a hand-over in vain, a committed offset that stayed
behind what POP had finished, a log that was removed before it was written down that its
messages had moved, one delivery too many after a slow read, a clean election that counted as
unclean, a log that was removed under a delivery that a full disk had stopped, a queue that was
granted while its offset was being deleted, leases of a lost epoch that had the numbers of the
next one's, transactions that retention had removed before their ends were lost, a half message
that was stored again by a master that had not read its log (two seeds), between these
transactions that were forgotten when a lossy election lost their ends, a hand-over that was called
off while transactions were being left, an empty log that was elected while the disk of the full one
hung, a log of an epoch that an unclean election passed over, for which an operator was missing (two
seeds), forgotten transactions whose ends stood in the rest of the log that a second lossy election
brought back, a heartbeat that a paused nameserver read too late (two seeds), two replicas of which
older copies were put back at once, offsets that the simulation left ahead of a queue that a lossy
election had cut, and a committed offset that stayed behind what copies had replaced."""


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SEEDS // 10, id="tens"),
        pytest.param(SEEDS, id="hundreds", marks=pytest.mark.thorough),
    ],
)
def test_no_promise_is_broken_in_many_clusters(count: int) -> None:
    seeds = [*range(count), *range(FIRST_HANG, FIRST_HANG + count // 4)]
    for seed in CAMPAIGN.run_seeds(seeds, failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_no_promise_is_broken_where_one_was(seed: int) -> None:
    run_seed(seed)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each not in NO_SEED_KNOWN])
def test_a_cluster_that_is_broken_on_purpose_is_caught(mutant: str) -> None:
    first = 1 if mutant in WAITING else FIRST_SEED_OF.get(mutant, 0)
    if mutant in TRANSACTED:
        first = max(4, first)
    every = 8 if mutant in (*POPPED, *TRANSACTED) else 2
    CAMPAIGN.first_caught(mutant, range(first, first + MUTANT_SEEDS_MAX, every))


def test_a_seed_gives_the_same_run_every_time() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        run_seed(9, trace=trace.append)
    assert first == second
    assert any("elected" in line for line in first)


def test_a_failing_seed_is_told_with_all_that_repeats_it() -> None:
    mutant = "reads-unconfirmed"
    seed = CAMPAIGN.first_caught(mutant, range(20))
    told = CAMPAIGN.describe_failure(seed, mutant)
    assert f"python -m tests.simulation cluster --seed {seed} --trace --mutant {mutant}" in told
    assert "Violation: I5" in told
    assert "elected" in told
