"""The resolutions that a plan compares: everything that varies in a policy except its mechanism."""

from collections.abc import Iterator
from dataclasses import replace

from robopolicy.plan.search import EXACT, Resolution, head_dim_of, with_head_dim
from robopolicy.policies.catalogue import PolicyConfig
from robopolicy.policies.iap_config import OF_PLACES, IAPConfig
from robopolicy.policies.vision_performer_config import LEAST_TOKENS, MOST_TOKENS


def head_dims(config: PolicyConfig) -> list[int]:
    """Widths of queries and keys: the policy's own, half and twice of it, if the policy allows them."""
    own = head_dim_of(config)
    widths = [own, own // 2, 2 * own]
    if isinstance(config, IAPConfig):
        widths = [dim for dim in widths if not (config.asks and dim % OF_PLACES)]
    else:
        widths = [dim for dim in widths if dim and config.width % dim == 0]
    return [dim for dim in widths if dim >= 2]


def resolutions(config: PolicyConfig) -> Iterator[Resolution]:
    """Every patch with every share of kept tokens that changes the FLOPs, and every width of heads."""
    config = replace(config, attention=EXACT)
    for dim in head_dims(config):
        sized = with_head_dim(config, dim)
        if isinstance(sized, IAPConfig):
            for patch in sized.patches:
                # Kept tokens cost nothing unless the policy processes them further, as the variant rank does.
                for keep in (sized.keep, sized.keep / 2) if sized.variant == "rank" else (sized.keep,):
                    walker = replace(sized, patch=patch, keep=keep)
                    share = keep if sized.variant in ("mask", "rank") else None
                    yield Resolution(walker, patch, walker.tokens, share, dim)
        else:
            sides = [side for image in sized.images for side in (image.rows, image.columns)]
            for patch in sized.patches:
                usual = all(LEAST_TOKENS <= side // patch <= MOST_TOKENS for side in sides)
                if usual or patch == sized.patch:
                    performer = replace(sized, patch=patch)
                    yield Resolution(performer, patch, performer.tokens, None, dim)
