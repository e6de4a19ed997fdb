"""The demo's texts: a proxy chooses reviews that a model is unsure of, and why."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.data import info
from jaxsel.models import available_models
from jaxsel.proxy import (
    Phase,
    ProbeSpec,
    Samples,
    entropy,
    joint_key,
    monotonicity,
    proxy_ranks,
    select,
)
from jaxsel.report import Chapter, Table

from ._proxy_texts import Sizes, Texts, deal, read_texts

DATA, MODEL = "movie_polarity", "minilm"
SIZES = Sizes(pool=1000, own=500, bootstrap=0.1)
SCHEDULE = (
    Phase(ProbeSpec(l2=0.1), keep=0.5),
    Phase(ProbeSpec(l2=1.0), goal="logits"),
)
_READ = 1600  # reviews that are encoded
_SHOWN = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPurchase:
    """Which reviews a proxy would buy.

    Attributes:
        offered: Reviews in the pool.
        bootstrap: Reviews that are bought at random.
        chosen: Reviews that are chosen after that.
        left: Reviews that each phase leaves.
        megabytes: Payload of the secure run.
        spearman: Rank correlation of the last phase's scores with the target's
            entropies, on the pool but the bootstrap set.
        overlap: Share of the chosen that the target itself would choose.
        texts: Those that rank highest, and the ones that rank lowest.
        doubts: What the target says of each: probability of a positive review.
        labels: What they are; known once they are bought.
    """

    offered: int
    bootstrap: int
    chosen: int
    left: tuple[int, ...]
    megabytes: float
    spearman: float
    overlap: float
    texts: tuple[tuple[str, ...], tuple[str, ...]]
    doubts: np.ndarray
    labels: np.ndarray


def texts_ready() -> bool:
    """Return whether the reviews and the model are prepared on this machine."""
    models = {model.name: model.path for model in available_models()}
    return info(DATA).path is not None and models[MODEL] is not None


def run_texts(*, seed: int = 0, progress: bool = False) -> TextPurchase:
    """Choose reviews by two probes, distilled from a target, in two phases.

    Raises:
        FileNotFoundError: If the reviews are not prepared; names the command.
    """
    texts = read_texts(DATA, _READ, progress=progress)
    keys = [jax.random.fold_in(joint_key(seed, 1), i) for i in range(2)]
    dealt = deal(texts.labels, SIZES, keys[0])
    pool, own = _samples(texts, dealt.pool), _samples(texts, dealt.own)
    found = select(
        pool,
        SCHEDULE,
        round(SIZES.budget * len(pool)),
        labels=lambda rows: texts.labels[dealt.pool[rows]],
        key=keys[1],
        secret=jax.random.key(seed),
        target=texts.target,
        bootstrap=SIZES.bootstrap,
        distil=own,
        progress=progress,
    )
    assert found.target is not None
    rest = np.setdiff1d(np.arange(len(pool)), found.bootstrap)
    logits = found.target.logits(pool.take(rest).inputs)
    exact = np.asarray(entropy(jnp.asarray(logits)))
    scores = proxy_ranks(found.proxies[-1], pool.take(rest))
    chosen = found.survivors[-1]
    best = rest[np.argsort(-exact, kind="stable")[: len(chosen)]]
    first = np.searchsorted(rest, chosen[:_SHOWN])
    shown = np.stack([first, np.argsort(scores, kind="stable")[:_SHOWN]])
    lead = logits[:, 1] - logits[:, 0]
    counted = found.costs()
    words = tuple(map(str, texts.words[dealt.pool[rest[shown.ravel()]]]))
    return TextPurchase(
        offered=len(pool),
        bootstrap=len(found.bootstrap),
        chosen=len(chosen),
        left=tuple(len(rows) for rows in found.survivors),
        megabytes=sum(a.bytes + b.bytes for a, b in counted) / 1e6,
        spearman=monotonicity(scores, exact),
        overlap=float(np.isin(chosen, best).mean()),
        texts=(words[:_SHOWN], words[_SHOWN:]),
        doubts=1 / (1 + np.exp(-lead[shown])),
        labels=texts.labels[dealt.pool[rest[shown]]],
    )


def _samples(texts: Texts, rows: np.ndarray) -> Samples:
    width = texts.target.config.hidden
    return Samples(texts.inputs(rows), texts.features[rows, width:])


def texts_chapter(result: TextPurchase) -> Chapter:
    """Show what would be bought, and why."""
    first, last = result.left
    random = result.chosen / (result.offered - result.bootstrap)
    blocks = (
        f"An owner offers {result.offered:,} film reviews that nobody else may read, "
        "and the model that they are for is a secret too. "
        f"{result.bootstrap} reviews are bought at random; the target, MiniLM, is "
        "fine-tuned on them. A linear probe on features of the public encoder, fitted "
        "to the same reviews, leaves those that it is unsure of; another one, taught "
        f"by the target, chooses {last} of these {first} (`jaxsel.proxy.select`). Run "
        "in secret, that "
        f"would move {result.megabytes:,.0f} MB. Its ranking of all reviews agrees "
        f"with the target's own doubts with Spearman's {result.spearman:.2f}, and "
        f"{result.overlap:.0%} of what it chooses the target would choose itself; at "
        f"random that would be {random:.0%}.",
        _table(result, 0, "What ranks first, and would be bought"),
        _table(result, 1, "What ranks last"),
        "Beside each review stands the target's probability that it is positive, which "
        "the proxy never saw for these reviews, and its label, which only a buyer "
        "learns. Where the model is unsure, near 50 %, a label teaches most.",
    )
    return Chapter(
        title="Choosing texts that nobody may read",
        blocks=blocks,
        data=dataclasses.asdict(result),
    )


def _table(result: TextPurchase, which: int, caption: str) -> Table:
    rows = [
        (text, float(doubt), "positive" if label else "negative")
        for text, doubt, label in zip(
            result.texts[which],
            result.doubts[which],
            result.labels[which],
            strict=True,
        )
    ]
    return Table(
        columns=("Review", "Positive?", "Label"),
        rows=rows,
        formats=("", ".0%", ""),
        caption=caption,
    )
