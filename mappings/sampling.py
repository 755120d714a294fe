"""Seeded draws: a token is a function of its row, the row's seed and the draw's index alone.

The same row and seed give the same tokens on any device, in any batch, at any position, on a
retry. torch.multinomial is not used: it stops at 2^24 classes, can draw a class of probability 0
and cannot be seeded by row.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from mappings import kernels
from mappings.errors import InvalidParameter
from mappings.parameters import Parameters, PerRow, Row, Seed
from mappings.philox import DRAW_STREAM, ORDER_STREAM, uniforms, uniforms_at
from mappings.rows import BLOCK, block_sums

MAX_SAMPLES = 1 << 20
"""Tokens that can be drawn from one row (a count)."""

AT_ONCE = 1 << 18
"""Probabilities widened together (a count): they stay in the cache."""


class Draws(Parameters):
    """How many tokens to draw from each row, and from which seed."""

    seed: PerRow[Seed]
    """What the draws are made from (unsigned 64-bit); one, or one a row."""
    samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    """Tokens drawn from each row (a count)."""
    replacement: bool = True
    """Whether a class can be drawn again."""

    def draw(
        self,
        masses: Tensor,
        logs: Callable[[], Tensor],
        classes: Tensor | None,
        row: Row,
        first: int,
        bad: Sequence[int] = (),
    ) -> Tensor:
        """Places (rows, samples) of the drawn classes among the kept ones.

        Args:
            masses: (rows, kept) probabilities, exactly as they are returned.
            logs: computes (rows, kept) their logarithms.
            classes: (rows, kept) class ids, ascending, −1 where padded; None: all in order.
            row: these parameters, bound to the rows.
            first: the place of the first row in its batch, for messages.
            bad: rows without an answer; what is drawn from them means nothing.
        """
        if self.replacement and kernels.available(masses.device):
            return kernels.drawn(masses, row["seed"], self.samples, DRAW_STREAM)
        if self.replacement:
            return _inverted(masses, uniforms(row["seed"], self.samples, DRAW_STREAM))
        available = (masses > 0).sum(dim=-1)
        available[list(bad)] = self.samples
        for place in (available < self.samples).nonzero().flatten().tolist()[:1]:
            message = (
                f"the support of row {first + place} has size {int(available[place])}, less than "
                f"the {self.samples} samples; ask for fewer, or for replacement"
            )
            raise InvalidParameter.at(("samples",), message)
        return self._ordered(masses, logs(), classes, row["seed"])

    def _ordered(
        self, masses: Tensor, logs: Tensor, classes: Tensor | None, seed: Tensor
    ) -> Tensor:
        """The largest of log p + Gumbel noise by class: draws without replacement, in order."""
        if classes is None:
            chances = uniforms(seed, masses.shape[-1], ORDER_STREAM)
        else:
            chances = uniforms_at(seed, classes.clamp_min(0), ORDER_STREAM)
        keys = logs - chances.log().neg().log()
        keys = torch.where(masses > 0, keys, -torch.inf)
        # Rows without an answer can be narrower than the draw.
        wide = pad(keys, (0, max(0, self.samples - keys.shape[-1])), value=-torch.inf)
        return wide.topk(self.samples, dim=-1).indices.clamp(max=keys.shape[-1] - 1)


def _inverted(masses: Tensor, chances: Tensor) -> Tensor:
    """The first place whose cumulative sum is above the chance's share of the total.

    Sums of blocks say in which block that is; only there are the classes added up one by one.
    """
    classes = masses.shape[-1]
    step = max(1, AT_ONCE // classes)
    sums = torch.cat([block_sums(part.double()) for part in masses.split(step)])
    reached = sums.cumsum(dim=-1)
    begun = pad(reached[:, :-1], (1, 0))
    aims = chances * reached[:, -1:]
    # Rounding can put an aim at the very top: the last class above 0 is meant.
    top = (reached < reached[:, -1:]).sum(dim=-1, keepdim=True)
    if aims.shape[-1] * BLOCK > classes:
        blocks = pad(masses.double(), (0, -classes % BLOCK)).unflatten(-1, (-1, BLOCK))
        whole = _cumulative(blocks, begun, reached).flatten(-2)
        found = torch.searchsorted(whole, aims, right=True)
        return torch.minimum(found, (whole < reached[:, -1:]).sum(dim=-1, keepdim=True))
    block = torch.minimum(torch.searchsorted(reached, aims, right=True), top)
    lanes = block.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=masses.device)
    near = masses.gather(-1, lanes.clamp(max=classes - 1).flatten(-2)).double()
    near = torch.where(lanes < classes, near.view_as(lanes), 0)
    ended = reached.gather(-1, block).unsqueeze(-1)
    within = _cumulative(near, begun.gather(-1, block), ended.squeeze(-1))
    place = torch.minimum((within <= aims.unsqueeze(-1)).sum(-1), (within < ended).sum(-1))
    return block * BLOCK + place


def _cumulative(blocks: Tensor, begun: Tensor, ended: Tensor) -> Tensor:
    """The cumulative sums within blocks (rows, blocks, classes), which end at the blocks' own."""
    sums = blocks.cumsum(dim=-1)
    full = sums == sums[..., -1:]
    end = ended.unsqueeze(-1)
    return torch.where(full, end, torch.minimum(begun.unsqueeze(-1) + sums, end))
