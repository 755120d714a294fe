"""Jacobians and parameter gradients as JSON."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from mappings.evaluation import JacobianAnswer
from service.wire.json_text import JsonText

Blank = frozenset[int]
Lengths = Sequence[int] | None


def write_gradients(
    text: JsonText, gradients: dict[str, Tensor], lengths: Lengths, blank: Blank
) -> None:
    """Writes {"parameter": rows × classes, …}."""
    for place, (name, values) in enumerate(gradients.items()):
        text.raw(b'%b"%b":' % (b"," if place else b"{", name.encode()))
        text.rows(values.numpy(), lengths, blank)
    text.raw(b"}")


def write_jacobian(
    text: JsonText, jacobian: JacobianAnswer, lengths: Lengths, blank: Blank
) -> None:
    """Writes a Jacobian in its form.

    Args:
        text: where to.
        jacobian: the derivatives.
        lengths: the classes of each row; None: all the same.
        blank: rows without an answer, written as null.
    """
    if jacobian.product is not None:
        text.rows(jacobian.product.numpy(), lengths, blank)
    elif jacobian.matrix is not None:
        _write_matrices(text, jacobian.matrix, lengths, blank, square=True)
    elif jacobian.blocks is not None and jacobian.indices is not None:
        _write_blocks(text, jacobian.indices, jacobian.blocks, blank)
    elif jacobian.diagonal is not None and jacobian.left is not None:
        assert jacobian.right is not None
        text.raw(b'{"diagonal":')
        text.rows(jacobian.diagonal.numpy(), lengths, blank)
        text.raw(b',"left":')
        _write_matrices(text, jacobian.left, lengths, blank, square=False)
        text.raw(b',"right":')
        _write_matrices(text, jacobian.right, lengths, blank, square=False)
        text.raw(b"}")
    else:
        text.raw(b"[]")


def _write_matrices(
    text: JsonText, matrices: Tensor, lengths: Lengths, blank: Blank, *, square: bool
) -> None:
    """Writes one matrix a row of logits, cut to the row's classes."""
    for row, matrix in enumerate(matrices.numpy()):
        text.raw(b"," if row else b"[")
        if row in blank:
            text.raw(b"null")
            continue
        size = matrix.shape[0] if lengths is None else lengths[row]
        cut = matrix[:size, :size] if square else matrix[:size]
        text.rows(np.ascontiguousarray(cut), None, frozenset())
    text.raw(b"]" if len(matrices) else b"[]")


def _write_blocks(
    text: JsonText, indices: Sequence[Tensor], blocks: Sequence[Tensor], blank: Blank
) -> None:
    for row, (ids, block) in enumerate(zip(indices, blocks, strict=True)):
        text.raw(b"," if row else b"[")
        if row in blank:
            text.raw(b"null")
            continue
        text.raw(b'{"indices":')
        text.numbers(ids.numpy())
        text.raw(b',"values":')
        text.rows(block.numpy(), None, frozenset())
        text.raw(b"}")
    text.raw(b"]" if blocks else b"[]")
