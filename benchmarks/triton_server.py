"""A Triton Inference Server whose models are torch.softmax and the entmax package's entmax15.

    benchmarks/out/triton-venv/bin/python benchmarks/triton_server.py PORT

Runs in the environment that scripts/triton.sh makes, without any of this project's code, until its
standard input ends. The models have the names, inputs and outputs that this project's mappings have
over the Open Inference Protocol, so both servers take the same bytes.
"""

import sys
import tempfile
from collections.abc import Callable

import entmax
import numpy as np
import torch
from numpy.typing import NDArray
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig
from pytriton.model_config import Tensor as Description
from pytriton.triton import Triton, TritonConfig

MAX_ROWS = 256
"""The most rows that are computed together (a count)."""

Mapping = Callable[[torch.Tensor], torch.Tensor]

MODELS: dict[str, Mapping] = {
    "softmax": lambda logits: torch.softmax(logits, -1),
    "entmax": lambda logits: entmax.entmax15(logits, dim=-1),
}


def bind(triton: Triton, name: str, mapping: Mapping) -> None:
    """Serves a mapping, with dynamic batching."""

    @batch  # type: ignore[untyped-decorator]
    def infer(logits: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        with torch.inference_mode():
            return {"probabilities": mapping(torch.from_numpy(logits)).numpy()}

    triton.bind(
        model_name=name,
        infer_func=infer,
        inputs=[Description(name="logits", dtype=np.float32, shape=(-1,))],
        outputs=[Description(name="probabilities", dtype=np.float32, shape=(-1,))],
        config=ModelConfig(max_batch_size=MAX_ROWS, batching=True, batcher=DynamicBatcher()),
    )


def serve(port: int) -> None:
    """Serves until standard input ends."""
    config = TritonConfig(
        http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Triton(config=config, workspace=f"{folder}/models") as triton,
    ):
        for name, mapping in MODELS.items():
            bind(triton, name, mapping)
        triton.run()
        sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
