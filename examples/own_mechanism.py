"""A mechanism of one's own: the features of a truncated series of the exponential, under a name for specs.

    python examples/own_mechanism.py

Keys and queries of length one have exp(x.y) near the first terms of its series, sum of (x.y)^i / i!, and each
term is a dot product of features: those of x.y are x itself, and kernels that multiply have features that do.
Once it is in the catalogue, whatever takes a spec takes this one, too, within the process that put it there;
training in worker processes and exports want it in robopolicy/attention/catalogue.py itself.

Expected: exact softmax and its FLOPs on 1024 tokens, then orders 1 to 4, off from it by 1e-01, 4e-02, 7e-03
and 2e-03 of the values' size, at 0.7, 2.5, 10 and 40 % of its FLOPs.
"""

from math import factorial

import jax
import jax.numpy as jnp

from robopolicy.attention import FeatureMap, ScaledFeatures, attention, canonical
from robopolicy.attention.catalogue import MECHANISMS, Mechanism
from robopolicy.costs.flops import count

TOKENS, WIDTH = 1024, 4


def taylor(order: int) -> FeatureMap:
    """Features of the first terms of exp(x.y), up to the power `order`. Nothing is drawn."""

    def features(drawn: tuple, x: jax.Array) -> ScaledFeatures:
        power, terms = jnp.ones((len(x), 1)), []
        for i in range(order + 1):
            terms.append(power / factorial(i) ** 0.5)
            power = (power[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        return ScaledFeatures.of(jnp.concatenate(terms, axis=1))

    return FeatureMap(init=lambda key, dim: (), apply_q=features, apply_k=features)


def main() -> None:
    MECHANISMS["taylor"] = Mechanism(taylor, ("order",), {}, {}, "taylor(order=2)")
    q, k, v = jax.random.normal(jax.random.key(0), (3, TOKENS, WIDTH))
    q, k = (x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (q, k))
    softmax = attention("softmax")
    exact = softmax.apply((), q, k, v)
    print(f"softmax: {count(softmax.apply, (), q, k, v).total:,} FLOPs")
    for order in (1, 2, 3, 4):
        mechanism = attention(f"taylor(order={order})")
        found = mechanism.apply(mechanism.init(jax.random.key(1), WIDTH), q, k, v)
        error = jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact)
        price = count(mechanism.apply, (), q, k, v).total
        print(f"{canonical(f'taylor( order={order} )')}: off by {error:.0e}, {price:,} FLOPs")


if __name__ == "__main__":
    main()
