"""KNN values over validation points that need not fit in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.alignment import row_index
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.rows import Rows
from jaxsel._results.types import Provenance, Values
from jaxsel._runs.fingerprint import fingerprint
from jaxsel._runs.progress import track
from jaxsel._runs.saved_stream import SavedStream

_ARRAYS = ("values", "m2", "count", "error_bound")
_NO_RESULT = {"mesh", "axis", "progress"}


def streamed_values(
    function: Callable[..., Values],
    x: Any,
    y: Any,
    validation: Rows,
    *,
    chunk_size: int = 4096,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 16,
    progress: bool = False,
    **options: Any,
) -> Values:
    """Value training points over validation points that are read a chunk at a time.

    Calls a KNN value for each chunk of validation points, and merges the results; a
    thread reads the next chunk meanwhile. Equals one call with all of them, up to
    rounding. Costs what that call costs, and once a chunk a check of the training
    points; memory for them and three chunks.

    Args:
        function: Such as `knn_shapley`, or another that takes the same arguments.
        x: Training features, `[n, d]`.
        y: Training labels, `[n]`.
        validation: Validation points with labels, from `data.open_rows`.
        chunk_size: Validation points at a time. A label that x lacks is allowed, but
            each chunk must share one.
        checkpoint: Folder in which to keep the values so far, or None. A call that was
            cut off goes on from there when it is repeated, with the same result.
        checkpoint_every: Chunks between two saves.
        progress: Whether to show a progress bar.
        **options: For `function`, such as `k`, `metric` and `mesh`.

    Returns:
        `Values`, `[n]`.

    Raises:
        TypeError: If `validation` is no `Rows`, or has no labels.
        ValueError: If `function` refuses a chunk, if `reduce` is None or `gather` is
            False, if a source changed, or if `checkpoint` holds another run.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import data
        >>> rng = np.random.default_rng(0)
        >>> x, x_val = rng.normal(size=(50, 3)), rng.normal(size=(1000, 3))
        >>> y, y_val = x[:, 0] > 0, x_val[:, 0] > 0
        >>> validation = data.open_rows(x_val, labels=y_val)  # or a parquet file
        >>> values = jaxsel.streamed_values(
        ...     jaxsel.knn_shapley, x, y, validation, chunk_size=500, k=5
        ... )
        >>> at_once = jaxsel.knn_shapley(x, y, x_val, y_val, k=5)
        >>> np.allclose(values.values, at_once.values, atol=1e-6)
        True
    """
    chunk_size = check_count("chunk_size", chunk_size)
    if not isinstance(validation, Rows):
        raise TypeError(
            "validation must be Rows, such as data.open_rows returns, got "
            f"{type(validation).__name__}"
        )
    if not validation.source.has_labels:
        raise TypeError("validation must have labels: open_rows(..., labels=...)")
    for name, refused in (("reduce", None), ("gather", False)):
        if name in options and options[name] is refused:
            raise ValueError(f"{name} must not be {refused} for parts that are merged")
    index = row_index(x)
    settings: dict[str, Any] = {}
    if checkpoint is not None:
        result_options = {k: v for k, v in options.items() if k not in _NO_RESULT}
        settings = {
            "function": fingerprint(function),
            "options": fingerprint(result_options),
            "train": fingerprint(np.asarray(x), np.asarray(y)),
            "validation": validation.about,
            "rows": chunk_size,
        }
    saved = SavedStream(checkpoint, checkpoint_every, settings)
    values: Values | None = None
    state: Any = {"row": 0}
    if (kept := saved.load()) is not None:
        state = kept[1].pop("state")
        values = _restore(*kept, index)
    total = None
    if validation.n is not None:
        total = -(-(validation.n - int(state["row"])) // chunk_size)
    with contextlib.closing(validation.chunks(chunk_size, start=state)) as chunks:
        for chunk in track(
            chunks, progress=progress, label="streamed_values", total=total
        ):
            try:
                part = function(x, y, chunk.features, chunk.labels, **options)
            except (ValueError, TypeError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(
                    f"{error} (in validation rows {chunk.start} to {chunk.stop - 1})"
                ) from error
            values = part if values is None else _merged(values, part)
            state = chunk.state
            if saved.count():
                _save(saved, values, state)
    assert values is not None
    _save(saved, values, state)
    return values


def _merged(a: Values, b: Values) -> Values:
    """Merge, also where two chunks are equal: they are other rows."""
    apart = [dataclasses.replace(values, provenance=None) for values in (a, b)]
    known = None
    if a.provenance is not None and b.provenance is not None:
        parts = dict.fromkeys((*a.provenance.parts, *b.provenance.parts))
        known = Provenance(a.provenance.source, tuple(parts))
    return dataclasses.replace(apart[0].merge(apart[1]), provenance=known)


def _save(saved: SavedStream, values: Values, state: Any) -> None:
    arrays = {name: getattr(values, name) for name in _ARRAYS}
    facts = {"method": values.method, "reduce": values.reduce, "state": state}
    if values.provenance is not None:
        facts["provenance"] = list(values.provenance)
    saved.save({k: v for k, v in arrays.items() if v is not None}, facts)


def _restore(
    arrays: dict[str, np.ndarray], facts: Any, index: tuple[Any, ...] | None
) -> Values:
    known = facts.pop("provenance", None)
    if known is not None:
        known = Provenance(known[0], tuple(known[1]))
    as_jax: dict[str, jax.Array] = {k: jnp.asarray(v) for k, v in arrays.items()}
    return Values(**as_jax, **facts, index=index, provenance=known)
