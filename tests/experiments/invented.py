"""Invented texts and figures for the tests of proxies."""

import numpy as np
from flax import nnx

from experiments._kit.texts import Texts
from experiments.selectformer import sources
from experiments.selectformer.proxies import run
from experiments.selectformer.proxies.points import ATTACKED, RATES, candidates, points
from experiments.selectformer.scores.trial import BUDGETS, DRAWS, LARGER
from experiments.selectformer.sources import Encoded
from jaxsel.models import Classifier, EncoderConfig, Target, Tokens
from jaxsel.proxy import probe_manifest

L, VOCAB = 8, 40
CONFIG = EncoderConfig(
    kind="text",
    layers=3,
    heads=12,
    hidden=12 * 2,
    intermediate=12,
    vocab=VOCAB,
    positions=L,
    activation="relu",
)


def invented(n_classes, n=300):
    """Texts whose class is told by one of their words."""
    rng = np.random.default_rng(n_classes)
    labels = (np.arange(n) % n_classes).astype(np.int32)
    ids = rng.integers(n_classes, VOCAB, (n, L)).astype(np.int32)
    ids[:, 1] = labels
    mask = np.arange(L) < rng.integers(4, L + 1, (n, 1))
    model = Classifier(CONFIG, n_classes, read="mean", rngs=nnx.Rngs(0))
    target = Target(
        config=CONFIG,
        **dict(zip(("graphdef", "params"), nnx.split(model), strict=True)),
        read="mean",
    )
    tokens = Tokens(ids, mask)
    return Texts(
        name=f"of {n_classes}",
        tokens=tokens,
        features=target.features(tokens, layers=(0, 1, 2, 3)),
        labels=labels,
        n_classes=n_classes,
        target=target,
        words=np.array([f"text {i}" for i in range(n)]),
    )


def encoded(n_classes, n=900):
    texts = invented(n_classes, n)
    return Encoded(
        x=sources._scaled(texts.features[:, -CONFIG.hidden :]),
        y=texts.labels,
        n_classes=n_classes,
        inputs=texts.tokens,
        features=texts.features,
        target=texts.target,
    )


def invented_result(
    seeds=6, *, lead=0.3, gain=2.0, variants=False, stopped=(), refused=()
):
    """Invented figures: the probe ranks and buys better than the paper's phases."""
    names, made = (
        tuple(points(variants=variants)),
        tuple(candidates("text", variants=variants)),
    )
    rng = np.random.default_rng(0)
    noise = lambda *shape: 0.01 * rng.normal(size=(seeds, *shape))
    rho = np.where([name == "probe" for name in names], 0.4 + lead, 0.4)
    up = np.where([name == "probe" for name in names], gain / 100, 0.0)
    lost = np.where(
        [
            bool({n for n, _ in p.phases} & {*refused})
            for p in points(variants=variants).values()
        ],
        np.nan,
        0.0,
    )
    usual = np.full((1, len(BUDGETS) + len(LARGER), 1), 0.5)
    manifests = [
        probe_manifest(width=8, n_classes=2, head=64 if name == "hidden" else 0)
        for name in made
    ]
    pool = run.ProxyPool(
        n=np.full(seeds, 400),
        scores=noise(len(made), 300).astype(np.float32),
        oracle=noise(300).astype(np.float32),
        manifests=np.array([[one.to_json() for one in manifests]] * seeds),
        stopped=np.array([[name in stopped for name in made]] * seeds),
        refused=np.array([[name in refused for name in made]] * seeds),
        place=np.ones((seeds, len(made)), int),
        judged=np.full((seeds, len(made), len(RATES)), 0.5),
        emulated=np.ones((seeds, len(made))),
        outside=np.zeros((seeds, len(made))),
        inference=np.full((seeds, 1 + len(made)), 0.5),
        recovered=np.full((seeds, len(ATTACKED), 2), 0.6),
        spearman=lost + rho + noise(len(names)),
        overlap=np.append(np.zeros(2), lost) + rng.random((seeds, 2 + len(names))),
        rare=np.full((seeds, 2 + len(names)), 0.3),
        rare_offered=np.full(seeds, 0.2),
        random=usual + 0.1 * noise(len(BUDGETS) + len(LARGER), DRAWS),
        ideal=0.5 + 0.1 * noise(len(BUDGETS), 3),
        bought=lost + 0.5 + up + 0.1 * noise(len(BUDGETS), len(names)),
        bootstrap=np.full(seeds, 0.4),
        pool=np.full(seeds, 0.6),
    )
    return run.Proxies(
        seeds=np.arange(seeds),
        variants=variants,
        points=names,
        candidates=made,
        pools={"movie_polarity": pool},
    )
