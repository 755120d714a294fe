"""Gumbel-softmax: softmax of randomly perturbed logits, reproducible from a seed."""

from typing import Literal

import torch
from torch import Tensor

from mappings.base import Mapping
from mappings.gibbs import Slope, gibbs, inverse
from mappings.parameters import PerRow, Row, Seed
from mappings.philox import gumbel
from mappings.rows import maximum, scaled
from mappings.solution import Solution


class GumbelSoftmax(Mapping):
    """Gumbel-softmax: softmax of randomly perturbed logits, reproducible from a seed.

    p = softmax((x + g)/T), g independent standard Gumbel noise of the seed and the class id
    alone: the same seed gives the same noise in any row of any batch. The most probable class
    is distributed as softmax(x). T → 0 (and T = 0, and hard) is the one-hot of that class.
    Cost: O(n).

    Reference: Jang, Gu, Poole 2017, "Categorical Reparameterization with Gumbel-Softmax";
    Maddison, Mnih, Teh 2017, "The Concrete Distribution".
    """

    name: Literal["gumbel_softmax"] = "gumbel_softmax"
    seed: PerRow[Seed]
    """What the noise is made from (unsigned 64-bit)."""
    hard: bool = False
    """Whether to answer the one-hot of the most probable class."""

    by_class = True
    monotone = False

    def solve(self, logits: Tensor, row: Row) -> Solution:
        noisy = logits.double() + gumbel(row["seed"], logits.shape[-1])
        temperature = torch.zeros_like(row["temperature"]) if self.hard else row["temperature"]
        scores, pace = scaled(noisy, maximum(noisy), temperature), inverse(temperature)
        return gibbs(scores, Slope(pace), drift=-scores * pace)
