"""The kernels compile for a GPU, by Triton's compiler and its assembler: that needs no GPU.

What is said of each argument here is what the callers in `mappings/kernels` pass. A process of
its own runs this, as Triton decides at its import between interpreter and compiler.
"""

from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

from mappings.kernels import cuts, draws, exponentials, nearest, thresholds
from mappings.rows import HUGE

TARGETS = [75, 90]
"""Compute capabilities: Turing, Hopper."""

LOGITS = ["fp64", "fp32", "bf16", "fp16"]


def _wide(logits: str) -> str:
    return "fp64" if logits == "fp64" else "fp32"


def _softmax(logits: str) -> dict[str, Any]:
    fixed = {
        "CHUNK": exponentials.CHUNK,
        "WIDE": logits == "fp64",
        "HUGE": HUGE,
        "LOWEST_WIDE": -700.0,
        "LOWEST_NARROW": -87.0,
    }
    return {"logits": f"*{logits}", "temperatures": "*fp64", "classes": "i32", **fixed}


def _nearest(logits: str) -> dict[str, Any]:
    lists = {"found": "*i32", "listed": f"*{logits}", "places": "*i32"}
    fixed = {"CHUNK": nearest.CHUNK, "ROOM": nearest.ROOM}
    return {"logits": f"*{logits}", "classes": "i32", "chunks": "i32", **lists, **fixed}


def _kernels(logits: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every kernel and its arguments, for logits of a type."""
    wide = f"*{_wide(logits)}"
    softmax, near = _softmax(logits), _nearest(logits)
    floors = {"floors": wide}
    return {
        "add_up": (
            exponentials._add_up,
            softmax | {"tops": wide, "sums": "*fp64", "chunks": "i32"},
        ),
        "write": (exponentials._write, softmax | {"tops": wide, "totals": "*fp64", "masses": wide}),
        "look": (nearest._look, near | {"reaches": "*fp64", "tops": wide, "SLACK": 1 + 1e-12}),
        "count": (nearest._count, near | floors | {"counts": "*i32"}),
        "gather": (
            nearest._gather,
            near
            | floors
            | {"starts": "*i64", "values_out": f"*{logits}", "ids_out": "*i64", "width": "i32"},
        ),
    }


THRESHOLDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "project": (thresholds._project, {}),
    "climb": (thresholds._climb, {"betas": "*fp64", "LIMIT": 1e-100}),
}


def compiled(kernel: Any, given: dict[str, Any], capability: int, warps: int) -> Any:
    """The kernel, compiled and assembled."""
    types = {name: kind for name, kind in given.items() if isinstance(kind, str)}
    fixed = {name: value for name, value in given.items() if name not in types}
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, constexprs=fixed)
    return triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
    )


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("name", _kernels("fp32"))
def test_a_kernel_over_logits_compiles(name: str, logits: str, capability: int) -> None:
    made = compiled(*_kernels(logits)[name], capability, nearest.WARPS)
    assert len(made.asm["cubin"]) > 0
    if name == "look":
        # The slack is 1 + 1e-12 in float64; in float32 it would be 1.
        assert "F0000000001198" in made.asm["ptx"]


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_compiles(name: str, capability: int) -> None:
    kernel, more = THRESHOLDS[name]
    given = {"scores": "*fp64", "out": "*fp64", "kept": "i32", "steps": "i32"}
    made = compiled(
        kernel, given | more | {"BLOCK": thresholds.BLOCK}, capability, thresholds.WARPS
    )
    assert len(made.asm["cubin"]) > 0
    assert "cvt.rn.f32" not in made.asm["ptx"], "a threshold is solved in float64"


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("weighed", [True, False])
def test_a_cut_compiles(weighed: bool, dtype: str, capability: int) -> None:
    given = {
        "values": f"*{dtype}",
        "masses": "*fp64" if weighed else f"*{dtype}",
        **{"totals": "*fp64", "tails": "*fp64", "lasts": f"*{dtype}", "counts": "*i64"},
        **{"width": "i32", "WEIGHED": weighed, "BLOCK": cuts.BLOCK},
    }
    made = compiled(cuts._halve, given, capability, cuts.WARPS)
    assert len(made.asm["cubin"]) > 0


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_a_draw_compiles(dtype: str, capability: int) -> None:
    given = {"masses": f"*{dtype}", "sums": "*fp64", "kept": "i32", "chunks": "i32"}
    fixed = {"CHUNK": draws.CHUNK}
    made = compiled(draws._add_up, given | fixed, capability, draws.WARPS)
    assert len(made.asm["cubin"]) > 0
    more = {"seeds": "*i64", "out": "*i64", "samples": "i32", "STREAM": 2, "SLOTS": 256}
    made = compiled(draws._draw, given | fixed | more, capability, draws.WARPS)
    assert len(made.asm["cubin"]) > 0
    # The numbers of the CPU: 2^-52 a step, not a float32 near it.
    assert "0d3CB0000000000000" in made.asm["ptx"]
