"""The secret choice: a proxy chooses film reviews that a model is unsure of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxsel import models, proxy
from jaxsel._devices.typed import wrap_key_data
from jaxsel.data import info, load
from jaxsel.report import Chapter, Table

from ._secret import run_private, sides_table

DATA, MODEL = "movie_polarity", "minilm"
POOL, OTHERS = 700, 400  # reviews on offer, and unlabelled ones to distil on
SCHEDULE = (
    proxy.Phase(proxy.ProbeSpec(l2=1.0), keep=0.4, goal="logits"),
    proxy.Phase(
        proxy.Spec(
            1,
            12,
            attention=proxy.Emulator("linear", bias=True),
            norm=proxy.Emulator("polynomial", degree=2),
            read="mean",
        ),
        goal="logits",
        training=proxy.Training(4, 32, 1e-3),
    ),
)
_READ, _LENGTH = 1600, 48  # reviews that are encoded, and their tokens
_SHOWN = 8


class Reviews(NamedTuple):
    """Reviews, encoded, and the public encoder with a fresh head."""

    tokens: models.Tokens
    features: np.ndarray  # `[n, 4 H]`
    labels: np.ndarray
    words: np.ndarray
    target: models.Target


def texts_ready() -> bool:
    """Return whether the reviews and the model are prepared on this machine."""
    paths = {model.name: model.path for model in models.available_models()}
    return info(DATA).path is not None and paths[MODEL] is not None


def read_reviews(*, progress: bool = False) -> Reviews:
    """Return as many good reviews as bad ones; features are cached on disk."""
    data = load(DATA, split="train")
    order = np.random.default_rng(0).permutation(len(data.y))
    by_class = [order[np.asarray(data.y)[order] == c][: _READ // 2] for c in range(2)]
    rows = np.sort(np.concatenate(by_class))
    words = [str(text) for text in np.asarray(data.x)[rows]]
    folder = models.prepare_model(MODEL)
    target = models.load_target(folder, n_classes=2, read="mean", rngs=nnx.Rngs(0))
    assert target.tokenizer is not None
    features = models.text_features(
        words,
        models.load_target(folder),
        length=_LENGTH,
        layers=(0, 2, 4, 6),
        cache=models.cache_folder("features"),
        progress=progress,
    )
    tokens = models.tokenize(words, target.tokenizer, length=_LENGTH)
    labels = np.asarray(data.y)[rows].astype(np.int32)
    return Reviews(tokens, features, labels, np.array(words, dtype=object), target)


def run_texts(secure: Any, *, seed: int = 0, progress: bool = False) -> dict[str, Any]:
    """Choose reviews by a probe and by a proxy of one layer, and again in secret."""
    texts = read_reviews(progress=progress)
    # Of 64 bits, by which the guide's figures were drawn.
    bits = hashlib.sha256(f"jaxsel {seed} 1".encode()).digest()[:8]
    start = wrap_key_data(jnp.asarray(np.frombuffer(bits, "<u4")))
    offer, others = _deal(texts.labels, jax.random.fold_in(start, 0))
    width = texts.target.config.hidden
    every = proxy.Samples(texts.tokens, texts.features[:, width:])
    pool, distil = every.take(offer), every.take(others)
    phased = proxy.select(
        pool,
        SCHEDULE,
        round(0.2 * len(pool)),
        labels=lambda rows: texts.labels[offer[rows]],
        key=jax.random.fold_in(start, 1),
        secret=jax.random.key(seed),
        target=texts.target,
        bootstrap=0.1,
        distil=distil,
        progress=progress,
    )
    assert phased.target is not None
    candidates = np.setdiff1d(np.arange(len(pool)), phased.bootstrap)
    rest, base = pool.take(candidates), texts.target
    logits = phased.target.logits(rest.inputs)
    exact = np.asarray(proxy.entropy(jnp.asarray(logits)))
    scores = proxy.proxy_ranks(phased.proxies[-1], rest, base=base)
    chosen, private = phased.survivors[-1], None
    if secure.engine is not None:
        private = run_private(phased, pool, base, secure, seed=seed)
    bought = chosen if private is None else private["rows"]
    best = candidates[np.argsort(-exact, kind="stable")[: len(chosen)]]
    first = np.searchsorted(candidates, chosen[:_SHOWN])
    shown = np.stack([first, np.argsort(scores, kind="stable")[:_SHOWN]])
    lead = logits[:, 1] - logits[:, 0]
    rows = offer[candidates[shown]]
    words = [tuple(map(str, row)) for row in texts.words[rows]]
    spec = proxy.Spec(base.config.layers, base.config.heads, ffn="gelu", read="mean")
    itself = proxy.target_manifest(
        proxy.ablation(spec, "NoApprox"),
        base,
        n_classes=2,
        length=rest.inputs.ids.shape[1],
    )
    means = proxy.entropy_of_square(jnp.asarray(scores[np.isin(candidates, chosen)]))
    return {
        "offered": len(pool),
        "bootstrap": len(phased.bootstrap),
        "chosen": len(chosen),
        "left": tuple(len(rows) for rows in phased.survivors),
        "megabytes": sum(a.bytes + b.bytes for a, b in phased.costs()) / 1e6,
        "spearman": proxy.monotonicity(scores, exact),
        "overlap": float(np.isin(bought, best).mean()),
        "exact_megabytes": proxy.cost(itself, len(rest)).bytes / 1e6,
        "private": private,
        "missing": secure.missing,
        "agreed": float(np.isin(bought, chosen).mean()),
        "mean": float(means.mean()),
        "texts": tuple(words),
        "doubts": 1 / (1 + np.exp(-lead[shown])),
        "labels": texts.labels[rows],
    }


def _deal(labels: np.ndarray, key: jax.Array) -> list[np.ndarray]:
    """Return rows on offer and rows to distil on, of both classes alike."""
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(labels)))
    by_class, start, dealt = [order[labels[order] == c] for c in range(2)], 0, []
    for i, size in enumerate((POOL, OTHERS)):
        rows = np.concatenate([part[start : start + size // 2] for part in by_class])
        turn = jax.random.permutation(jax.random.fold_in(key, 2 + i), len(rows))
        dealt.append(rows[np.asarray(turn)])
        start += size // 2
    return dealt


def texts_chapter(result: Mapping[str, Any]) -> Chapter:
    """Return the chapter on the choice of reviews, of figures of `run_texts`."""
    first, last = result["left"]
    offered = result["offered"] - result["bootstrap"]
    overlap, random = result["overlap"], result["chosen"] / offered
    runs = [] if result["private"] is None else [result["private"]]
    blocks = (
        f"An owner offers {result['offered']:,} film reviews that nobody else may "
        "read, and the model that they are for is a secret too. "
        f"{result['bootstrap']} reviews are bought at random; the target, MiniLM, is "
        "fine-tuned on them. Taught by the target, a linear probe on features of the "
        f"public encoder leaves {first} reviews, and a proxy of the target's first "
        f"layer, without a softmax, chooses {last} of these (`jaxsel.proxy.select`). "
        "The last proxy's ranking of all reviews agrees with the target's own doubts "
        f"with Spearman's {result['spearman']:.2f}, and {overlap:.0%} of what is "
        f"chosen the target would choose itself; at random that would be {random:.0%}.",
        _private(result),
        *(sides_table(run, offered=offered) for run in runs),
        *map(
            _table,
            ("What ranks first, and would be bought", "What ranks last"),
            result["texts"],
            result["doubts"],
            result["labels"],
        ),
        "Beside each review stands the target's probability that it is positive, which "
        "the proxy never saw for these reviews, and its label, which only a buyer "
        "learns. Where the model is unsure, near 50 %, a label teaches most.",
    )
    title = (
        "Of the reviews that a proxy chooses, the model itself would choose "
        f"{overlap:.0%}; at random {random:.0%}"
    )
    return Chapter(title=title, blocks=blocks, data=dict(result))


def _private(result: Mapping[str, Any]) -> str:
    counted = (
        "the target itself on the same reviews would move "
        f"{result['exact_megabytes'] / 1000:,.0f} GB (counted on CrypTen, not run)"
    )
    run, missing = result["private"], result["missing"]
    if run is None:
        return (
            f"Run in secret, that would move {result['megabytes']:,.0f} MB on CrypTen, "
            f"and {counted}. The secure phase is not installed here. {missing}."
        )
    if run["engine"] == "crypten":
        who = "CrypTen: the model owner, the data owner and a dealer of random numbers,"
        dealt = f", {run['dealer_megabytes']:,.0f} MB of the dealer's apart"
        caution = (
            " CrypTen as it ships is for measurement only: whoever sees its messages, "
            "the other party included, can open everything in less than a core-hour "
            f"by our estimate. {missing}."
        )
    else:
        who = (
            f"SPU (`{run['engine']}`): the model owner, the data owner and a helper, "
            "who must collude with neither,"
        )
        dealt = caution = ""
    outcomes = " and ".join(f"{compared:,}" for compared in run["compared"])
    return (
        f"That was then run in secret (`mpc_bridge.run_selection`) on {who} three "
        f"processes that share nothing but messages: {run['seconds']:.0f} s, "
        f"{run['rounds']:,} rounds and {run['megabytes']:,.0f} MB{dealt}; {counted}. "
        f"{result['agreed']:.0%} of what was chosen in secret was chosen in the clear "
        "too. What was opened: which reviews are left after each phase, the outcomes "
        f"of {outcomes} comparisons, and at the end the mean entropy of what was "
        f"chosen, {run['mean']:.3f} nats; in the clear it is {result['mean']:.3f}."
        f"{caution}"
    )


def _table(
    caption: str, texts: Sequence[str], doubts: np.ndarray, labels: np.ndarray
) -> Table:
    return Table(
        columns=("Review", "Positive?", "Label"),
        rows=[
            (text, float(doubt), "positive" if label else "negative")
            for text, doubt, label in zip(texts, doubts, labels, strict=True)
        ],
        formats=("", ".0%", ""),
        caption=caption,
    )
