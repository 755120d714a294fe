"""The items of a request's tensors: out of the body, out of shared memory, or out of JSON."""

from collections.abc import Mapping as Dict
from itertools import accumulate
from math import prod

import numpy as np
import torch
from torch import Tensor

from service.errors import MalformedBody, TooLarge
from service.settings import Settings
from service.wire.aligned import aligned
from service.wire.exchange import Body
from service.wire.numbers import Numbers, numbers
from service.wire.oip_datatypes import Datatype
from service.wire.oip_fields import refuse
from service.wire.oip_header import HEADER
from service.wire.oip_message import InputTensor
from service.wire.shared_memory import Regions


class Tensors:
    """The tensors of one request; out of the body and shared memory when they are asked for."""

    def __init__(
        self,
        body: Body,
        json_bytes: int | None,
        inputs: Dict[str, InputTensor],
        settings: Settings,
        regions: Regions,
    ) -> None:
        """Finds where each tensor is, and checks that there is as much of it as its shape says.

        Args:
            body: the whole of it; views are made of it.
            json_bytes: how long its JSON is; None: the header did not say.
            inputs: what the JSON says of each tensor.
            settings: the limits.
            regions: of shared memory.

        Raises:
            MalformedBody: shapes, sizes and the body do not fit together.
            TooLarge: there is more in shared memory than a body may have.
        """
        self._body = body
        self._regions = regions
        self._inputs = inputs
        sizes = {name: given.binary_bytes or 0 for name, given in inputs.items()}
        starts = accumulate(sizes.values(), initial=json_bytes or 0)
        self._starts = dict(zip(sizes, starts, strict=False))
        for given in inputs.values():
            _check_size(given)
        binary, behind = sum(sizes.values()), len(body) - (json_bytes or 0)
        if json_bytes is None and any(given.binary_bytes is not None for given in inputs.values()):
            raise MalformedBody(
                f"the header {HEADER} is missing; where tensors follow the JSON, it says how many "
                "bytes the JSON has"
            )
        if json_bytes is not None and binary != behind:
            raise MalformedBody(
                f"the body has {behind:,} bytes after its JSON, but the inputs' binary_data_size "
                f"add up to {binary:,}"
            )
        shared = sum(given.shared.size for given in inputs.values() if given.shared is not None)
        if shared > settings.max_body_bytes:
            message = f"the inputs have {shared:,} bytes in shared memory"
            raise TooLarge.over(message, "max_body_bytes", settings.max_body_bytes)
        self._from_json = {
            name: _from_json(given, settings)
            for name, given in inputs.items()
            if given.shared is None and given.binary_bytes is None
        }

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of an input, in its shape.

        Raises:
            InvalidSharedMemory: its region is not there, or not as large as it should be.
        """
        given = self._inputs[name]
        count = prod(given.shape)
        if given.shared is not None:
            region = self._regions.region(given.shared.region)
            buffer = region.read(given.shared.offset, given.shared.size)
            items = aligned(buffer, given.datatype.dtype, 0, count)
        elif given.binary_bytes is not None:
            start = self._starts[name]
            items = aligned(self._body, given.datatype.dtype, start, count)
        else:
            items = self._from_json[name]
        return items.view(given.shape)


def _check_size(given: InputTensor) -> None:
    """Refuses a tensor whose bytes are not those of its shape; nothing is allocated before."""
    size = given.binary_bytes if given.shared is None else given.shared.size
    needed = given.datatype.bytes_of(prod(given.shape))
    if size is not None and size != needed:
        what = "binary_data_size" if given.shared is None else "shared_memory_byte_size"
        shape = " × ".join(f"{size:,}" for size in given.shape)
        refuse(
            (*given.loc, "parameters", what),
            f"is {size:,}, but {shape} {given.datatype.name} take {needed:,} bytes",
        )


def _from_json(given: InputTensor, settings: Settings) -> Tensor:
    """The items that came as JSON numbers, flat or in rows, as they are in a flat tensor."""
    loc, count = (*given.loc, "data"), prod(given.shape)
    if not given.datatype.in_json:
        refuse(loc, f"cannot hold {given.datatype.name}; send it as binary data")
    found = numbers(given.data, loc, settings)
    rows = found.lengths
    if rows is not None and (len(given.shape) != 2 or rows.tolist() != _rows(given, len(rows))):
        refuse(loc, f"has other rows than its shape {list(given.shape)} says")
    if len(found.values) != count:
        refuse(loc, f"has {len(found.values):,} numbers, but its shape says {count:,}")
    return _converted(found, given, given.datatype)


def _rows(given: InputTensor, count: int) -> list[int]:
    """How long each of so many rows should be; none has that length where the count is wrong."""
    return [given.shape[1] if count == given.shape[0] else -1] * count


def _converted(found: Numbers, given: InputTensor, datatype: Datatype) -> Tensor:
    """Numbers as a datatype, which must be able to hold them."""
    values, loc = found.values, (*given.loc, "data")
    if not len(values):
        return torch.empty(0, dtype=datatype.dtype)
    if not datatype.is_float:
        kind = np.dtype(str(datatype.dtype).removeprefix("torch."))
        bounds = np.iinfo(kind)
        if values.dtype.kind == "f":
            refuse(loc, f"should hold whole numbers, which {datatype.name} are")
        if int(values.min()) < bounds.min or int(values.max()) > bounds.max:
            refuse(loc, f"has a number that {datatype.name} cannot hold")
        return torch.from_numpy(values.astype(kind))
    kinds = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}
    with np.errstate(over="ignore"):
        held = values.astype(kinds[datatype.dtype])
    if np.isinf(held).sum() != np.isinf(values).sum():
        refuse(loc, f"has a number that {datatype.name} cannot hold")
    return torch.from_numpy(held)
