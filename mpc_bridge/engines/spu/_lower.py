"""Programs as SPU reads them: traced by JAX, lowered to StableHLO text, compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxsel.proxy import run_steps
from mpc_bridge.engines._face import Program
from mpc_bridge.engines._operand import Operand, cat, execute

from ._compat import import_spu

SHORTEST = 64  # rows of a batch

# SPU's parser knows the older form of this operation.
_TOP_K = re.compile(
    r"chlo\.top_k\((?P<of>%\w+), k = (?P<k>\d+)\) : (?P<type>tensor<\w+>) -> "
)
_OLDER = (
    r"stablehlo.custom_call @mhlo.topk(\g<of>) {mhlo.attributes = "
    r"{k = \g<k> : i64, largest = true}, mhlo.version = 1 : i64} : (\g<type>) -> "
)


def lower(program: Program, operands: Sequence[jax.ShapeDtypeStruct]) -> str:
    """Return a program on operands of these shapes and types as StableHLO text."""

    def traced(*arrays: jax.Array) -> jax.Array:
        steps = program.steps(cat, *map(Operand, arrays))
        return run_steps(steps, execute).array

    with jax.enable_x64(True):  # numbers are encoded with all their digits
        lowered = (
            jax.jit(traced, keep_unused=True)
            .trace(*operands)
            .lower(lowering_platforms=("cpu",))
        )
    return _TOP_K.sub(_OLDER, str(lowered.compiler_ir("stablehlo")))


def compile_program(
    program: Program, operands: Sequence[jax.ShapeDtypeStruct], public: Sequence[bool]
) -> bytes:
    """Return a program compiled for SPU.

    Args:
        program: What to compute.
        operands: Shapes and types.
        public: Which of them are public.
    """
    spu = import_spu()
    source = spu.CompilationSource()
    source.ir_type = spu.SourceIRType.STABLEHLO
    source.ir_txt = lower(program, operands).encode()
    kinds = {True: spu.Visibility.VIS_PUBLIC, False: spu.Visibility.VIS_SECRET}
    source.input_visibility = [kinds[name] for name in public]
    return spu.compile(source, spu.CompilerOptions())


def described(array: Any) -> jax.ShapeDtypeStruct:
    """Return the shape of a public array, and the type it has in programs."""
    whole = np.asarray(array).dtype.kind in "iu"
    return jax.ShapeDtypeStruct(np.shape(array), np.int32 if whole else np.float64)


def padded(array: np.ndarray, of: int) -> np.ndarray:
    """Return public rows with the last one repeated, to one of few lengths.

    Lengths are `of`, the first batch's, halved again and again, and 7, 6 and 5 eighths
    of these: a program for each, so that not much is computed for nothing.
    """
    n, length = len(array), of
    least = max(n, SHORTEST)
    while length // 2 >= least:
        length = -(-length // 2)
    parts = (-(-length * eighths // 8) for eighths in (5, 6, 7))
    length = next((part for part in parts if part >= least), length)
    return np.pad(array, (0, max(0, length - n)), mode="edge")
