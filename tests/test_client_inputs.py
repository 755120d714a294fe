"""What probmap_client takes: arrays of any library, lists with None, rows that differ in length."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load

from probmap_client import BFloat16, Client, InvalidInput, LossRequest, MapRequest, SampleRequest
from probmap_client.body import CHUNK_BYTES
from safetensors_bodies import MEDIA_TYPE, random_logits
from server import map_logits, shared_server

ROWS = [[0.5, -1.25, 2.0], [1.0, 0.25, -3.5]]
"""Logits that every floating dtype holds exactly."""


class OnlyArray:
    """An object that numpy can read, and nothing else is known of it."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(ROWS, dtype)


class OnlyDLPack:
    """An object that hands its memory over, and nothing else is known of it."""

    array = np.array(ROWS, np.float32)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


INPUTS: dict[str, tuple[Any, torch.dtype]] = {
    "list": (ROWS, torch.float64),
    "tuple of tuples": (tuple(map(tuple, ROWS)), torch.float64),
    "list of arrays": ([np.array(row, np.float32) for row in ROWS], torch.float32),
    "list of an array and a list": ([np.array(ROWS[0], np.float32), ROWS[1]], torch.float64),
    "float64": (np.array(ROWS), torch.float64),
    "float16": (np.array(ROWS, np.float16), torch.float16),
    "long double": (np.array(ROWS, np.longdouble), torch.float64),
    "big-endian": (np.array(ROWS, ">f4"), torch.float32),
    "columns first": (np.asfortranarray(np.array(ROWS, np.float32)), torch.float32),
    "every second": (np.repeat(np.array(ROWS, np.float32), 2, 1)[:, ::2], torch.float32),
    "read-only": (np.frombuffer(np.array(ROWS).tobytes()).reshape(2, 3), torch.float64),
    "torch": (torch.tensor(ROWS), torch.float32),
    "torch with gradient": (torch.tensor(ROWS, requires_grad=True), torch.float32),
    "torch transposed": (torch.tensor(ROWS).T.contiguous().T, torch.float32),
    "torch bfloat16": (torch.tensor(ROWS, dtype=torch.bfloat16), torch.bfloat16),
    "torch bfloat16 transposed": (torch.tensor(ROWS).bfloat16().T.contiguous().T, torch.bfloat16),
    "list of torch bfloat16": (list(torch.tensor(ROWS).bfloat16()), torch.bfloat16),
    "bfloat16 of ml_dtypes": (np.array(ROWS, ml_dtypes.bfloat16), torch.bfloat16),
    "BFloat16": (BFloat16.of(ROWS), torch.bfloat16),
    "__array__": (OnlyArray(), torch.float64),
    "__dlpack__": (OnlyDLPack(), torch.float32),
}


def sent(request: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the fields of a request, as the safetensors package reads its body."""
    assert request.media_type == MEDIA_TYPE
    content = b"".join(request.body)
    assert len(content) == request.body.size
    size = int.from_bytes(content[:8], "little")
    texts = json.loads(content[8 : 8 + size])["__metadata__"]
    return load(content), json.loads(texts["request"])


@pytest.mark.parametrize("name", INPUTS)
def test_arrays_of_any_kind_are_sent_as_they_are(name: str) -> None:
    given, dtype = INPUTS[name]
    tensors, fields = sent(MapRequest(given, "softmax"))
    assert list(tensors) == ["logits"]
    assert tensors["logits"].dtype == dtype
    assert tensors["logits"].tolist() == ROWS
    assert fields == {"mapping": {"name": "softmax"}}


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64])
def test_integers_are_sent_as_float64(dtype: Any) -> None:
    tensors, _ = sent(MapRequest(np.array([[3, 1, 2]], dtype), "softmax"))
    assert tensors["logits"].dtype == torch.float64
    assert tensors["logits"].tolist() == [[3, 1, 2]]


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    floats = np.concatenate(
        [
            random_logits(1, 4096).numpy()[0],
            np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8]),
        ]
    ).astype(np.float32)
    wanted = torch.from_numpy(floats).bfloat16()
    found = BFloat16.of(floats)
    assert found.bits.tolist() == (wanted.view(torch.int16).int() & 0xFFFF).tolist()
    assert found.floats().tolist() == wanted.float().tolist()
    assert np.isnan(BFloat16.of([np.nan]).floats()).all()


def test_none_masks_a_class() -> None:
    tensors, _ = sent(MapRequest([[0, None, 1], [None, None, 2.5]], "softmax"))
    assert tensors["logits"].tolist() == [[0, -np.inf, 1], [-np.inf, -np.inf, 2.5]]
    flat, _ = sent(MapRequest([1, None], "softmax"))
    assert flat["logits"].tolist() == [1, -np.inf]


@pytest.mark.parametrize(("given", "kept"), [(np.float32, "float32"), (np.int64, "float64")])
def test_a_masked_array_masks_its_classes(given: Any, kept: str) -> None:
    logits = np.ma.MaskedArray(np.array([[1, 2, 3]], given), [[False, True, False]])
    tensors, _ = sent(MapRequest(logits, "softmax"))
    assert tensors["logits"].tolist() == [[1, -np.inf, 3]]
    assert str(tensors["logits"].dtype) == f"torch.{kept}"


def test_rows_that_differ_in_length_go_as_json() -> None:
    request = MapRequest([[0, 0.5, None], np.array([2, -np.inf])], "softmax", temperature=[1, 2])
    assert request.media_type == "application/json"
    assert json.loads(b"".join(request.body)) == {
        "logits": [[0, 0.5, None], [2, None]],
        "mapping": {"name": "softmax", "temperature": [1, 2]},
    }


def test_rows_that_differ_in_length_are_answered_each_as_if_alone() -> None:
    rows: list[list[float]] = [[0, 0.5, 1], [2, 1], [7]]
    weights = [[1, 2, 3], [4, 5], [6]]
    outputs = ["probabilities", "log_probabilities", "entropy", "support"]
    with Client(shared_server().url) as client:
        result = client.map(rows, "weighted_softmax", weights=weights, outputs=outputs)
        singles = [np.array(row, np.float32) for row in rows]
        assert client.map(singles, "softmax").probabilities.dtype == np.float32
        alone = [
            client.map([row], "weighted_softmax", weights=w, outputs=outputs)
            for row, w in zip(rows, weights, strict=True)
        ]
    assert result.lengths is not None
    assert result.lengths.tolist() == [3, 2, 1]
    for row, single in enumerate(alone):
        size = len(rows[row])
        for name, nothing in (("probabilities", 0), ("log_probabilities", -np.inf)):
            found = getattr(result, name)[row]
            assert found[:size].tolist() == getattr(single, name)[0].tolist()
            assert (found[size:] == nothing).all()
        assert result.entropy[row] == single.entropy[0]
        assert result.support[row].indices.tolist() == single.support[0].indices.tolist()


def test_arrays_of_parameters_go_as_tensors_by_their_place() -> None:
    request = SampleRequest(
        np.zeros((2, 3), np.float32),
        "entmax",
        alpha=np.array([1.5, 2.0]),
        temperature=torch.tensor([1.0, 2.0]),
        seed=[1, 2**64 - 1],
        processors=[
            {"name": "ban", "ids": [np.array([1, 2]), [0]]},
            {"name": "top_k", "k": np.int64(2), "ties": "all"},
            "p_less",
        ],
        jacobian={"form": "jvp", "vector": [[1, 2, 3], [4, 5, 6]]},
    )
    tensors, fields = sent(request)
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "logits": [[0, 0, 0], [0, 0, 0]],
        "mapping.alpha": [1.5, 2],
        "mapping.temperature": [1, 2],
        "seed": [1, 2**64 - 1],
        "processors.0.ids": [[1, 2], [0, -1]],
        "jacobian.vector": [[1, 2, 3], [4, 5, 6]],
    }
    assert tensors["seed"].dtype == torch.uint64
    assert tensors["jacobian.vector"].dtype == torch.float64
    assert fields == {
        "mapping": {"name": "entmax"},
        "processors": [{"name": "ban"}, {"name": "top_k", "k": 2, "ties": "all"}, "p_less"],
        "jacobian": {"form": "jvp"},
        "samples": 1,
        "replacement": True,
    }


def test_a_request_leaves_what_it_is_given_as_it_was() -> None:
    mapping = {"name": "entmax", "alpha": np.array([1.5, 2])}
    chain = [{"name": "ban", "ids": [1]}]
    logits = np.zeros((2, 3))
    MapRequest(logits, mapping, processors=chain)
    MapRequest([[1, 2], [3]], mapping, processors=chain)
    assert list(mapping) == ["name", "alpha"]
    assert chain == [{"name": "ban", "ids": [1]}]
    assert not logits.any()


def test_what_is_sent_is_understood() -> None:
    ids = [[3, 1], [0]]
    bias = {"name": "bias", "ids": ids, "values": [[1.5, -2], [0.25]]}
    processors: list[Any] = [bias, "p_less"]
    logits = random_logits(2, 6, torch.float64)
    fields: dict[str, Any] = {"mapping": {"name": "entmax", "alpha": [1.25, 2]}}
    wanted = map_logits(logits=logits.tolist(), processors=processors, **fields).json()
    with Client(shared_server().url) as client:
        found = client.map(logits, processors=processors, **fields)
        greek = client.map(logits, "entmax", α=[1.25, 2], processors=processors)
    assert found.probabilities.tolist() == wanted["probabilities"] == greek.probabilities.tolist()


def test_targets_of_whole_numbers_are_class_ids_and_rows_of_them_distributions() -> None:
    ids, _ = sent(LossRequest(np.zeros((2, 3)), "softmax", np.array([0, 2], np.uint64)))
    assert ids["targets"].dtype == torch.int64
    shares, _ = sent(LossRequest(np.zeros((2, 3)), "softmax", [[0, 1, 0], [1, 0, 0]]))
    assert shares["targets"].dtype == torch.float64


WRONG: dict[str, tuple[Any, int | None]] = {
    "a text": ("logits", None),
    "a number": (3.5, None),
    "a text in a row": ([[0, 1], [0, "1"]], 1),
    "flags": ([True, False], None),
    "an array of flags": (np.array([True, False]), None),
    "an array of texts": (np.array(["a", "b"]), None),
    "complex numbers": (np.array([1j, 2]), None),
    "a number beside a row": ([[0, 1], 2], 1),
    "three dimensions": ([[0, 1], [[0, 1]]], 1),
    "NaN in rows of different lengths": ([[0, 1], [np.nan]], 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_holds_no_rows_of_numbers_is_refused_before_it_is_sent(name: str) -> None:
    logits, row = WRONG[name]
    with pytest.raises(InvalidInput) as refused:
        MapRequest(logits, "softmax")
    assert refused.value.row == row
    assert isinstance(refused.value, ValueError)


def test_parameters_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        MapRequest([0, 1], "softmax", temperature=float("nan"))
    with pytest.raises(InvalidInput, match="alpha is given twice"):
        MapRequest([0, 1], {"name": "entmax", "alpha": 1}, alpha=2)


def test_a_large_body_is_sent_in_parts_and_not_held_twice() -> None:
    logits = np.zeros((8, CHUNK_BYTES // 4), np.float32)
    body = MapRequest(logits, "softmax").body
    assert len(body.parts) == 2
    whole = np.frombuffer(body.parts[1], np.float32)
    assert np.shares_memory(whole, logits)
    assert max(len(chunk) for chunk in body) == CHUNK_BYTES
    assert b"".join(body) == b"".join(body)
