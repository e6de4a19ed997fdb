"""The operations of a schedule, on tensors of torch and on CrypTen's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jaxsel.proxy import Call, Operation

from ._compat import import_crypten

N = -1  # stands for the samples of a batch in an operation's shapes


def cat(parts: Sequence[Any], dim: int = -1) -> Any:
    """Join tensors, all of torch or all of CrypTen."""
    if isinstance(parts[0], torch.Tensor):
        return torch.cat(tuple(parts), dim)
    return import_crypten().cat(list(parts), dim=dim)


def powers(x: Any, degree: int) -> tuple[Any, ...]:
    """Return x, x², ..., x^degree by doubling, as CrypTen's polynomials do."""
    stack = torch.stack if isinstance(x, torch.Tensor) else import_crypten().stack
    terms = [x] if degree < 2 else [x, x.square()]
    while len(terms) < degree:
        more = stack(terms) * terms[-1].unsqueeze(0)
        terms += [more[i] for i in range(len(terms))]
    return tuple(terms[:degree])


def _clear_max(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, index = x.max(-1, keepdim=True)
    return value, torch.zeros_like(x).scatter_(-1, index, 1.0)


def _secret_reciprocal(x: Any) -> Any:
    from crypten.config import cfg

    with cfg.temp_override({"functions.reciprocal_all_pos": True}):
        return x.reciprocal()


_SHARED: dict[str, Callable[..., Any]] = {
    "matmul": lambda x, y: x.matmul(y),
    "mul": lambda x, y: x * y,
    "square": lambda x: x.square(),
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x * (1.5958 * (x + 0.044715 * (x.square() * x))).sigmoid(),
    "abs": lambda x: x.abs(),
    "exp": lambda x: x.exp(),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "nonnegative": lambda x: x.ge(0),
}
CLEAR = {
    **_SHARED,
    "reciprocal": lambda x: x.reciprocal(),
    "inv_sqrt": lambda x: x.rsqrt(),
    "max": _clear_max,
}
SECRET = {
    **_SHARED,
    "reciprocal": _secret_reciprocal,
    "inv_sqrt": lambda x: x.inv_sqrt(),
    "max": lambda x: x.max(-1, keepdim=True),
}


def execute(
    kinds: dict[str, Callable[..., Any]], operation: Operation, operands: Sequence[Any]
) -> Any:
    """Return the result of one operation; of "powers" and "max" it is a tuple."""
    if operation.kind == "powers":
        return powers(operands[0], operation.degree)
    return kinds[operation.kind](*operands)


def check(operation: Operation, call: Call) -> None:
    """Refuse a step that is not the one of the schedule.

    Raises:
        RuntimeError: If its name, primitive or a shape differs: tensors have other
            shapes than the schedule's operands.
    """
    shapes = [tuple(x.size()) for x in call.operands]
    fits = len(shapes) == len(operation.shapes) and all(
        len(actual) == len(shape)
        and all(b in (a, N) for a, b in zip(actual, shape, strict=True))
        for actual, shape in zip(shapes, operation.shapes, strict=False)
    )
    same = (call.place, call.name, call.kind, call.degree) == (
        operation.place,
        operation.name,
        operation.kind,
        operation.degree,
    )
    if not (same and fits):
        raise RuntimeError(
            f"{operation.place}: the schedule has {operation.name!r} of shapes "
            f"{operation.shapes}, the forward pass {call.name!r} of {shapes}"
        )
