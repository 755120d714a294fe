"""Philox 4×32-10 gives the numbers that its authors published."""

import pytest
import torch
from scipy import stats

from mappings.philox import philox, uniforms

# From the known-answer vectors of Random123: counter, key, result.
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "wanted"), PUBLISHED)
def test_the_published_vectors_hold(
    counter: tuple[int, ...], key: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (torch.tensor(word) for word in counter)
    k0, k1 = (torch.tensor(word) for word in key)
    assert tuple(int(word) for word in philox((c0, c1, c2, c3), (k0, k1))) == wanted


@pytest.mark.parametrize("seed", [0, 1, -1, 1 << 40])
def test_uniforms_are_uniform_and_strictly_inside(seed: int) -> None:
    drawn = uniforms(torch.tensor([[seed]]), 100_000, 1)[0]
    assert 0 < float(drawn.min()) < float(drawn.max()) < 1
    assert stats.kstest(drawn.numpy(), "uniform").pvalue > 1e-3
    lag = torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1]
    assert abs(float(lag)) < 0.015


def test_number_i_does_not_depend_on_how_many_are_drawn() -> None:
    seeds = torch.tensor([[3], [4]])
    many = uniforms(seeds, 1001, 1)
    for count in (1, 2, 7, 1000):
        assert torch.equal(uniforms(seeds, count, 1), many[:, :count])
    assert not torch.equal(uniforms(seeds, 1001, 2), many)
