"""Routing of tokens to experts: drawn from a popularity, or read from a file."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from t3sim.base.errors import BadInput

_MOST = 1 << 20  #: tokens of a GPU for an expert


@dataclass(frozen=True, eq=False)
class Routing:
    """Number of tokens that each GPU sends to each expert; GPUs have equally many experts, in order."""

    counts: np.ndarray  # int64 [GPU of the tokens, expert]
    tokens: int  #: of all GPUs; each is routed to several experts
    chosen: np.ndarray | None = None  #: int64[token, choice]: experts of each token, by GPU; None: not known

    @property
    def gpus(self) -> int:
        return len(self.counts)

    @cached_property
    def experts_of(self) -> np.ndarray:
        """The experts of each token, all different, int64[token, choice]; the first GPU's tokens first.

        If only counts are known, each expert gets consecutive tokens, which begin after the last token of the expert
        before it. Raises BadInput for counts that no such assignment has.
        """
        if self.chosen is not None:
            return self.chosen
        gpu_tokens, remainder = divmod(self.tokens, self.gpus)
        per_token = int(self.counts.sum()) // self.tokens
        for gpu, counts in enumerate(self.counts):
            if remainder or counts.sum() != gpu_tokens * per_token or counts.max() > gpu_tokens:
                raise BadInput(f"routing: GPU {gpu} has {counts.sum()} tokens, counted per expert, {counts.max()} of "
                               f"them for one: each of {self.gpus} GPUs needs as many, and none more for an expert than"
                               f" a GPU's share of the {self.tokens}")
        names = np.arange(self.counts.shape[1])
        return np.concatenate([np.repeat(names, counts).reshape(per_token, gpu_tokens).T for counts in self.counts])

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of each expert that has any, by the expert's GPU."""
        tokens = self.counts.sum(axis=0).reshape(self.gpus, -1)
        return tuple(tuple(int(one) for one in of_gpu if one) for of_gpu in tokens)

    @property
    def heaviest(self) -> int:
        """Most tokens, counted per expert, that a GPU sends or receives."""
        return int(max(self.counts.sum(axis=1).max(), max(map(sum, self.groups))))

    @cached_property
    def heaviest_once(self) -> float:
        """Most tokens that a GPU sends or receives, counted once for each pair of GPUs, as expected for its counts."""
        per_token = int(self.counts.sum()) // self.tokens
        tokens = np.maximum(1, self.counts.sum(axis=1, keepdims=True) // per_token)
        avoided = np.prod((1 - self.counts / tokens).reshape(self.gpus, self.gpus, -1), axis=2)
        copies = tokens * (1 - avoided)
        return float(max(copies.sum(axis=0).max(), copies.sum(axis=1).max()))

    @property
    def used(self) -> int:
        """Experts that have a token."""
        return sum(map(len, self.groups))

    @property
    def imbalance(self) -> float:
        """Tokens of the GPU with the most, over the mean."""
        return max(map(sum, self.groups)) * self.gpus / max(1, int(self.counts.sum()))


def reach(share: float, per_token: int, experts: int) -> float:
    """Return the probability that a group of this share of equally popular experts has one of a token's experts."""
    return 1 - prod(max(0.0, experts * (1 - share) - taken) / (experts - taken) for taken in range(per_token))


def drawn(gpus: int, experts: int, per_token: int, tokens: int, zipf: float = 0.0, seed: int = 0) -> Routing:
    """Draw each token's experts, all different; `zipf`: exponent of their popularity over rank, 0 if all are equal."""
    rng = np.random.default_rng(seed)
    log_popularity = rng.permutation(-zipf * np.log1p(np.arange(experts)))
    counts, experts_of_tokens = np.zeros((gpus, experts), np.int64), []
    for gpu in range(gpus):
        gpu_tokens = tokens // gpus + (gpu < tokens % gpus)
        noise = rng.gumbel(size=(gpu_tokens, experts))
        experts_of_tokens.append(np.argsort(-(log_popularity + noise), axis=1)[:, :per_token])
        counts[gpu] = np.bincount(experts_of_tokens[-1].ravel(), minlength=experts)
    return Routing(counts, tokens, np.concatenate(experts_of_tokens))


def given(counts: Any, gpus: int, experts: int, per_token: int) -> Routing:
    """Check a user's routing: for each GPU its number of tokens for each expert. Raises BadInput."""
    if not isinstance(counts, list) or len(counts) != gpus or any(
            not isinstance(row, list) or len(row) != experts for row in counts):
        raise BadInput(f"a routing is a list of {gpus} lists, one for each GPU, of {experts} numbers, one for each "
                       "expert")
    bad_counts = [one for row in counts for one in row if type(one) is not int or not 0 <= one <= _MOST]
    if bad_counts:
        raise BadInput(f"routing: {str(bad_counts[0])[:40]} is not a number of tokens: 0 to {_MOST}")
    if not (total := sum(map(sum, counts))):
        raise BadInput("routing: no token goes to any expert")
    for gpu, row in enumerate(counts):
        gpu_tokens, remainder = divmod(sum(row), per_token)
        if remainder:
            raise BadInput(f"routing: GPU {gpu} has {sum(row)} tokens, counted per expert: a multiple of the "
                           f"{per_token} experts of each is needed")
        if max(row) > gpu_tokens:
            raise BadInput(f"routing: GPU {gpu} has {max(row)} tokens for expert {row.index(max(row))}, but "
                           f"{gpu_tokens} tokens in all, each for {per_token} different experts")
    return Routing(np.array(counts, np.int64), total // per_token)
