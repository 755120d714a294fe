"""What benchmarks/kernels.py compares computes the same: a faster wrong answer is no target met."""

import pytest
import torch
from torch import Tensor

from cases import logits
from contenders import Contender, contenders
from kernel_targets import WIDE, Figure, Target, targets
from mappings.evaluation import Evaluation

CLASSES = 3000
COMPARED = [one for one in contenders(CLASSES) if one.package or one.sorting]


def dense(one: Contender, rows: Tensor) -> Tensor:
    """Our probabilities."""
    assert one.dense is not None
    answer = one.dense(rows)
    assert isinstance(answer, Evaluation)
    assert answer.probabilities is not None
    return answer.probabilities


@pytest.mark.parametrize("one", COMPARED, ids=lambda one: one.name.replace(" ", "-"))
@pytest.mark.parametrize("width", [0.01, 3.0])
def test_baselines_agree_with_ours(one: Contender, width: float) -> None:
    rows = width * logits(4, CLASSES, dtype=torch.float32)
    ours = dense(one, rows)
    for other in (one.package, one.sorting):
        if other is not None:
            answer = other(rows)
            assert isinstance(answer, Tensor)
            assert torch.allclose(ours, answer, rtol=2e-3, atol=3e-7)


def test_a_target_tells_what_passes_what_falls_short_and_what_was_not_measured() -> None:
    assert [Target("", value, 4).verdict() for value in (4, 4.1)] == ["pass", "falls short"]
    least = [Target("", value, 5, most=False).verdict() for value in (5, 4.9, None)]
    assert least == ["pass", "falls short", "not measured"]
    seconds = {Figure("", "torch.softmax", WIDE): 2.0, Figure("top_k", "ours", WIDE): 6.0}
    measured = {one.words: one.value for one in targets(seconds) if one.value is not None}
    assert measured == {"top_k: compact, × torch.softmax": 3.0}
