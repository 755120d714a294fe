"""Replays the supports that tokens were drawn from, so that importance ratios in RL are exact.

    python examples/mask_replay.py [--url http://127.0.0.1:8000]

A rollout draws from softmax cut by top-k and top-p. Training that compares the whole softmax with
it is wrong from the first step on: for the same policy its ratios are not 1. Cutting the new
policy by its own top-p is wrong too: tokens that were drawn may have no probability any more. So
the rollout keeps each row's support, in CSR, and training renormalises over that.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from probmap_client import Client, ProbmapError

TEMPERATURE = 0.8
PROCESSORS: list[dict[str, Any]] = [
    {"name": "temperature", "value": TEMPERATURE},
    {"name": "top_k", "k": 40},
    {"name": "top_p", "p": 0.9},
]


@dataclass(frozen=True)
class Rollout:
    """What to keep of a step: row i's support lies from offsets[i] up to offsets[i + 1].

    Attributes:
        tokens: (rows,) one drawn from each row.
        offsets: (rows + 1,).
        indices: (size of all,) the classes that could be drawn.
        log_probabilities: (size of all,) of each (nats).
    """

    tokens: Tensor
    offsets: Tensor
    indices: Tensor
    log_probabilities: Tensor

    @property
    def rows(self) -> Tensor:
        """(size of all,) the row that each index is of."""
        sizes = self.offsets.diff()
        return torch.arange(len(sizes)).repeat_interleave(sizes)

    @property
    def is_drawn(self) -> Tensor:
        """(size of all,) whether an index is its row's token: once a row, in the rows' order."""
        return self.indices == self.tokens[self.rows]


def rolled_out(client: Client, logits: Tensor) -> Rollout:
    """A token of each row, drawn by the server, and what it was drawn from."""
    drawn = client.sample(
        logits,
        "softmax",
        processors=PROCESSORS,
        # Rows with the same seed and the same logits would draw the same token.
        seed=list(range(len(logits))),
        outputs=["tokens", "support"],
    )
    return Rollout(
        torch.from_numpy(drawn.tokens[:, 0]),
        torch.from_numpy(drawn.support.offsets),
        torch.from_numpy(drawn.support.indices).long(),
        torch.from_numpy(drawn.support.log_probabilities),
    )


def replayed(logits: Tensor, kept: Rollout) -> Tensor:
    """Log-probabilities of softmax over the recorded supports, for autograd to go through.

    Args:
        logits: (rows, classes) of the policy as it is now.
        kept: the rollout.

    Returns:
        (size of all,) one for each of kept.indices (nats).
    """
    z = logits[kept.rows, kept.indices] / TEMPERATURE
    top = z.new_full(kept.tokens.shape, -torch.inf)
    top = top.scatter_reduce(0, kept.rows, z.detach(), "amax")
    total = torch.zeros_like(top).index_add(0, kept.rows, (z - top[kept.rows]).exp())
    return z - (top + total.log())[kept.rows]


def whole(logits: Tensor, kept: Rollout) -> Tensor:
    """The same of softmax over all classes, as if nothing had been cut."""
    return (logits / TEMPERATURE).log_softmax(-1)[kept.rows, kept.indices]


def cut_anew(client: Client, logits: Tensor, kept: Rollout) -> Tensor:
    """The same of softmax cut by the new policy's own top-k and top-p."""
    outputs = ["log_probabilities"]
    answer = client.map(logits, "softmax", processors=PROCESSORS, outputs=outputs)
    return torch.from_numpy(answer.log_probabilities)[kept.rows, kept.indices]


def show(name: str, new: Tensor, kept: Rollout) -> None:
    """Prints the ratios of the tokens, and what a ratio is expected to be: 1, if it is right."""
    ratios = (new - kept.log_probabilities).exp()
    expected = (kept.log_probabilities.exp() * ratios).sum() / len(kept.tokens)
    drawn = ratios[kept.is_drawn]
    print(f"  {name:30}{drawn.min():10.6f}{drawn.max():10.6f}{expected:10.6f}")


def compare(client: Client, states: Tensor, policy: Tensor, update: Tensor) -> None:
    """Prints the ratios of a linear policy, before and after an update, computed in three ways."""
    kept = rolled_out(client, states @ policy)
    sizes = kept.offsets.diff()
    print(f"{len(sizes)} rows of {policy.shape[1]} tokens; {sizes.min()} to {sizes.max()} are kept")
    for when, now in (("of the same policy", policy), ("after an update", policy + update)):
        print(f"ratios {when:25}{'least':>10}{'most':>10}{'expected':>10}")
        show("over the recorded supports", replayed(states @ now, kept), kept)
        show("over all tokens", whole(states @ now, kept), kept)
        show("over supports cut anew", cut_anew(client, states @ now, kept), kept)

    logits = (states @ (policy + update)).requires_grad_()
    (-replayed(logits, kept)[kept.is_drawn].sum()).backward()
    assert logits.grad is not None
    # The server has the same loss, if it is told which classes there were.
    masked = torch.full_like(logits, -torch.inf)
    masked[kept.rows, kept.indices] = logits.detach()[kept.rows, kept.indices]
    asked = client.loss(masked, "softmax", targets=kept.tokens, temperature=TEMPERATURE)
    apart = (logits.grad - torch.from_numpy(asked.gradient)).abs().max()
    print(f"gradients of −log p, by autograd and by the server, are {apart:.0e} apart")


def main() -> int:
    """Compares a random policy with itself and with an update of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    url = parser.parse_args().url
    generator = torch.Generator().manual_seed(0)
    states, policy, update = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((64, 16), (16, 1000), (16, 1000))
    )
    with Client(url) as client:
        try:
            compare(client, states, 0.5 * policy, 0.05 * update)
        except ProbmapError as error:
            print(f"probmap: {error} ({error.code})", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
