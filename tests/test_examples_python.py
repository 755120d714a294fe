"""The examples in Python that use the client: decoding with entmax, and replayed masks."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import mask_replay
from example_commands import built
from mask_replay import TEMPERATURE, Rollout, cut_anew, replayed, rolled_out, whole
from probmap_client import Client
from server import shared_server

pytest.importorskip("transformers", reason="transformers is not installed")

import decode_with_entmax
from decode_with_entmax import EntmaxLogitsProcessor, tiny_model

Array = NDArray[np.float64]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(shared_server().url) as client:
        yield client


def processed(client: Client, scores: Tensor, **given: object) -> Tensor:
    found = EntmaxLogitsProcessor(client, **given)(  # type: ignore[arg-type]
        torch.zeros(len(scores), 1, dtype=torch.long),  # type: ignore[arg-type]
        scores,  # type: ignore[arg-type]
    )
    assert found.dtype == scores.dtype
    assert found.shape == scores.shape
    return found


def sparsemax(z: Array) -> Array:
    """By its definition: the largest k for which z_(k) is above the threshold of the first k."""
    down = np.sort(z)[::-1]
    thresholds = (down.cumsum() - 1) / np.arange(1, len(z) + 1)
    found: Array = np.maximum(z - thresholds[down > thresholds][-1], 0)
    return found


def test_the_processor_gives_log_probabilities_and_masks_the_rest(client: Client) -> None:
    scores = torch.tensor([[0, 0.5, 1], [1, -torch.inf, 3]], dtype=torch.float64)
    found = processed(client, scores, alpha=2, temperature=1).exp()
    np.testing.assert_allclose(found, np.array([[0, 0.25, 0.75], [0, 0, 1]]), rtol=1e-15)
    found = processed(client, scores, alpha=[1, 2], temperature=4)
    np.testing.assert_allclose(found[0], (scores[0] / 4).log_softmax(-1), rtol=1e-14)
    np.testing.assert_allclose(found[1].exp(), [0.25, 0, 0.75], rtol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_softmax_that_is_drawn_from_gives_the_probabilities_back(
    client: Client, dtype: torch.dtype
) -> None:
    scores = (2 * torch.randn(5, 300, generator=torch.Generator().manual_seed(1))).to(dtype)
    drawn_from = processed(client, scores, alpha=2).float().softmax(-1)
    wanted = np.stack([sparsemax(row) for row in scores.double().numpy()])
    within = 4 * torch.finfo(dtype).eps
    np.testing.assert_allclose(drawn_from, wanted, atol=within)
    assert ((drawn_from > 0).numpy() == (wanted > 0)).all()


def generated(client: Client | None, **given: object) -> tuple[Tensor, list[list[int]]]:
    """Tokens that the tiny model continues with; greedily without a client."""
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    entmax = None if client is None else EntmaxLogitsProcessor(client, **given)  # type: ignore[arg-type]
    model = tiny_model(200)
    torch.manual_seed(3)
    tokens = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        logits_processor=[] if entmax is None else [entmax],
        do_sample=entmax is not None,
        top_k=0,
        max_new_tokens=10,
    )
    return tokens, [] if entmax is None else entmax.support_sizes


def test_only_tokens_of_the_support_are_drawn(client: Client) -> None:
    tokens, sizes = generated(client, alpha=2)
    with torch.no_grad():
        logits = tiny_model(200)(tokens).logits
    for row in range(2):
        for step in range(10):
            probabilities = sparsemax(logits[row, step + 2].double().numpy())
            assert probabilities[tokens[row, step + 3]] > 0
            assert sizes[step][row] == (probabilities > 0).sum()
    assert max(map(max, sizes)) > 1


def test_a_support_of_one_token_decodes_greedily(client: Client) -> None:
    tokens, sizes = generated(client, alpha=16, temperature=0.001)
    assert sizes == [[1, 1]] * 10
    assert tokens.tolist() == generated(None)[0].tolist()


def test_the_decoding_command_prints_what_it_drew_and_out_of_how_many(tmp_path: Path) -> None:
    done = built("decode_with_entmax.py", tmp_path).run(shared_server().url)
    assert done.code == 0, done.err
    lines = [re.findall(r"\d+", line) for line in done.out.splitlines()]
    assert [len(line) for line in lines] == [12] * 4
    sizes = [int(size) for line in lines[1::2] for size in line]
    assert min(sizes) >= 1
    assert max(sizes) < 1000


def ran(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["example", *arguments])
    code: int = module.main()
    return code


def test_the_decoding_example_says_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = shared_server().url
    assert ran(decode_with_entmax, monkeypatch, "--url", url, "--alpha", "20") == 1
    assert capsys.readouterr().err == (
        "probmap: mapping.alpha should be less than or equal to 16 (invalid_request)\n"
    )


def policy_logits(seed: int, rows: int = 40, classes: int = 300) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)


HAND = Rollout(
    torch.tensor([2, 1]),
    torch.tensor([0, 2, 5]),
    torch.tensor([2, 0, 3, 1, 0]),
    torch.zeros(5, dtype=torch.float64),
)
"""Two rows of four classes: {0, 2} can be drawn of the first, {0, 1, 3} of the second."""


def test_replayed_is_the_softmax_over_the_recorded_classes() -> None:
    logits = torch.tensor([[1.0, 9, 2, 900], [3, 0.5, 900, -800]], dtype=torch.float64)
    first = math.log(math.exp(1 / TEMPERATURE) + math.exp(2 / TEMPERATURE))
    second = math.log(math.exp(3 / TEMPERATURE) + math.exp(0.5 / TEMPERATURE))
    wanted: list[float] = [2 / TEMPERATURE - first, 1 / TEMPERATURE - first]
    wanted += [x / TEMPERATURE - second for x in (-800, 0.5, 3)]
    np.testing.assert_allclose(replayed(logits, HAND), wanted, rtol=1e-14)
    # Far apart, so that e^z of any other shift would overflow.
    assert replayed(logits + 1e4, HAND).isfinite().all()
    assert HAND.is_drawn.tolist() == [True, False, False, True, False]


def test_gradients_go_through_the_replay() -> None:
    logits = policy_logits(5, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: replayed(x, HAND), (logits,))
    replayed(logits, HAND)[HAND.is_drawn].sum().backward()
    assert logits.grad is not None
    # ∂ log p_t / ∂x = (e_t − p) / T, and nothing outside of the support.
    wanted = torch.zeros(2, 4, dtype=torch.float64)
    wanted[HAND.rows, HAND.indices] = -replayed(logits, HAND).detach().exp()
    wanted[[0, 1], HAND.tokens] += 1
    np.testing.assert_allclose(logits.grad, wanted / TEMPERATURE, atol=1e-15)
    assert logits.grad[0, [1, 3]].tolist() == [0, 0]


def test_the_ratios_of_an_unchanged_policy_are_1(client: Client) -> None:
    logits = policy_logits(6)
    kept = rolled_out(client, logits)
    ratios = (replayed(logits, kept) - kept.log_probabilities).exp()
    np.testing.assert_allclose(ratios, 1, rtol=1e-14)


def test_without_the_mask_they_are_the_mass_of_the_support(client: Client) -> None:
    logits = policy_logits(6)
    kept = rolled_out(client, logits)
    ratios = (whole(logits, kept) - kept.log_probabilities).exp().numpy()
    masses = np.exp(logits.numpy() / TEMPERATURE)
    masses /= masses.sum(1, keepdims=True)
    for row, size in enumerate(kept.offsets.diff()):
        # The nucleus: the fewest of the 40 most probable that hold 0.9 of what these hold.
        down = np.sort(masses[row])[::-1][:40]
        nucleus = np.searchsorted(down.cumsum(), 0.9 * down.sum()) + 1
        assert size == nucleus
        wanted = down[:nucleus].sum()
        assert wanted < 0.95
        np.testing.assert_allclose(ratios[(kept.rows == row).numpy()], wanted, rtol=1e-12)


def expected(new: Tensor, old: Tensor, rows: int) -> float:
    """What a ratio is on average over all tokens that can be drawn: 1 for two distributions."""
    return float((old.exp() * (new - old).exp()).sum()) / rows


def test_after_an_update_only_the_recorded_supports_keep_the_expected_ratio_at_1(
    client: Client,
) -> None:
    logits = policy_logits(6)
    kept = rolled_out(client, logits)
    now = logits + policy_logits(7) / 4
    old = kept.log_probabilities
    assert expected(replayed(now, kept), old, 40) == pytest.approx(1, abs=1e-14)
    assert expected(whole(now, kept), old, 40) < 0.9
    anew = cut_anew(client, now, kept)
    assert expected(anew, old, 40) < 0.99
    # Of what was drawn, some cannot be drawn any more: its ratio is 0, its logarithm −∞.
    assert anew[kept.is_drawn].isinf().any()


def test_the_rollout_draws_from_the_support_that_it_keeps(client: Client) -> None:
    logits = policy_logits(8)
    kept = rolled_out(client, logits)
    assert kept.is_drawn.sum() == 40
    assert torch.equal(kept.rows[kept.is_drawn], torch.arange(40))
    again = rolled_out(client, logits)
    assert torch.equal(kept.tokens, again.tokens)
    rows_of_one = rolled_out(client, logits[1:2].expand(40, -1))
    assert len(set(rows_of_one.tokens.tolist())) > 5


def test_the_replay_command_prints_that_only_recorded_supports_are_right(tmp_path: Path) -> None:
    done = built("mask_replay.py", tmp_path).run(shared_server().url)
    assert done.code == 0, done.err
    ways = r"^  (over [a-z ]+?) +(\d\.\d{6}) +(\d+\.\d{6}) +(\d\.\d{6})$"
    same, updated = re.split(r"^ratios after", done.out, flags=re.M)
    before = {way: list(map(float, numbers)) for way, *numbers in re.findall(ways, same, re.M)}
    after = {way: list(map(float, numbers)) for way, *numbers in re.findall(ways, updated, re.M)}
    assert before["over the recorded supports"] == [1, 1, 1]
    assert before["over all tokens"][1] < 0.9
    assert after["over the recorded supports"][2] == 1
    assert after["over all tokens"][2] < 0.9
    assert after["over supports cut anew"][0] == 0
    apart = re.search(r"are (\S+) apart$", done.out.strip())
    assert apart is not None
    assert float(apart[1]) < 1e-14


def test_the_replay_example_says_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mask_replay, "PROCESSORS", [{"name": "top_k", "k": 0}])
    assert ran(mask_replay, monkeypatch, "--url", shared_server().url) == 1
    assert capsys.readouterr().err.startswith("probmap: processors[0].k should be greater")
