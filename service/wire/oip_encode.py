"""The Open Inference Protocol's way out: evaluations to answers."""

from dataclasses import dataclass, field

import numpy as np
import orjson
from torch import Tensor

from mappings.evaluation import Evaluation
from schemas.request import SampleRequest
from service.engine.job import Job
from service.errors import InvalidSharedMemory
from service.settings import Settings
from service.wire.exchange import Encoded
from service.wire.json_text import JsonText
from service.wire.limits import check_numbers
from service.wire.oip_classification import classification
from service.wire.oip_datatypes import BYTES, NAMES
from service.wire.oip_header import HEADER
from service.wire.oip_message import Message, RequestedOutput
from service.wire.oip_outputs import PROBABILITIES, STATUS, value_of
from service.wire.shared_memory import Regions

VERSION = "1"
"""The only version of every model."""

JSON_BYTES = 20
"""About what a number takes as text (bytes)."""

Part = bytes | memoryview


@dataclass(slots=True)
class _Answer:
    """An answer being written: its JSON, and the tensors that follow it."""

    text: JsonText = field(default_factory=JsonText)
    tensors: list[Part] = field(default_factory=list)
    outputs: int = 0

    def head(self, name: str, datatype: str, shape: list[int]) -> None:
        """Begins an output, up to where its items or its parameters come."""
        self.text.raw(b"," if self.outputs else b"")
        self.outputs += 1
        entry = {"name": name, "datatype": datatype, "shape": shape}
        self.text.raw(orjson.dumps(entry)[:-1])

    def binary(self, parts: list[Part]) -> None:
        """Ends an output whose items follow the JSON."""
        self.tensors += parts
        self.text.raw(b',"parameters":{"binary_data_size":%d}}' % _bytes_of(parts))


def written_bytes(message: Message, job: Job, evaluation: Evaluation) -> int:
    """About how much of an answer is not the evaluation's own memory (bytes)."""
    total = 0
    for output in message.outputs.values():
        if output.name == STATUS:
            total += JSON_BYTES * job.rows
            continue
        value = value_of(output.name, evaluation)
        if output.classes is not None:
            total += value.nbytes + JSON_BYTES * job.rows * min(output.classes, job.classes)
        elif output.shared is not None:
            total += value.nbytes
        elif not output.is_binary:
            total += JSON_BYTES * value.numel()
    return total


def encode(
    message: Message, job: Job, evaluation: Evaluation, settings: Settings, regions: Regions
) -> Encoded:
    """The answer to a job; tensors that follow the JSON are the evaluation's own memory.

    Raises:
        TooLarge: the JSON holds more numbers than the limit.
        InvalidSharedMemory: an output does not fit where it should be written.
    """
    answer = _Answer()
    head: dict[str, object] = {"model_name": job.request.mapping.name, "model_version": VERSION}
    if message.id is not None:
        head["id"] = message.id
    if isinstance(job.request, SampleRequest) and not isinstance(job.request.seed, list):
        head["parameters"] = {"seed": job.request.seed}
    answer.text.raw(orjson.dumps(head)[:-1] + b',"outputs":[')
    outputs = message.outputs.values()
    as_text = [one for one in outputs if one.is_text and one.classes is None]
    numbers = sum(value_of(one.name, evaluation).numel() for one in as_text)
    check_numbers(numbers, job.request, settings)
    for output in outputs:
        if output.name == STATUS:
            texts = [text.encode() for text in evaluation.status]
            _write_texts(answer, output, texts, [job.rows], regions)
        elif output.classes is not None:
            count = min(output.classes, job.classes)
            texts = classification(value_of(PROBABILITIES, evaluation), count)
            _write_texts(answer, output, texts, [job.rows, count], regions)
        else:
            _write_tensor(answer, output, value_of(output.name, evaluation), regions)
    answer.text.raw(b"]}")
    parts: list[Part] = [*answer.text.finished()]
    if not answer.tensors and all(not output.is_binary for output in outputs):
        return Encoded(parts, "application/json")
    header = (HEADER.lower().encode(), b"%d" % _bytes_of(parts))
    return Encoded([*parts, *answer.tensors], "application/octet-stream", [header])


def _write_tensor(
    answer: _Answer, output: RequestedOutput, value: Tensor, regions: Regions
) -> None:
    answer.head(output.name, NAMES[value.dtype], list(value.shape))
    items = value.contiguous().reshape(-1).numpy()
    if output.shared is not None:
        _write_shared(answer, output, [items.view(np.uint8).data], regions)
    elif output.is_binary:
        answer.binary([items.view(np.uint8).data] if len(items) else [])
    else:
        answer.text.raw(b',"data":')
        answer.text.numbers(items)
        answer.text.raw(b"}")


def _write_texts(
    answer: _Answer, output: RequestedOutput, texts: list[bytes], shape: list[int], regions: Regions
) -> None:
    answer.head(output.name, BYTES, shape)
    if output.is_text:
        answer.text.raw(b',"data":')
        answer.text.value([text.decode() for text in texts])
        answer.text.raw(b"}")
        return
    packed = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    if output.shared is not None:
        _write_shared(answer, output, [packed], regions)
    else:
        answer.binary([packed])


def _write_shared(
    answer: _Answer, output: RequestedOutput, parts: list[Part], regions: Regions
) -> None:
    """Writes an output's items into shared memory, and says where they are."""
    shared, size = output.shared, _bytes_of(parts)
    assert shared is not None
    if size > shared.size:
        raise InvalidSharedMemory(
            f"the output {output.name} takes {size:,} bytes, more than the {shared.size:,} of its "
            "shared_memory_byte_size; give it more room"
        )
    regions.region(shared.region).write(shared.offset, parts)
    where = {
        "shared_memory_region": shared.region,
        "shared_memory_offset": shared.offset,
        "shared_memory_byte_size": size,
    }
    answer.text.raw(b',"parameters":' + orjson.dumps(where) + b"}")


def _bytes_of(parts: list[Part]) -> int:
    return sum(memoryview(part).nbytes for part in parts)
