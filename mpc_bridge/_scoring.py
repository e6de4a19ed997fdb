"""The data owner's samples through the model owner's proxy, to secret scores."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel._inputs.checks import check_count
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._runs.progress import track
from jaxsel.proxy import (
    Manifest,
    check_ring,
    fix_head,
    fold,
    operand_shapes,
    scale_head,
)

from ._export import read_manifest, read_weights
from ._handshake import SessionError
from ._inputs import prepare_bounded, shapes_of
from ._ledger import Ledger
from ._programs import Forward, Outside
from .engines import DATA_OWNER, MODEL_OWNER, Engine, Secret, Unseen

Read = Callable[[slice], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class SecureProxy:
    """A proxy with secret-shared weights, which only the model owner holds.

    Attributes:
        manifest: Its architecture.
        weights: Shares of its operands, in the order of `Forward.weights`.
        ledger: Of the run; it counts each operation.
        unit: How many times as large as the clear proxy's its scores are: a power of
            two, public.
    """

    manifest: Manifest
    weights: tuple[Secret, ...]
    ledger: Ledger
    unit: float = 1.0

    def share_inputs(self, x: Any, mask: Any = None) -> tuple[Secret, ...]:
        """Share a batch of samples from the data owner; all parties call this.

        Args:
            x: On the data owner's side the samples, see `ClearProxy.forward`; on the
                others' how many there are.
            mask: `[n, L]` on the data owner's side, where samples are padded.

        Raises:
            ValueError: If a shape is not the manifest's, or a value not finite or above
                the manifest's bound. Nothing is shared then.
        """
        engine = self.ledger.engine
        if engine.rank == DATA_OWNER:
            arrays = prepare_bounded(self.manifest, x, mask)
        else:
            arrays = shapes_of(self.manifest, x)
        with self.ledger.step("inputs", "share"):
            return engine.share(DATA_OWNER, *arrays)

    def score(self, *batches: tuple[Secret, ...]) -> list[Secret]:
        """Return the secret scores of batches of `share_inputs`, `[n]` each."""
        lanes = [(*self.weights, *batch) for batch in batches]
        engine = self.ledger.engine
        program = Forward(self.manifest, engine.spare_bits, engine.watches)
        return self.ledger.run_lanes(program, lanes)


def share_proxy(
    source: str | os.PathLike[str] | Manifest,
    *,
    ledger: Ledger,
    arrays: Mapping[str, np.ndarray] | None = None,
    enlarge: bool = False,
) -> SecureProxy:
    """Share a proxy's weights from the model owner; all parties call this together.

    Args:
        source: The folder of `export` on the model owner's side; on the others' the
            manifest alone, or a folder with it.
        ledger: Of the run.
        arrays: The model owner's weights, where they have been read before.
        enlarge: Whether a head of scale-free scores is scaled up to the ring's bound,
            so that small margins keep their digits: scores are `unit` times as large.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file does not fit: it is named. If the manifest does not fit
            the engine's fraction bits.
    """
    manifest = source if isinstance(source, Manifest) else read_manifest(source)
    engine = ledger.engine
    owns = engine.rank == MODEL_OWNER or engine.published
    if owns and arrays is None:
        if isinstance(source, Manifest):
            raise ValueError("source must be a folder with weights for the model owner")
        arrays = read_weights(source, manifest)
    unit = 1.0
    if not engine.published:
        limits = ring_of(type(engine), engine.fraction_bits)
        manifest = manifest if enlarge else fix_head(manifest)
        if arrays is not None:
            check_ring(manifest, arrays, **limits)
        manifest, arrays, unit = scale_head(manifest, arrays, **limits)
    if owns:
        folded = fold(manifest, arrays or {}, spare_bits=engine.spare_bits)
        operands = tuple(folded[name] for name in operand_shapes(manifest))
    else:
        operands = tuple(map(Unseen, operand_shapes(manifest).values()))
    with ledger.step("weights", "share"):
        weights = engine.share(MODEL_OWNER, *operands)
    return SecureProxy(manifest, weights, ledger, unit)


def ring_of(engine: type[Engine], fraction_bits: int) -> dict[str, Any]:
    """Return an engine's ring, as `check_ring` and `scale_head` take it."""
    return {
        "fraction_bits": fraction_bits,
        "ring": engine.ring,
        "spare_bits": engine.spare_bits,
        "exact_cut": engine.exact_cut,
    }


def most_fraction_bits(
    engine: type[Engine],
    proxies: Sequence[tuple[Manifest, Mapping[str, np.ndarray]]],
    check: Callable[[int], object] = lambda bits: None,
) -> int:
    """Return the most fraction bits of an engine with which proxies fit its ring.

    Args:
        engine: Of the run.
        proxies: Manifests and their weights.
        check: Gets a number of bits; may raise a ValueError, too.

    Raises:
        ValueError: If they fit with none: what is wrong with the most.
    """
    errors: list[ValueError] = []
    for bits in range(engine.most_bits, engine.fewest_bits - 1, -1):
        try:
            for manifest, arrays in proxies:
                check_ring(manifest, arrays, **ring_of(engine, bits))
            check(bits)
        except ValueError as refused:
            errors.append(refused)
        else:
            return bits
    raise errors[0]


def to_crypten(
    source: str | os.PathLike[str] | Manifest, *, ledger: Ledger | None = None
) -> SecureProxy:
    """Do as `share_proxy`, on CrypTen as it is initialised in this process."""
    return share_proxy(source, ledger=ledger or Ledger())


def score_pool(
    proxy: SecureProxy,
    n: int,
    read: Read | None = None,
    *,
    batch_size: int | None = None,
    lanes: int | None = None,
    memory: int = 2 << 30,
    progress: bool = False,
) -> Secret:
    """Return the secret scores of n samples, `[n]`.

    All parties call this with the same arguments but `read`.

    Args:
        proxy: Of `share_proxy`.
        n: Samples.
        read: On the data owner's side: samples and masks of some rows, in the order of
            the pool; called once for each batch. None on the others' side.
        batch_size: Samples of a batch at most; None takes as many as fit into `memory`.
        lanes: Batches that run at once, where the engine can: CrypTen makes their small
            operations as one, ABY3 waits for all of them together. None is the number
            that suits the engine and the proxy.
        memory: Bytes that this party may use for what depends on the batch.
        progress: Show a progress bar with the time left.

    Samples of which a number lies beyond the manifest's bounds within an encoder, where
    the ring may not hold it, are ranked last on engines that watch. How many there are
    is opened.

    Raises:
        ValueError: If a count is not positive, or samples don't fit the manifest.
        SessionError: If more than a twentieth of the samples lie beyond the bounds.

    Warns:
        UserWarning: If any does, unless the ledger has another way to say so.
    """
    engine = proxy.ledger.engine
    n = check_count("n", n)
    operations = Forward(proxy.manifest).schedule()
    lanes = engine.lanes_for(operations) if lanes is None else lanes
    lanes = check_count("lanes", lanes)
    if batch_size is None:
        batch_size = engine.batch_for(operations, check_count("memory", memory))
    batch_size = engine.batch_of(n, check_count("batch_size", batch_size), lanes)
    chunks = list(chunk_slices(n, batch_size))
    groups = [chunks[i : i + lanes] for i in range(0, len(chunks), lanes)]
    scores = []
    with engine.running():
        for group in track(groups, progress=progress, label="Scores"):
            scores += proxy.ledger.journal.secrets(
                lambda group=group: _score(proxy, group, read)
            )
        joined = engine.join(scores)
        if engine.watches and proxy.manifest.watched:
            _count_outside(proxy, joined, n)
        return joined


_MOST_OUTSIDE = 1 / 20
"""Of the samples of a phase: more speak for bounds of other samples."""


def _count_outside(proxy: SecureProxy, scores: Secret, n: int) -> None:
    """Open how many samples lie beyond the bounds, before anything is chosen.

    Raises:
        SessionError: If they are too many.
    """
    ledger = proxy.ledger

    def count() -> np.ndarray:
        number = ledger.run(Outside(proxy.manifest.outside), scores)
        with ledger.step("scores", "open"):
            return ledger.open("outside", number)

    number = int(ledger.journal.opened(count).item())
    ledger.outside[ledger.phase] = number
    if not number:
        return
    message = (
        f"{ledger.phase or 'scoring'}: {number:,} of {n:,} samples make the proxy "
        "leave its bounds, and rank last. The data owner can look for rows unlike the "
        "others, such as longer or larger ones, and exclude them; the model owner can "
        "export the proxy with bounds of more samples like the pool's, or of a larger "
        "margin (with_bounds, margin=)"
    )
    if number > max(1, _MOST_OUTSIDE * n):
        raise SessionError(
            f"at most {_MOST_OUTSIDE:.0%} of the samples may lie beyond the bounds: "
            f"{message}. Nothing was chosen"
        )
    ledger.warn(message)


def _score(
    proxy: SecureProxy, group: Sequence[slice], read: Read | None
) -> list[Secret]:
    """Return the scores of batches that run in step."""
    shared = []
    for rows in group:
        count = rows.stop - rows.start
        inputs = (count,) if read is None else read(rows)
        if read is not None and np.shape(inputs[0])[:1] != (count,):
            raise ValueError(
                f"read must return {count} samples for {rows}, got an array of shape "
                f"{np.shape(inputs[0])}"
            )
        shared.append(proxy.share_inputs(*inputs))
    return proxy.score(*shared)
