"""Decodes with entmax through a server: a `LogitsProcessor` for `generate` of transformers.

    python examples/decode_with_entmax.py [--url http://127.0.0.1:8000] [--alpha 1.5]

At each step the logits go to the server, as they lie in memory, and what comes back is the
support alone: a few tokens a row, whatever the size of the vocabulary. Tokens outside of it cannot
be drawn. The model here is tiny and random, so that nothing is downloaded; put your own in.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import cast

import torch
from torch import FloatTensor, LongTensor
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

from probmap_client import Client, ProbmapError


class EntmaxLogitsProcessor(LogitsProcessor):
    """Replaces logits by the log-probabilities of entmax, −inf outside of its support.

    The softmax that `generate` draws from gives these probabilities back, so leave its own
    temperature at 1, and its top-k and top-p off.

    Args:
        client: of the server.
        alpha: 1 is softmax, 2 is sparsemax; one for all rows, or one a row.
        temperature: divides the logits.

    Attributes:
        support_sizes: the tokens that each row could continue with, step by step (counts).
    """

    def __init__(
        self, client: Client, alpha: float | Sequence[float] = 1.5, temperature: float = 1.0
    ) -> None:
        self.client = client
        self.alpha = alpha
        self.temperature = temperature
        self.support_sizes: list[list[int]] = []

    def __call__(self, input_ids: LongTensor, scores: FloatTensor) -> FloatTensor:
        """Log-probabilities (rows, vocabulary) of the next token.

        Args:
            input_ids: (rows, length) the tokens so far, which entmax does not look at.
            scores: (rows, vocabulary) logits; −inf masks a token.
        """
        support = self.client.map(
            scores,
            "entmax",
            alpha=self.alpha,
            temperature=self.temperature,
            outputs=["support"],
        ).support
        sizes = torch.from_numpy(support.offsets).diff()
        rows = torch.arange(len(support)).repeat_interleave(sizes)
        classes = torch.from_numpy(support.indices).long()
        kept = torch.from_numpy(support.log_probabilities).to(scores)
        self.support_sizes.append(sizes.tolist())
        found = torch.full_like(scores, -torch.inf)
        found[rows.to(scores.device), classes.to(scores.device)] = kept
        return cast(FloatTensor, found)


def tiny_model(vocabulary: int = 1000) -> GPT2LMHeadModel:
    """A language model of random weights, the same ones every time."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        # Random weights of the usual size would give all tokens about the same logit.
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.train(False)
    return model


def main() -> int:
    """Continues two prompts, and prints what could have been drawn at each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--alpha", type=float, default=1.5)
    parser.add_argument("--temperature", type=float, default=1.0)
    given = parser.parse_args()
    model = tiny_model()
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with Client(given.url) as client:
        entmax = EntmaxLogitsProcessor(client, given.alpha, given.temperature)
        try:
            tokens = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                logits_processor=LogitsProcessorList([entmax]),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=12,
            )
        except ProbmapError as error:
            print(f"probmap: {error} ({error.code})", file=sys.stderr)
            return 1
    for row, drawn in enumerate(tokens[:, prompts.shape[1] :].tolist()):
        sizes = [step[row] for step in entmax.support_sizes]
        print("drawn   ", *(f"{token:4}" for token in drawn))
        print("one of  ", *(f"{size:4}" for size in sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
