"""The search: prices equal those of whole policies, fronts, and the choice."""

import pytest

from robopolicy.costs.flops import count_step
from robopolicy.experiments.default_policies import policy_config
from robopolicy.plan import families
from robopolicy.plan.pairs import random_directions
from robopolicy.plan.resolutions import head_dims, resolutions
from robopolicy.plan.search import REFERENCE, Choice, Front, Resolution, Search, choose, undominated
from robopolicy.policies.catalogue import blank_policy

POLICIES = {
    "mask": lambda: policy_config("softmax", "stepping-stones"),
    "rank": lambda: policy_config("softmax", "stepping-stones", variant="rank"),
    "trans": lambda: policy_config("softmax", "stepping-stones", variant="trans"),
    "query": lambda: policy_config("softmax", "stepping-stones", variant="query"),
    "sweep": lambda: policy_config("softmax", "bimanual-sweep", preset="tiny", images={"image": (96, 96)}),
}


@pytest.fixture(scope="module")
def search():
    """A search in two widths of heads, over fewer sizes than usual."""
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in (
            ("SIZES", (1, 8, 64, 256)),
            ("HYBRID_SIZES", (1, 8, 32)),
            ("COEFFICIENT_SIZES", (1, 8)),
        ):
            patch.setattr(families, name, sizes)
        return Search(random_directions(1.0, 8), (8, 16))


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_prices_equal_those_of_whole_policies_and_fronts_are_monotonic(search, name):
    offered = [r for r in resolutions(POLICIES[name]()) if r.head_dim in (8, 16)]
    front = search.front(offered[len(offered) // 2])
    assert len(front.choices) > 1
    for choice in (*front.choices[::3], front.choices[-1], search.reference(front.resolution)):
        assert choice.config.attention == choice.spec
        assert count_step(blank_policy(choice.config)).total == choice.flops
        assert choice.flops > front.rest
    flops = [c.flops for c in front.choices]
    errors = [c.error for c in front.choices]
    assert flops == sorted(set(flops))
    assert errors == sorted(set(errors), reverse=True)
    assert (front.choices[-1].spec, errors[-1]) == ("softmax", 0.0)


@pytest.mark.slow
def test_mechanisms_without_an_exact_price_are_on_no_front(search, monkeypatch):
    resolution = next(
        r
        for r in resolutions(policy_config("softmax", "stepping-stones"))
        if (r.tokens, r.head_dim) == (96, 8)
    )
    # Exact prices of all mechanisms take minutes.
    monkeypatch.setitem(search._best, 8, search._best[8][::4])
    monkeypatch.setattr(search, "_estimates", {})
    quick = search.front(resolution).choices
    monkeypatch.setattr("robopolicy.plan.search.SLACK", 1e9)  # leaves out nothing
    assert [(c.spec, c.flops) for c in search.front(resolution).choices] == [(c.spec, c.flops) for c in quick]


@pytest.mark.slow
def test_the_choice_meets_the_budget_and_the_error(search):
    fronts = [
        search.front(r) for r in resolutions(policy_config("softmax", "stepping-stones")) if r.head_dim == 8
    ]
    error = search.reference(fronts[0].resolution).error
    chosen = {budget: choose(fronts, budget, error, 8)[1] for budget in (100_000, 1_500_000, 10_000_000)}
    for budget, choice in chosen.items():
        assert choice.flops <= budget
        assert choice.error <= error
    # A larger budget allows finer tokens.
    assert [c.config.tokens for c in chosen.values()] == [24, 384, 1536]
    assert choose(fronts, 300_000, 0.0, 8)[1].spec == "softmax"
    with pytest.raises(ValueError, match="budget is 1000: the least that a step takes is"):
        choose(fronts, 1000, error, 8)


@pytest.mark.parametrize(
    ("most", "widths"),
    [(0.1, (8, 8, 8)), (0.0, (8, 8, 8)), (None, (16, 4, 2))],  # without any that is exact enough, too
)
def test_of_equal_errors_the_cheapest_is_chosen(most, widths):
    config, error = policy_config("softmax", "stepping-stones"), 0.0 if most is not None else 0.5
    fronts = []
    for width, flops in zip(widths, (900, 300, 500), strict=True):
        choice = Choice("softmax", flops, error, config)
        fronts.append(Front(Resolution(config, 2, 384, None, width), 0, choice, [choice]))
    assert choose(fronts, 1000, most or 0.0, 8)[1].flops == 300


def test_where_the_policys_own_width_is_not_exact_enough_the_nearest_is_chosen():
    config, fronts = policy_config("softmax", "stepping-stones"), {}
    for width, error in ((8, 0.5), (4, 0.2), (16, 0.25), (32, 0.1)):
        choice = Choice(str(width), 500, error, config)
        fronts[width] = Front(Resolution(config, 2, 384, None, width), 0, choice, [choice])
    chosen = [
        choose([fronts[width] for width in widths], 1000, 0.3, 8)[1].spec
        for widths in ((8, 4, 16, 32), (8, 4, 32))
    ]
    assert chosen == ["16", "4"]


def test_dominated_choices_are_left_out():
    config = policy_config("softmax", "stepping-stones")
    made = [
        Choice(str(i), flops, error, config)
        for i, (flops, error) in enumerate([(3, 0.5), (1, 0.9), (2, 0.9), (4, 0.6), (3, 0.4), (9, 0.0)])
    ]
    assert [(c.flops, c.error) for c in undominated(made)] == [(1, 0.9), (3, 0.4), (9, 0.0)]


def test_resolutions_are_those_that_a_policy_allows():
    stones = policy_config("angular_hybrid(m=8, n=8)", "stepping-stones")
    assert head_dims(stones) == [8, 4, 16]
    found = list(resolutions(stones))
    assert {(r.patch, r.tokens) for r in found} == {(1, 1536), (2, 384), (4, 96), (8, 24)}
    assert {r.keep for r in found} == {0.5}
    ranked = resolutions(policy_config(stones.attention, "stepping-stones", variant="rank"))
    assert {r.keep for r in ranked} == {0.5, 0.25}  # tokens that are not kept cost nothing there
    for variant in ("query", "trans"):
        whole = resolutions(policy_config(stones.attention, "stepping-stones", variant=variant))
        assert {r.keep for r in whole} == {None}
    sweep = policy_config("softmax", "bimanual-sweep")
    assert head_dims(sweep) == [16, 8]
    assert {(r.patch, r.tokens) for r in resolutions(sweep)} == {(25, 400), (20, 625), (10, 2500)}
    # The policy's own patch is always among them.
    assert {r.patch for r in resolutions(policy_config("softmax", "bimanual-sweep", patch=50))} == {
        10,
        20,
        25,
        50,
    }


def test_the_reference_is_the_hybrid_of_the_papers():
    assert REFERENCE.spec("orthogonal") == "angular_hybrid(m=8, n=8)"
