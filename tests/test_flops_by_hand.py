"""FLOPs of every mechanism against counts by hand: its maps, its ranking and its attention.

Counts by hand follow the formulas of the papers: a multiply-add is 2, anything else 1 for each element.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from robopolicy.attention import attention, feature_map
from robopolicy.attention.catalogue import COUPLINGS, MECHANISMS
from robopolicy.costs.flops import count

QUERIES, KEYS, D, V = 40, 56, 8, 5
KEY = jax.random.key(0)


class Group(NamedTuple):
    """Blocks of features that share one matrix product with sums over tokens.

    Features are the products of `narrow` (None: there is one factor) and `wide` numbers. `blocks` is the
    number of kernels in the group, and `mixed` tells whether each feature of a query has a constant weight.
    """

    narrow: int | None
    wide: int
    blocks: int = 1
    mixed: bool = False


class Cost(NamedTuple):
    """The FLOPs of a mechanism.

    Attributes:
      query, key: the map of one token. groups: the groups of features. once: the part of the query map and of
      the key map that runs once per call. adapt: fitting constants to T queries and S keys. scale: the part
      of the query map, per token and once, that cancels in a row and is not computed if there is
        a single block.
    """

    query: int
    key: int
    groups: list[Group]
    once: tuple[int, int] = (0, 0)
    adapt: Callable[[int, int], int] = lambda T, S: 0
    scale: tuple[int, int] = (0, 0)


def projected(m):
    """omega.x, and half of the squared length."""
    return 2 * m * D + 2 * D + 1


def exponential(m):
    """The peak, its subtraction and exp; then the sum of peak and scale."""
    return 3 * m + 1


def positive(m):
    """The scale is minus half the square, minus log(m)/2."""
    return 2 + exponential(m)


def antithetic(m):
    return m + 2 + exponential(2 * m)


def trigonometric(m):
    return 2 * m + 1


def complex_values(m):
    """`exponential`, then cos and sin, each times the size, and the sign of a conjugate."""
    return exponential(m) + 5 * m


def complex_exponential(m):
    """From u, of D complex numbers: u.u in six parts, two projections, a phase's shift, the scale."""
    return 6 * D + 2 + 4 * m * D + m + 1 + complex_values(m)


def plain(m, features, values, scale):
    token = projected(m) + values
    return Cost(token, token, [Group(None, features)], scale=(2 * D + 1 + scale, 0))


def generalized(m):
    # Two affine functions of omega.x: a product and a sum for exponents, one sum more for phases; the scale.
    token = projected(m) + 2 * m + 3 * m + 3 + complex_values(m)
    return Cost(token, token, [Group(None, 2 * m)], (2 * m * D + 2 * m + 22,) * 2, scale=(2 * D + 5, 1))


def mixed(m):
    token = 4 * D * D + complex_exponential(m)
    return Cost(token, token, [Group(None, 2 * m)], scale=(4 * D + 4, 0))


def optimal(m):
    def adapt(T, S):
        lengths = T * 2 * D + T + 1 + S * 2 * D + 2 * S
        cross = T * D + D + 2 * S * D + 2 * D
        share = S + 1 + S
        return lengths + cross + share + 3 + 12  # and A from the mean square

    token = projected(m) + 2 * m + 2 + exponential(m)
    return Cost(token, token, [Group(None, m)], (2 * m * D + m + 7,) * 2, adapt, (2 * D + 4, 4))


def discrete(m, shifted):
    # Logarithms and signs of the coordinates, two products with the powers, a remainder, sign times size.
    token = 7 * D + 4 * m * D + m + 7 * m + 2 * m + m + exponential(m) + 1
    if not shifted:
        return Cost(token, token, [Group(None, m)], (1, 1), scale=(2, 0))
    token += D + 4 * D + 2
    return Cost(token, token, [Group(None, m)], (1, 1), lambda T, S: 2 * (T + S) * D + 6 * D, (4 * D + 4, 0))


def angular(m, n, base, features):
    # Signs of tau.x over sqrt(2n), which queries take with a minus.
    token = 2 * n * D + 2 * n + projected(m) + base + trigonometric(m)
    return Cost(token + n, token, [Group(n + 1, features + 2 * m, blocks=2, mixed=True)])


def gaussian(m, n):
    token = D + 2 * n * D + 4 * n + projected(m) + antithetic(m) + trigonometric(m)
    return Cost(token + 2 * n, token, [Group(2 * m, 2 * n + 1, mixed=True)] * 2)


def clustered(m, P, Q, features, estimate):
    """Distances to the centres, and the nearest one.

    For each centre of the other side a diagonal and features, for each pair the membership of a token.
    """

    def side(own, other):
        return D + 2 * own * D + 2 * own + other * (3 + estimate) + 2 * P * Q

    once = 2 * P * D, 2 * Q * D  # squared lengths of the centres
    return Cost(side(P, Q), side(Q, P), [Group(None, features)] * (P * Q), once)


def mixture(m, n, P, Q):
    pairs = P * Q
    key = pairs * (2 * D + 2 * n * D + 4 * n + 2 * D + complex_exponential(m)) + projected(m) + antithetic(m)
    groups = [Group(2 * n, 2 * m)] * pairs + [Group(2 * m, 1 + 2 * n * pairs)]
    return Cost(key + 2 * n * pairs, key, groups, once=(3 * D * pairs,) * 2)


BY_HAND = {
    "trigonometric(m=256)": plain(256, 512, trigonometric(256), 1),
    "trigonometric_phase(m=256)": plain(256, 256, 2 * 256 + 1, 1),
    "positive(m=256)": plain(256, 256, positive(256), 3),
    "positive_antithetic(m=256)": plain(256, 512, antithetic(256), 3),
    "optimal_positive(m=256)": optimal(256),
    "generalized_exponential(m=128)": generalized(128),
    "complex_exponential(m=128, A=0.9+0.5j)": mixed(128),
    "poisson(m=256)": discrete(256, False),
    "geometric(m=256)": discrete(256, False),
    "poisson_positive(m=256)": discrete(256, True),
    "geometric_positive(m=256)": discrete(256, True),
    "angular_hybrid(m=8, n=8)": angular(8, 8, antithetic(8), 16),
    "angular_hybrid(m=8, n=4, base=positive)": angular(8, 4, positive(8), 8),
    "gaussian_hybrid(m=8, n=8)": gaussian(8, 8),
    "clustered_hybrid(m=64, query_clusters=3, key_clusters=2)": clustered(
        64, 3, 2, 128, 2 * D + complex_exponential(64)
    ),
    "clustered_hybrid(m=16, query_clusters=2, key_clusters=2, matrices=real)": clustered(
        16, 2, 2, 16, D + projected(16) + positive(16)
    ),
    "gaussian_mixture_hybrid(m=8, n=8, query_clusters=2, key_clusters=2)": mixture(8, 8, 2, 2),
}


def test_every_mechanism_has_a_count_by_hand():
    assert {spec.partition("(")[0] for spec in BY_HAND} == set(MECHANISMS)
    assert {mechanism.example for mechanism in MECHANISMS.values()} <= set(BY_HAND)


def of_map(spec, side, tokens):
    mapped = feature_map(spec)
    features = jax.eval_shape(lambda: mapped.init(KEY, D))
    apply = getattr(mapped, f"apply_{side}")

    def blocks(features, x):
        return [(block.factors, block.log_scale) for block in apply(features, x).blocks]

    return count(blocks, features, jax.ShapeDtypeStruct((tokens, D), jnp.float32)).total


def summed(group, values):
    """FLOPs of a token's part in the sums of `values` numbers times features."""
    outer = 0 if group.narrow is None else values * group.narrow
    return outer + 2 * values * (group.narrow or 1) * group.wide


def read(groups, values):
    """FLOPs of a token's features times such sums, and of the sum over groups."""
    total = values * (len(groups) - 1)
    for group in groups:
        total += 2 * values * (group.narrow or 1) * group.wide
        total += 0 if group.narrow is None else 2 * values * group.narrow
    return total


def on_scale(groups):
    """FLOPs of the scales of several blocks relative to the largest one."""
    blocks = sum(group.blocks for group in groups)
    return blocks - 1 + 2 * blocks + sum(group.wide for group in groups if group.blocks > 1)


def mixing(groups):
    """FLOPs of the queries' constant weights, on the sums of one number times features.

    In a group of several blocks keys have weights too, all of them one.
    """
    mixed = [group for group in groups if group.mixed]
    return sum(group.narrow * group.wide * (1 if group.blocks == 1 else 2) for group in mixed)


def maps(cost):
    """FLOPs of both maps of all tokens, with the scales of their features."""
    (once_q, once_k), groups = cost.once, cost.groups
    alone = sum(group.blocks for group in groups) == 1
    query = cost.query + (-cost.scale[0] if alone else on_scale(groups))
    total = QUERIES * query + once_q - cost.scale[1] + KEYS * (cost.key + on_scale(groups) + 1) + once_k
    return total + cost.adapt(QUERIES, KEYS)


def weights(groups, values):
    """FLOPs of the scales of single blocks; those of several blocks are part of their group."""
    return values * sum(group.blocks == 1 for group in groups)


def ranking_by_hand(cost):
    groups = cost.groups
    each = sum(summed(group, 1) for group in groups) + read(groups, 1)
    shares = weights(groups, 1)
    query_shares = 0 if shares == len(groups) == 1 else shares
    guard = 4 + 1  # two comparisons, a sign and a selection; a reciprocal
    total = QUERIES * (each + 2 * query_shares + guard) + KEYS * (each + 2 * shares)
    return total + 2 * mixing(groups)


def attention_by_hand(cost):
    groups, values = cost.groups, V + 1  # the last is a one, for the denominator
    shares = weights(groups, values)
    query_shares = 0 if len(groups) == 1 else shares
    total = KEYS * (sum(summed(group, values) for group in groups) + shares)
    total += QUERIES * (read(groups, values) + query_shares + 4 + V)
    return total + values * mixing(groups)


def of_attention(spec, operation, *widths):
    mechanism = attention(spec)
    features = jax.eval_shape(lambda: mechanism.init(KEY, D))
    sizes = zip((QUERIES, KEYS, KEYS), widths, strict=False)
    tokens = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    return count(getattr(mechanism, operation), features, *tokens)


@pytest.mark.parametrize("spec", BY_HAND)
def test_the_cost_of_a_map_equals_the_count_by_hand(spec):
    cost = BY_HAND[spec]
    assert of_map(spec, "q", QUERIES) == QUERIES * cost.query + cost.once[0]
    assert of_map(spec, "k", KEYS) == KEYS * cost.key + cost.once[1]


@pytest.mark.parametrize("spec", BY_HAND)
def test_the_cost_of_ranking_and_attention_equals_the_count_by_hand(spec):
    cost = BY_HAND[spec]
    ranked, attended = of_attention(spec, "rank", D, D), of_attention(spec, "apply", D, D, V)
    assert ranked.by_component["ranking"] == ranking_by_hand(cost)
    assert attended.by_component["contraction"] == attention_by_hand(cost)
    assert ranked.total - ranking_by_hand(cost) == maps(cost)
    assert attended.total - attention_by_hand(cost) == maps(cost)


def test_the_cost_of_exact_softmax_equals_the_count_by_hand():
    # The peak of a row, a difference, exp, the sum; sums are at least one.
    rows = QUERIES * KEYS * (2 * D + 4) + QUERIES
    assert of_attention("softmax", "rank", D, D).total == rows + QUERIES + 2 * QUERIES * KEYS
    assert of_attention("softmax", "apply", D, D, V).total == rows + 2 * QUERIES * KEYS * V + QUERIES * V


# Per token, as the papers' maps are counted by hand with omega shared, and what differs here: scales are kept
# as logarithms, at 4 a base estimator and token (half the square, its sign, a constant, the peak), and take
# the place of two of the three operations a feature; a feature's negative exponent is an operation, a
# trigonometric feature needs no scale; products with the n signs are not written out, 4mn or 3mn of them.
@pytest.mark.parametrize(("m", "n", "d"), [(8, 8, 8), (64, 16, 4), (256, 3, 32)])
def test_the_cost_of_maps_equals_the_formulas_of_the_papers(m, n, d):
    def a_key(spec):
        mapped = feature_map(spec)
        features = jax.eval_shape(lambda: mapped.init(KEY, d))
        token = jax.ShapeDtypeStruct((1, d), jnp.float32)

        def blocks(features, x):
            return [(block.factors, block.log_scale) for block in mapped.apply_k(features, x).blocks]

        return count(blocks, features, token).total

    assert a_key(f"positive(m={m})") == (2 * m * d + 2 * d + 3 * m) + 4
    assert a_key(f"positive_antithetic(m={m})") == (2 * m * d + 2 * d + 6 * m) + m + 4
    two_sided = 2 * (m + n) * d + 2 * d + 10 * m + n + 4 * m * n
    one_sided = 2 * (m + n) * d + 2 * d + 7 * m + n + 3 * m * n
    spec = f"angular_hybrid(m={m}, n={n}"
    assert a_key(f"{spec})") == two_sided - 4 * m * n - m + n + 5
    assert a_key(f"{spec}, base=positive)") == one_sided - 3 * m * n - 2 * m + n + 5


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_coupling_changes_the_cost_of_the_projection_only(coupling):
    m, blocks = 24, 3  # of eight directions each
    by_hand = 2 * m * D
    if coupling in ("hadamard", "fast_simplex"):
        # Signs, three transforms of 8 * log2(8) additions, two more signs, a scale; then the lengths.
        by_hand = blocks * D * (1 + 3 * 3 + 2 + 1) + m
    if coupling == "fast_simplex":
        by_hand += blocks * (3 * (D - 1) + 2)
    dense = of_map(f"positive(m={m})", "k", KEYS) - KEYS * 2 * m * D
    assert of_map(f"positive(m={m}, coupling={coupling})", "k", KEYS) == dense + KEYS * by_hand
