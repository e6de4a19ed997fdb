"""Scores of samples: functions of a classifier's logits, higher is better.

A sample is worth buying where the model is in doubt. Each score has a secure form, that
the manifest names: two classes need one squaring, whatever the score.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from jaxsel._inputs.checks import check_choice

from ._manifest import KINDS, Kind
from ._mlp import along
from .families._score_exact import entropy, margin


def score(
    logits: Float[jax.Array, "*n C"],
    kind: Kind = "entropy",
    *,
    prior: npt.ArrayLike | None = None,
) -> Float[jax.Array, "*n"]:
    """Return how much each sample is worth buying: a pure kernel.

    Args:
        logits: Array of shape `[..., C]`.
        kind: "entropy": of the softmax, in nats, as in the paper. "prior_entropy": the
            same with the probabilities divided by `prior` first. A classifier trained
            on few samples of a rare class thinks it rare everywhere, and its entropy is
            highest where it misplaces the border. "margin": minus the lead of the
            likeliest class over the next, in logits.
        prior: `[C]`, shares of the classes among the samples that the classifier was
            trained on; for "prior_entropy".

    Returns:
        Array of shape `[...]`.

    Raises:
        ValueError: For an unknown kind, a prior that is missing or not asked for, or
            one of another shape.

    References:
        Ouyang et al., SelectFormer, section 2.2 (entropy).
    """
    check_choice("kind", kind, KINDS)
    if (prior is not None) != (kind == "prior_entropy"):
        raise ValueError(
            f"prior must be given for 'prior_entropy', and for no other kind: got "
            f"{'one' if prior is not None else 'none'} for {kind!r}"
        )
    if kind == "margin":
        return margin(logits)
    if prior is not None:
        logits = logits - along(log_prior(prior, logits.shape[-1]), logits)
    return entropy(logits)


def log_prior(prior: npt.ArrayLike, n_classes: int) -> Float[jax.Array, " C"]:
    """Return the log prior `[C]`, to subtract from logits: free in the secure phase.

    Args:
        prior: `[C]`, shares of the classes; they need not sum to 1.
        n_classes: C.

    Raises:
        ValueError: If the prior is not of shape `[C]`, or not above zero.
    """
    shares = jnp.asarray(prior)
    if shares.shape != (n_classes,):
        raise ValueError(f"prior must have shape {(n_classes,)}, got {shares.shape}")
    if not isinstance(prior, jax.Array) and not (np.asarray(prior) > 0).all():
        raise ValueError(f"prior must be above zero for every class, got {shares}")
    return jnp.log(shares / jnp.sum(shares))


def entropy_of_square(values: Float[jax.Array, "*n"]) -> Float[jax.Array, "*n"]:
    """Turn the square's scores of two classes, `-(z1 - z0)²`, into entropies, in nats.

    The square ranks as the entropy does, but its mean says nothing: appraisal converts
    opened scores with this, or computes it in secret.

    Args:
        values: Array of shape `[...]`, at most 0.

    Returns:
        Array of the same shape, from 0 to log 2.
    """
    lead = jnp.sqrt(jnp.maximum(-values, 0))
    # With lead d: log(1 + e^-d) + d / (1 + e^d), of which no term overflows.
    return jnp.log1p(jnp.exp(-lead)) + lead * jax.nn.sigmoid(-lead)
