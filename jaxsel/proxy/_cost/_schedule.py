"""The secure forward pass as data: the operations that communicate, in order.

Between two operations a party only adds, scales by public numbers and reshapes its own
shares. `docs/secure-cost.md` explains the two plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._steps import run_steps, steps
from jaxsel.proxy.families._place import Call, Kind, Run, Shape, Shapes, SharedInputs

from ._operands import Operation as Operation
from ._owned import Owned, cat as cat_owned, result_of
from ._shaped import N, Shaped, cat, outcome

MODEL_OWNER, DATA_OWNER = 0, 1
"""Ranks."""

Operations = tuple[Operation, ...]


def schedule(manifest: Manifest) -> tuple[Operation, ...]:
    """Return every operation of the secure forward pass that communicates, in order.

    It follows from the manifest alone: the pass itself is run, on shapes.

    Args:
        manifest: The proxy.
    """
    return trace(manifest)[0]


def operand_shapes(manifest: Manifest) -> Shapes:
    """Return the shapes of the operands of `fold`, in the order they are asked for.

    Args:
        manifest: The proxy.

    Returns:
        Shapes by the names of `fold`.
    """
    return trace(manifest)[1]


def trace(manifest: Manifest) -> tuple[tuple[Operation, ...], Shapes]:
    """Return the schedule, and the shapes of the weights that the pass asks for."""
    weights, operations = Shapes(), list[Operation]()

    def weight(name: str, shape: Shape) -> Shaped:
        weights[name] = shape
        return Shaped(*shape)

    def note(call: Call) -> Any:
        shapes = tuple(operand.shape for operand in call.operands)
        operations.append(Operation(*call[:3], shapes, call.degree))
        return outcome(call)

    run = Run(manifest, weight, _inputs(manifest, Shaped), cat)
    run_steps(steps(manifest, run), note)
    return tuple(operations), weights


def owned_schedule(
    manifest: Manifest,
    private: Collection[int],
    spread: Collection[int] = (),
    *,
    spare_bits: int = 0,
) -> Operations:
    """Return the schedule of an engine where products with public numbers cost, too.

    Args:
        manifest: The proxy.
        private: Ranks of the owners whose arrays never leave them as shares; what one
            of them computes alone is not in the schedule.
        spread: Ranks of the owners whose arrays become shares before they are used.
            Only a batch's are in the schedule: weights become shares once.
        spare_bits: As `fold` is given them.
    """
    operations: list[Operation] = []
    place, name = "inputs", "x"

    def cost(kind: Kind, shape: Shape, owner: int | None) -> None:
        # The shared zero is made once a run.
        if kind != "zero" or all(earlier.kind != "zero" for earlier in operations):
            operation = Operation(place, name, kind, (shape,), owners=(owner,))
            operations.append(operation)

    def of(rank: int) -> Callable[..., Owned]:
        owner = rank if rank in private else None
        return lambda *shape: Owned(*shape, owner=owner, note=cost)

    def shared_input(*shape: int) -> Owned:
        if DATA_OWNER in spread:
            cost("share", shape, DATA_OWNER)
        return of(DATA_OWNER)(*shape)

    def note(call: Call) -> Any:
        nonlocal place, name
        place, name = call.place, call.name
        owners = tuple(operand.owner for operand in call.operands)
        # On operands that are all its own an owner computes by itself.
        if owners[0] is None or len(set(owners)) > 1:
            shapes = tuple(operand.shape for operand in call.operands)
            operation = Operation(*call[:3], shapes, call.degree, owners)
            operations.append(operation)
            if call.kind in ("softmax", "log_softmax"):
                cost("zero", (), None)
        return result_of(call)

    run = Run(
        manifest,
        lambda name, shape: of(MODEL_OWNER)(*shape),
        _inputs(manifest, shared_input),
        cat_owned,
        spare_bits,
        [] if manifest.watched else None,
    )
    run_steps(steps(manifest, run), note)
    return tuple(operations)


def _inputs(manifest: Manifest, make: Callable[..., Any]) -> SharedInputs:
    """Return a batch of inputs, as `make` makes operands of their shapes."""
    inputs = manifest.inputs
    width = (inputs.vocab or 0) if inputs.embed == "onehot" else inputs.width
    rows = () if inputs.kind == "features" else (inputs.length,)
    x = make(N, *rows, width)
    if not inputs.masked:
        return SharedInputs(x)
    mask, share = (make(N, inputs.length) for _ in range(2))
    return SharedInputs(x, mask, share, make(N, 1))
