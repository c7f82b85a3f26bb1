"""Multi-head attention as a flax module, with any mechanism: training changes projections, not features."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from robopolicy.attention import attention
from robopolicy.attention.base import check_inputs
from robopolicy.attention.projections import check_counts


class Features(nnx.Variable):
    """Random features: no nnx.Param, so that gradients, optimisers and flat vectors omit them."""


def unit(tokens: Array) -> Array:
    """Tokens [..., D] at length one, as HRF Appendix K has its queries and keys."""
    return tokens * jax.lax.rsqrt(jnp.sum(tokens * tokens, axis=-1, keepdims=True) + 1e-12)


def tempered(tokens: Array) -> Array:
    """Tokens [..., D] over D^(1/4), so that the kernel is the usual exp(q.k / sqrt(D))."""
    return tokens / tokens.shape[-1] ** 0.25


class MultiHeadAttention(nnx.Module):
    """Attention of several heads, each with features of its own.

    Attributes:
      features: the draws of all heads, on a leading axis.
    """

    def __init__(
        self,
        spec: str,
        width: int,
        heads: int,
        *,
        rngs: nnx.Rngs,
        head_dim: int | None = None,
        norm_fn: Callable[[Array], Array] = unit,
        dtype: str = "float32",
    ) -> None:
        """Make the module; parameters come from the stream `params` of `rngs`, features from `features`.

        Args:
          spec: the mechanism, `softmax` included.
          width: of input and output tokens.
          heads: their number.
          rngs: the source of random numbers.
          head_dim: width of a head; width / heads by default.
          norm_fn: normalises queries and keys [heads, tokens, head_dim], such as `unit` or `tempered`.
          dtype: of projections; parameters and the mechanism itself are float32.

        Raises ValueError for anything but a spec, for counts that are not positive, and, without head_dim,
        for a width that heads do not divide.
        """
        check_counts(width=width, heads=heads, head_dim=1 if head_dim is None else head_dim)
        if head_dim is None and width % heads:
            raise ValueError(
                f"width is {width} and heads is {heads}: give head_dim, or heads that divide width"
            )
        self.spec, self.heads, self.head_dim = spec, heads, head_dim or width // heads
        self.norm_fn = norm_fn
        inner = self.heads * self.head_dim
        linear = partial(nnx.Linear, width, inner, use_bias=False, dtype=dtype, rngs=rngs)
        self.query, self.key, self.value = linear(), linear(), linear()
        self.out = nnx.Linear(inner, width, dtype=dtype, rngs=rngs)
        self.features = Features(self._draw(rngs.features()))

    def __call__(self, tokens: Array, mask: Array | None = None) -> Array:
        """Attend among tokens [T, width]. Returns [T, width].

        Tokens whose `mask`, bool [T], is False may be anything, and so may their results.
        """
        return self._attend(attention(self.spec).apply, tokens, mask)

    def causal(self, tokens: Array, mask: Array | None = None) -> Array:
        """As calling it, but no token attends to a later one."""
        return self._attend(attention(self.spec).causal, tokens, mask)

    def queries_and_keys(self, tokens: Array) -> tuple[Array, Array]:
        """The queries and keys of tokens [T, width], [heads, T, head_dim] each."""
        return self.norm_fn(self._split(self.query(tokens))), self.norm_fn(self._split(self.key(tokens)))

    def rank(self, tokens: Array) -> Array:
        """How much each of tokens [T, width] is attended to, [heads, T]; its mean over tokens is 1."""
        q, k = self.queries_and_keys(tokens)
        return jax.vmap(attention(self.spec).rank)(self.features.get_value(), q, k)

    def redraw(self, key: Array) -> None:
        """Draw new features for all heads. Trained parameters may not suit these."""
        self.features.set_value(self._draw(key))

    def _attend(self, operation: Callable[..., Array], tokens: Array, mask: Array | None) -> Array:
        if mask is not None:
            check_inputs(tokens, tokens, None, mask)
            # Some mechanisms adapt to all queries, so padding is a copy of a real token.
            first = jnp.where(jnp.any(mask), tokens[jnp.argmax(mask)], 0)
            tokens = jnp.where(mask[:, None], tokens, first)
        q, k = self.queries_and_keys(tokens)
        v = self._split(self.value(tokens))
        heads = jax.vmap(operation, in_axes=(0, 0, 0, 0, None))(self.features.get_value(), q, k, v, mask)
        return self.out(heads.transpose(1, 0, 2).reshape(len(tokens), -1))

    def _split(self, projected: Array) -> Array:
        """[T, heads * head_dim] to [heads, T, head_dim]."""
        return projected.astype(jnp.float32).reshape(-1, self.heads, self.head_dim).transpose(1, 0, 2)

    def _draw(self, key: Array) -> object:
        mechanism = attention(self.spec)
        # One head after another: `halton` calls back into Python, which can deadlock a pool of few threads.
        draws = [mechanism.init(k, self.head_dim) for k in jax.random.split(key, self.heads)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *draws)
