"""Attacks on a proxy by the answer of a secure choice, for its owner to run before.

No protocol hides its own answer. A data owner knows every sample's features. The rows
that are chosen, and under `leak="rank"` the outcomes of comparisons with pivots, are
labels that the proxy has given to these features, and anybody can fit labels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    check_count,
    check_features,
    check_finite,
    check_same_length,
)
from jaxsel.models import Target
from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._monotonicity import monotonicity
from jaxsel.proxy._parties._data_owner import DataOwner
from jaxsel.proxy._parties._plan import Samples
from jaxsel.proxy._parties._proxy_maker import Prepared
from jaxsel.proxy._probe import Probe, initial_probe
from jaxsel.proxy._proxy import Proxy

from ._attacked import (
    Leak,
    attacked_features,
    best_recoveries,
    check_options,
    standardised,
)
from ._attacks import Readout, Surrogate, readout_of, score_outputs
from ._quickselect import declare
from ._recovery import Leakage, Recovery

_DRAWN = 2000  # fresh samples that `expected_leakage` draws


def leakage(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    keep: float,
    mask: npt.ArrayLike | jax.Array | None = None,
    *,
    features: npt.ArrayLike | jax.Array | None = None,
    held_out: float = 0.2,
    seed: int = 0,
    leak: Leak = "rank",
    steps: int = 200,
    enough: float = 1.0,
) -> Leakage:
    """Attack a proxy with the answer that a secure choice by it would give.

    For the model owner, before a run: the choice is simulated in the clear on samples
    that it has, of the kind that the pool holds. The attacker is the data owner: it
    knows the samples, the manifest, the pivots' seed and the answer, and not the
    weights. The leak grows with the number of samples, so that as many should be given
    as the pool holds, or of a later phase as are left to it.

    A probe's features are attacked as they are. Of a transformer's rows the attacks
    read the mean and the first row, and of token ids their bag, so that for these
    proxies the figures bound the leak more loosely; `features` may tell more.

    Args:
        proxy: The proxy, with its parameters.
        x: Samples as the proxy reads them, see `Proxy.logits`.
        keep: Rows that the choice leaves, or below 1 their share.
        mask: `[n, L]`, which rows are no padding; all if None.
        features: Features that the attacker reads instead, `[n, d]`, such as those of
            the public base model.
        held_out: Share of the samples that the choice doesn't see: attacks are judged
            by how they rank these.
        seed: Public seed of the pivots, of the held-out split and of random starts.
        leak: "rank": outcomes of all comparisons are declared. "set": only the set.
        steps: L-BFGS steps of a fit, at most.
        enough: The rank correlation at which no further attack is made.

    Returns:
        The recoveries of the best attacks. For each kind of answer about ten fits, of
        a few passes a step over the attacker's features, n·d, and some d³.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, values are not finite, or an argument is out of
            range.

    References:
        Tramèr et al., Stealing Machine Learning Models via Prediction APIs, USENIX
        Security 2016 (models are recovered from their answers); Candès, Li and
        Soltanolkotabi, Phase Retrieval via Wirtinger Flow, IEEE Transactions on
        Information Theory 61(4), 2015, algorithm 1 (spectral start).
    """
    check_options(leak, seed, steps, enough)
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie between 0 and 1, got {held_out}")
    logits = proxy.logits(x, mask)
    truth = np.asarray(proxy.scores(logits), np.float64)
    check_finite("the proxy's scores", truth)
    if features is None:
        read = attacked_features(proxy.manifest, x, mask)
    else:
        check_finite("features", values := check_features("features", features))
        check_same_length("features", values, "x", truth)
        read = np.asarray(values, np.float32)
    n, fresh = len(truth), round(held_out * len(truth))
    if fresh < 2 or n - fresh < 2:
        raise ValueError(
            f"x must hold two samples to choose from and two to hold out, got {n} with "
            f"held_out {held_out}"
        )
    order = np.random.default_rng(seed).permutation(n)
    directions = None
    if not proxy.manifest.layers and features is None:
        directions = _directions(proxy.params["head"])
    return _measure(
        proxy.manifest,
        read[order],
        truth[order],
        n - fresh,
        _rows(keep, n - fresh),
        directions,
        seed=seed,
        leak=leak,
        steps=steps,
        enough=enough,
    )


def leakage_by_phase(
    prepared: Prepared,
    samples: Samples,
    *,
    base: Target | None = None,
    held_out: float = 0.2,
    seed: int = 0,
    leak: Leak = "rank",
    steps: int = 200,
    enough: float = 1.0,
) -> tuple[Leakage, ...]:
    """Attack the proxy of each phase, on samples that stand for the pool.

    Phases keep the shares that they keep of the pool, so that the last one is attacked
    on the samples that the others leave.

    Args:
        prepared: The model owner's proxies, and their public part.
        samples: Samples of the kind that the pool holds, and as many if there are.
        base: The public base model that embeds them; not needed by probes.
        held_out: As for `leakage`.
        seed: As for `leakage`.
        leak: As for `leakage`.
        steps: As for `leakage`.
        enough: As for `leakage`.

    Returns:
        One `Leakage` for each phase. Each costs what `leakage` does.

    Raises:
        TypeError: As `leakage` does.
        ValueError: If the samples lack what a proxy reads, too few are left for a
            phase, or as `leakage` does.
    """
    options: Any = {
        "held_out": held_out,
        "seed": seed,
        "leak": leak,
        "steps": steps,
        "enough": enough,
    }
    published = prepared.published
    leakages: list[Leakage] = []
    before = published.n - len(published.bootstrap)
    for proxy, keep in zip(prepared.proxies, published.keeps, strict=True):
        x, mask = DataOwner(pool=samples, base=base).proxy_inputs(proxy.manifest)
        share, before = keep / before, keep
        leakages.append(leakage(proxy, x, share, mask, **options))
        scores = proxy.scores(proxy.logits(x, mask))
        best = np.argsort(-scores, kind="stable")[: round(share * len(samples))]
        samples = samples.take(np.sort(best))
    return tuple(leakages)


def expected_leakage(
    manifest: Manifest,
    n: int,
    keep: int,
    *,
    seed: int = 0,
    leak: Leak = "rank",
    steps: int = 200,
    enough: float = 1.0,
) -> Leakage:
    """Return the expected leakage of a choice by a linear probe, from its manifest.

    The attacks of `leakage`, on a random probe and standard normal features. Features
    of an encoder vary along few directions, and are recovered from fewer samples: a
    probe that is safe here may not be safe there.

    Args:
        manifest: Of a linear probe, see `probe_manifest`.
        n: Samples in the pool.
        keep: Rows that the choice leaves.
        seed: As for `leakage`; of weights and features as well.
        leak: As for `leakage`.
        steps: As for `leakage`.
        enough: As for `leakage`.

    Raises:
        TypeError: If a count is no whole number.
        ValueError: If the proxy is no linear probe, or `keep` not below n.
    """
    check_options(leak, seed, steps, enough)
    n = check_count("n", n, minimum=2)
    keep = _rows(check_count("keep", keep), n)
    if not is_linear_probe(manifest):
        raise ValueError(
            "manifest must be of a linear probe, of which weights can be drawn; "
            "measure other proxies by leakage, on the model owner's side"
        )
    width, rng = manifest.inputs.width, np.random.default_rng(seed)
    x = rng.normal(size=(n + _DRAWN, width)).astype(np.float32)
    sizes = (width, manifest.head.n_classes)
    probe = initial_probe(sizes, jax.random.key(seed), random=True)
    outputs = probe(jnp.asarray(x))
    readout: Readout = readout_of(manifest)
    if readout == "square":
        # Of two classes attacks fit the difference of the logits.
        outputs = outputs[:, 1:] - outputs[:, :1]
    truth = np.asarray(score_outputs(outputs, readout), np.float64)
    directions = _directions(probe)
    return _measure(
        manifest,
        x,
        truth,
        n,
        keep,
        directions,
        seed=seed,
        leak=leak,
        steps=steps,
        enough=enough,
    )


def is_linear_probe(manifest: Manifest) -> bool:
    """Return whether a manifest describes a linear probe.

    Args:
        manifest: Of any proxy.
    """
    return manifest.inputs.kind == "features" and not manifest.head.width


def _measure(
    manifest: Manifest,
    x: np.ndarray,
    truth: np.ndarray,
    n: int,
    keep: int,
    directions: np.ndarray | None,
    *,
    seed: int,
    leak: Leak,
    steps: int,
    enough: float,
) -> Leakage:
    """Attack a choice of `keep` of the first n samples; the others are fresh."""
    read, varies, scale = standardised(x, n)
    if directions is not None:
        # In units of the standardised features, as surrogates have them.
        directions = directions[varies] * scale[varies, None]
    declared = declare(truth[:n], keep, seed=seed)

    def judge(surrogate: Surrogate) -> Recovery:
        scores = surrogate.scores(read[n:])
        cosine = None
        if directions is not None and surrogate.directions is not None:
            cosine = _cosine(surrogate.directions, directions)
        return Recovery(
            surrogate.name,
            monotonicity(scores, truth[n:]),
            _overlap(scores, truth[n:], keep / n),
            cosine,
        )

    options: Any = {"seed": seed, "steps": steps, "enough": enough}
    outcomes, chosen = best_recoveries(
        read[:n],
        declared.levels if leak == "rank" else None,
        declared.chosen,
        manifest,
        judge,
        **options,
    )
    return Leakage(
        n=n,
        keep=keep,
        width=int(varies.sum()),
        fresh=len(x) - n,
        passes=declared.passes,
        outcomes=outcomes,
        chosen=chosen,
    )


def _rows(keep: float, n: int) -> int:
    """Return how many rows are chosen of n."""
    share = not isinstance(keep, int | np.integer)
    if share and not 0 < keep < 1:
        raise ValueError(f"keep must be a count, or a share between 0 and 1: {keep}")
    rows = max(1, round(keep * n)) if share else check_count("keep", keep)
    if rows >= n:
        raise ValueError(
            f"keep must be below the {n} samples to choose from, got {keep}"
        )
    return rows


def _directions(head: Probe) -> np.ndarray | None:
    """Return a linear classifier's weights less their mean, `[d, C]`."""
    if len(head.weights) != 1:
        return None
    weights = np.asarray(head.weights[0], np.float64)
    return weights - weights.mean(1, keepdims=True)


def _cosine(recovered: np.ndarray, true: np.ndarray) -> float:
    """Return the mean cosine of the principal angles between two column spaces."""
    from scipy import linalg

    if recovered.shape[1] > 1:
        recovered = (recovered - recovered.mean(1, keepdims=True))[:, :-1]
    # The columns of classes sum to 0: all but one span the same space.
    angles: Any = linalg.subspace_angles(recovered, true[:, :-1])
    return float(np.cos(angles).sum() / (true.shape[1] - 1))


def _overlap(scores: np.ndarray, truth: np.ndarray, share: float) -> float:
    count = max(1, round(share * len(truth)))
    named, best = (np.argsort(-values)[:count] for values in (scores, truth))
    return len(np.intersect1d(named, best)) / count
