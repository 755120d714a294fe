"""The same logits under the rules of four engines: which chain keeps the same tokens.

    python examples/engines.py                                 # computed here
    python examples/engines.py --url http://127.0.0.1:8000     # asked of a server

Engines that share the names temperature, top-k, top-p and min-p differ in order, in what happens
to logits equal to the k-th, and in whether the temperature is seen by the cuts. Each is a chain of
processors here; whoever moves from one engine to another copies its line.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Settings:
    """What an engine's caller sets."""

    temperature: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05


Recipe = dict[str, Any]
"""The fields `mapping` and `processors` of a request."""


def transformers(given: Settings) -> Recipe:
    """Hugging Face transformers: temperature, top-k with all ties, top-p, min-p."""
    return {
        "mapping": {"name": "softmax"},
        "processors": [
            {"name": "temperature", "value": given.temperature},
            {"name": "top_k", "k": given.top_k, "ties": "all"},
            {"name": "top_p", "p": given.top_p},
            {"name": "min_p", "ratio": given.min_p},
        ],
    }


def vllm(given: Settings) -> Recipe:
    """vLLM: temperature, min-p, top-k with all ties, top-p."""
    return {
        "mapping": {"name": "softmax"},
        "processors": [
            {"name": "temperature", "value": given.temperature},
            {"name": "min_p", "ratio": given.min_p},
            {"name": "top_k", "k": given.top_k, "ties": "all"},
            {"name": "top_p", "p": given.top_p},
        ],
    }


def flashinfer(given: Settings) -> Recipe:
    """FlashInfer's "top_k_first": both cuts are thresholds, so all ties stay; no min-p."""
    return {
        "mapping": {"name": "softmax"},
        "processors": [
            {"name": "temperature", "value": given.temperature},
            {"name": "top_k", "k": given.top_k, "ties": "all"},
            {"name": "top_p", "p": given.top_p, "ties": "all"},
        ],
    }


def llama_cpp(given: Settings) -> Recipe:
    """llama.cpp: exactly k, top-p, min-p; the temperature comes last and is seen by no cut."""
    return {
        "mapping": {"name": "softmax", "temperature": given.temperature},
        "processors": [
            {"name": "top_k", "k": given.top_k, "ties": "first"},
            {"name": "top_p", "p": given.top_p},
            {"name": "min_p", "ratio": given.min_p},
        ],
    }


ENGINES: dict[str, Callable[[Settings], Recipe]] = {
    "transformers": transformers,
    "vLLM": vllm,
    "FlashInfer top_k_first": flashinfer,
    "llama.cpp": llama_cpp,
}


def kept_here(logits: list[list[float]], recipe: Recipe) -> list[list[int]]:
    """The tokens each row keeps, most probable first, computed in this process."""
    import torch

    from mappings.evaluate import evaluate
    from mappings.registry import MAPPINGS, PROCESSORS

    support = evaluate(
        torch.tensor(logits, dtype=torch.float64),
        MAPPINGS[recipe["mapping"]["name"]](**recipe["mapping"]),
        processors=[PROCESSORS[step["name"]](**step) for step in recipe["processors"]],
        outputs=["support"],
    ).support
    assert support is not None
    return [row.tolist() for row in support.lists()]


def kept_by_server(client: httpx.Client, logits: list[list[float]], recipe: Recipe) -> list[Any]:
    """The tokens each row keeps, most probable first, asked of a server."""
    answer = client.post("/v1/map", json={"logits": logits, **recipe, "outputs": ["support"]})
    answer.raise_for_status()
    return [row["indices"] for row in answer.json()["support"]]


SETTINGS = Settings(temperature=1.5, top_k=5, top_p=0.85, min_p=0.2)
LOGITS = [[3.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.0, -1.0]]
"""A row of which all four keep something else."""


def show(kept: Callable[[Recipe], list[list[int]]]) -> None:
    """Prints what every engine keeps of LOGITS."""
    print(f"logits {LOGITS[0]}")
    print(", ".join(f"{name} {value}" for name, value in vars(SETTINGS).items()) + "\n")
    for name, engine in ENGINES.items():
        recipe = engine(SETTINGS)
        steps = [step["name"] for step in recipe["processors"]]
        if "temperature" in recipe["mapping"]:
            steps.append("temperature")
        print(f"{name:24}{', '.join(steps):38}{kept(recipe)[0]}")


def main() -> None:
    """Prints the table, computed here or by a server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running server; computed here without it")
    url = parser.parse_args().url
    if url is None:
        show(lambda recipe: kept_here(LOGITS, recipe))
        return
    with httpx.Client(base_url=url, timeout=30) as client:
        show(lambda recipe: kept_by_server(client, LOGITS, recipe))


if __name__ == "__main__":
    main()
