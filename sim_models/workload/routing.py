"""Tokens and the experts to which they go: drawn from a popularity, or of a file."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from t3sim.base.errors import BadInput

_MOST = 1 << 20  #: tokens of a GPU for an expert


@dataclass(frozen=True, eq=False)
class Routing:
    """Tokens that each GPU sends to each expert; a GPU has as many experts as any other, in their order."""

    counts: np.ndarray  # int64 [GPU of the tokens, expert]
    tokens: int  #: of all GPUs, each of which goes to several experts
    chosen: np.ndarray | None = None  #: int64[token, place], the first GPU's first: each one's experts; None: not said

    @property
    def gpus(self) -> int:
        return len(self.counts)

    @cached_property
    def experts_of(self) -> np.ndarray:
        """The experts of each token, all different, int64[token, place]; the first GPU's tokens first.

        Where only counts are known each expert's tokens follow one another, from the one after the last of the expert
        before it. Raises BadInput for counts of which no such tokens can be.
        """
        if self.chosen is not None:
            return self.chosen
        own, rest = divmod(self.tokens, self.gpus)
        per_token = int(self.counts.sum()) // self.tokens
        for gpu, counts in enumerate(self.counts):
            if rest or counts.sum() != own * per_token or counts.max() > own:
                raise BadInput(f"routing: GPU {gpu} has {counts.sum()} tokens, counted per expert, {counts.max()} of "
                               f"them for one: each of {self.gpus} GPUs needs as many, and none more for an expert than"
                               f" a GPU's share of the {self.tokens}")
        names = np.arange(self.counts.shape[1])
        return np.concatenate([np.repeat(names, counts).reshape(per_token, own).T for counts in self.counts])

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of each expert that has any, by the expert's GPU."""
        whole = self.counts.sum(axis=0).reshape(self.gpus, -1)
        return tuple(tuple(int(one) for one in some if one) for some in whole)

    @property
    def heaviest(self) -> int:
        """Most tokens, counted per expert, that a GPU sends or gets."""
        return int(max(self.counts.sum(axis=1).max(), max(map(sum, self.groups))))

    @property
    def used(self) -> int:
        """Experts that have a token."""
        return sum(map(len, self.groups))

    @property
    def imbalance(self) -> float:
        """Tokens of the GPU with the most, over the mean."""
        return max(map(sum, self.groups)) * self.gpus / max(1, int(self.counts.sum()))


def drawn(gpus: int, experts: int, per_token: int, tokens: int, zipf: float = 0.0, seed: int = 0) -> Routing:
    """Draw each token's experts, all different; `zipf`: exponent of their popularity over rank, 0 if all are alike."""
    draw = np.random.default_rng(seed)
    popular = draw.permutation(-zipf * np.log1p(np.arange(experts)))
    counts, chosen = np.zeros((gpus, experts), np.int64), []
    for gpu in range(gpus):
        own = tokens // gpus + (gpu < tokens % gpus)
        first = np.argsort(-(popular + draw.gumbel(size=(own, experts))), axis=1)[:, :per_token]
        counts[gpu] = np.bincount(first.ravel(), minlength=experts)
        chosen.append(first)
    return Routing(counts, tokens, np.concatenate(chosen))


def given(counts: Any, gpus: int, experts: int, per_token: int) -> Routing:
    """Check a routing that somebody else made: of each GPU its tokens for each expert. Raises BadInput."""
    if not isinstance(counts, list) or len(counts) != gpus or any(
            not isinstance(row, list) or len(row) != experts for row in counts):
        raise BadInput(f"a routing is a list of {gpus} lists, one for each GPU, of {experts} numbers, one for each "
                       "expert")
    wrong = [one for row in counts for one in row if type(one) is not int or not 0 <= one <= _MOST]
    if wrong:
        raise BadInput(f"routing: {str(wrong[0])[:40]} is no number of tokens: 0 to {_MOST}")
    if not (total := sum(map(sum, counts))):
        raise BadInput("routing: no token goes to any expert")
    for gpu, row in enumerate(counts):
        own, rest = divmod(sum(row), per_token)
        if rest:
            raise BadInput(f"routing: GPU {gpu} has {sum(row)} tokens, counted per expert: a multiple of the "
                           f"{per_token} experts of each is needed")
        if max(row) > own:
            raise BadInput(f"routing: GPU {gpu} has {max(row)} tokens for expert {row.index(max(row))}, but {own} "
                           f"tokens in all, each for {per_token} different experts")
    return Routing(np.array(counts, np.int64), total // per_token)
