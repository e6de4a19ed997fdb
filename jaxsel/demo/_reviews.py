"""The demo's chapter on texts: a proxy chooses reviews that a model is unsure of."""

from __future__ import annotations

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._typed import wrap_key_data
from jaxsel.data import info
from jaxsel.models import available_models
from jaxsel.proxy import (
    Emulator,
    Phase,
    Phased,
    ProbeSpec,
    Samples,
    Spec,
    Training,
    ablation,
    cost,
    entropy,
    entropy_of_square,
    monotonicity,
    proxy_ranks,
    select,
    target_manifest,
)
from jaxsel.report import Chapter, Table

from ._secret import PrivateRun, SecurePhase, run_private, secure_phase, sides_table
from .texts import Deal, Sizes, Texts, deal, read_texts, tuned

DATA, MODEL = "movie_polarity", "minilm"
SIZES = Sizes(pool=700, own=400, bootstrap=0.1)
SCHEDULE = (
    Phase(ProbeSpec(l2=1.0), keep=0.4, goal="logits"),
    Phase(
        Spec(
            1,
            12,
            attention=Emulator("linear", bias=True),
            norm=Emulator("polynomial", degree=2),
            read="mean",
        ),
        goal="logits",
        training=Training(4, 32, 1e-3),
    ),
)
_READ = 1600  # reviews that are encoded
_SHOWN = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPurchase:
    """Results of buying reviews by a proxy's scores.

    Attributes:
        offered: Reviews in the pool.
        bootstrap: Reviews that are bought at random.
        chosen: Reviews that are chosen after that.
        left: Reviews that each phase leaves.
        megabytes: Payload of the secure run, counted on CrypTen.
        spearman: Rank correlation of the last phase's scores with the target's
            entropies, on the pool but the bootstrap set.
        overlap: Share of the chosen that the target itself would choose.
        exact_megabytes: Payload of the target itself on the same pool, counted.
        private: The same choice made in secret, or None if the secure phase is not
            installed.
        missing: Why that did not run on SPU; empty if it did.
        agreed: Share of the reviews chosen in secret that the clear run chooses, too.
        mean: The chosen reviews' mean entropy by the last proxy, in the clear.
        accuracy: On reviews that nobody offers, of the target fine-tuned on the
            bootstrap set, on as many more reviews bought at random, and on those that
            were chosen.
        tested: Number of reviews that measure `accuracy`.
        texts: The reviews that rank highest, and the ones that rank lowest.
        doubts: Probability of a positive review by the target, for each text.
        labels: Their labels, known once they are bought.
    """

    offered: int
    bootstrap: int
    chosen: int
    left: tuple[int, ...]
    megabytes: float
    spearman: float
    overlap: float
    exact_megabytes: float
    private: PrivateRun | None
    missing: str
    agreed: float
    mean: float
    accuracy: tuple[float, float, float]
    tested: int
    texts: tuple[tuple[str, ...], tuple[str, ...]]
    doubts: np.ndarray
    labels: np.ndarray


def texts_ready() -> bool:
    """Return whether the reviews and the model are prepared on this machine."""
    models = {model.name: model.path for model in available_models()}
    return info(DATA).path is not None and models[MODEL] is not None


def run_texts(
    *,
    secure: SecurePhase | None = None,
    seed: int = 0,
    progress: bool = False,
) -> TextPurchase:
    """Choose reviews in two phases, by a probe and by a proxy of one layer.

    If the secure phase is installed the same choice is made in secret, by processes on
    this machine.

    Args:
        secure: Engine of the choice in secret; that of `secure_phase` if None.
        seed: Seed of all draws.
        progress: Whether to show progress bars.

    Raises:
        FileNotFoundError: If the reviews are not prepared; names the command.
        RuntimeError: If the secure run fails.
    """
    texts = read_texts(DATA, _READ, progress=progress)
    # Of 64 bits, by which the guide's figures were drawn.
    words = np.frombuffer(
        hashlib.sha256(f"jaxsel {seed} 1".encode()).digest()[:8], "<u4"
    )
    start = wrap_key_data(jnp.asarray(words))
    keys = [jax.random.fold_in(start, i) for i in range(4)]
    dealt = deal(texts.labels, SIZES, keys[0])
    pool, distil = _samples(texts, dealt.pool), _samples(texts, dealt.own)
    phased = select(
        pool,
        SCHEDULE,
        round(SIZES.budget * len(pool)),
        labels=lambda rows: texts.labels[dealt.pool[rows]],
        key=keys[1],
        secret=jax.random.key(seed),
        target=texts.target,
        bootstrap=SIZES.bootstrap,
        distil=distil,
        progress=progress,
    )
    assert phased.target is not None
    candidates = np.setdiff1d(np.arange(len(pool)), phased.bootstrap)
    logits = phased.target.logits(pool.take(candidates).inputs)
    exact = np.asarray(entropy(jnp.asarray(logits)))
    scores = proxy_ranks(phased.proxies[-1], pool.take(candidates), base=texts.target)
    chosen, private = phased.survivors[-1], None
    if secure is None:
        secure = secure_phase()
    if secure.engine is not None:
        private = run_private(
            phased,
            pool,
            texts.target,
            engine=secure.engine,
            python=secure.python,
            seed=seed,
        )
    bought = chosen if private is None else private.rows
    best = candidates[np.argsort(-exact, kind="stable")[: len(chosen)]]
    first = np.searchsorted(candidates, chosen[:_SHOWN])
    shown = np.stack([first, np.argsort(scores, kind="stable")[:_SHOWN]])
    lead = logits[:, 1] - logits[:, 0]
    counted = phased.costs()
    words = tuple(map(str, texts.words[dealt.pool[candidates[shown.ravel()]]]))
    return TextPurchase(
        offered=len(pool),
        bootstrap=len(phased.bootstrap),
        chosen=len(chosen),
        left=tuple(len(rows) for rows in phased.survivors),
        megabytes=sum(a.bytes + b.bytes for a, b in counted) / 1e6,
        spearman=monotonicity(scores, exact),
        overlap=float(np.isin(bought, best).mean()),
        exact_megabytes=_exact_bytes(texts, len(candidates)) / 1e6,
        private=private,
        agreed=float(np.isin(bought, chosen).mean()),
        mean=float(
            entropy_of_square(jnp.asarray(scores[np.isin(candidates, chosen)])).mean()
        ),
        accuracy=_accuracy(texts, dealt, phased, bought, keys[2:]),
        tested=len(texts.labels) - len(dealt.pool) - len(dealt.own),
        missing=secure.missing,
        texts=(words[:_SHOWN], words[_SHOWN:]),
        doubts=1 / (1 + np.exp(-lead[shown])),
        labels=texts.labels[dealt.pool[candidates[shown]]],
    )


def _exact_bytes(texts: Texts, n: int) -> float:
    """Return the payload of the target itself on n texts, nothing emulated."""
    config = texts.target.config
    exact = Spec(config.layers, config.heads, ffn="gelu", read="mean")
    manifest = target_manifest(
        ablation(exact, "NoApprox"),
        texts.target,
        n_classes=texts.n_classes,
        length=texts.tokens.ids.shape[1],
    )
    return cost(manifest, n).bytes


def _accuracy(
    texts: Texts,
    dealt: Deal,
    phased: Phased,
    bought: np.ndarray,
    keys: list[jax.Array],
) -> tuple[float, float, float]:
    """Return the target's accuracy by training set, as `TextPurchase` has it."""
    assert phased.target is not None
    test = np.setdiff1d(np.arange(len(texts.labels)), [*dealt.pool, *dealt.own])
    candidates = np.setdiff1d(np.arange(phased.n), phased.bootstrap)
    drawn = np.asarray(jax.random.permutation(keys[0], candidates))[: len(bought)]
    targets = [phased.target]
    for more in (drawn, bought):
        rows = dealt.pool[np.concatenate([phased.bootstrap, more])]
        targets.append(tuned(texts, rows, keys[1]))
    right = [
        float(np.mean(t.logits(texts.inputs(test)).argmax(1) == texts.labels[test]))
        for t in targets
    ]
    return right[0], right[1], right[2]


def _samples(texts: Texts, rows: np.ndarray) -> Samples:
    width = texts.target.config.hidden
    return Samples(texts.inputs(rows), texts.features[rows, width:])


def texts_chapter(result: TextPurchase) -> Chapter:
    """Return the chapter on the purchase of reviews."""
    first, last = result.left
    random = result.chosen / (result.offered - result.bootstrap)
    before, drawn, bought = result.accuracy
    error = (drawn * (1 - drawn) / result.tested) ** 0.5
    sides: tuple[Table, ...] = ()
    if result.private is not None:
        offered = result.offered - result.bootstrap
        sides = (sides_table(result.private, offered=offered),)
    blocks = (
        f"An owner offers {result.offered:,} film reviews that nobody else may read, "
        "and the model that they are for is a secret too. "
        f"{result.bootstrap} reviews are bought at random; the target, MiniLM, is "
        "fine-tuned on them. Taught by the target, a linear probe on features of the "
        f"public encoder leaves {first} reviews, and a proxy of the target's first "
        f"layer, without a softmax, chooses {last} of these (`jaxsel.proxy.select`). "
        "The last proxy's ranking of all reviews agrees with the target's own doubts "
        f"with Spearman's {result.spearman:.2f}, and {result.overlap:.0%} of what is "
        f"chosen the target would choose itself; at random that would be {random:.0%}.",
        _private(result),
        *sides,
        f"The target, fine-tuned on what was bought, is right about {bought:.1%} of "
        f"{result.tested:,} other reviews; with as many reviews bought at random "
        f"{drawn:.1%}, before {before:.1%} (standard error {error:.1%}: one purchase "
        "shows that all works, not how much is gained).",
        _table(result, 0, "What ranks first, and would be bought"),
        _table(result, 1, "What ranks last"),
        "Beside each review stands the target's probability that it is positive, which "
        "the proxy never saw for these reviews, and its label, which only a buyer "
        "learns. Where the model is unsure, near 50 %, a label teaches most.",
    )
    return Chapter(
        title=f"Of the reviews that a proxy chooses, the model itself would choose "
        f"{result.overlap:.0%}; at random {random:.0%}",
        blocks=blocks,
        data=dataclasses.asdict(result),
    )


def _private(result: TextPurchase) -> str:
    counted = (
        f"the target itself on the same reviews would move "
        f"{result.exact_megabytes / 1000:,.0f} GB (counted on CrypTen, not run)"
    )
    run = result.private
    if run is None:
        return (
            f"Run in secret, that would move {result.megabytes:,.0f} MB on CrypTen, "
            f"and {counted}. The secure phase is not installed here. "
            f"{result.missing}."
        )
    outcomes = " and ".join(f"{compared:,}" for compared in run.compared)
    if run.engine == "crypten":
        who = (
            "on CrypTen: the model owner, the data owner and a dealer of random "
            "numbers, three processes that share nothing but messages,"
        )
        dealt = f", {run.dealer_megabytes:,.0f} MB of the dealer's apart"
        caution = (
            " CrypTen as it ships is for measurement only: whoever sees its messages, "
            "the other party included, can open everything in less than a core-hour "
            f"by our estimate. {result.missing}."
        )
    else:
        who = (
            f"on SPU (`{run.engine}`): the model owner, the data owner and a helper, "
            "who must collude with neither, three processes that share nothing but "
            "messages,"
        )
        dealt = caution = ""
    return (
        f"That was then run in secret (`mpc_bridge.run_selection`) {who} took "
        f"{run.seconds:.0f} s, {run.rounds:,} rounds and {run.megabytes:,.0f} MB"
        f"{dealt}; {counted}. {result.agreed:.0%} of what was chosen in secret was "
        "chosen in the clear too. What was opened: which reviews are left after each "
        f"phase, the outcomes of {outcomes} comparisons, and at the end the mean "
        f"entropy of what was chosen, {run.mean:.3f} nats; in the clear it is "
        f"{result.mean:.3f}.{caution}"
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
