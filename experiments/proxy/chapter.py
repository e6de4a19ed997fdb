"""The evaluation of proxies as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxsel.demo.scenes.texts import LENGTH
from jaxsel.demo.seeds import spread
from jaxsel.demo.words import listed
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Heading,
    Table,
    new_figure,
    style,
)

from .points import points
from .run import Proxies, ProxyPool

_NAMES = {"movie_polarity": "Movie polarity", "tweets": "Tweets, imbalanced"}
_PUBLISHED = "paper, 2 phases"  # what costs are compared with
_ORIGINS = (
    ("paper", "the paper's", "s"),
    ("ablation", "ablations of the paper's", "^"),
    ("ours", "ours", "o"),
)
_SHARE = 0.1  # of their bytes: what the best affordable point may take


def proxies_chapter(result: Proxies) -> Chapter:
    """Tell how well each point ranks the pools, and what its secure run costs."""
    named = {_NAMES.get(name, name): pool for name, pool in result.pools.items()}
    blocks = [
        "Two parties choose texts in secret: the model owner's target, MiniLM with six "
        "layers, fine-tuned on a bootstrap set that it bought at random, should tell "
        "which texts it is unsure of. To run it on secret texts is too dear, so a "
        "proxy stands in (`jaxsel.proxy`). The paper's proxies are transformers whose "
        "nonlinearities small networks emulate, trained on the bootstrap set. Ours are "
        "cheaper: a linear or small head on features of the public encoder, which the "
        "data owner computes in the clear, or one layer with linear attention, "
        "distilled from the target's outputs on texts that the model owner has anyway. "
        "Fidelity is the rank correlation of a "
        "proxy's scores with the target's own entropies, over all of the pool but the "
        "bootstrap set, and the share of what is chosen that the target would choose. "
        "Cost is the payload of the secure run, counted from the proxies' manifests.",
    ]
    for (key, pool), name in zip(result.pools.items(), named, strict=True):
        blocks += [Heading(name), _about(pool), _table(name, pool, result)]
        blocks += [_figure(name, pool, result), _words(pool, result)]
        early = result.stopped_early(key)
        blocks += [_stopped(early, len(result.seeds))] if early else []
    blocks += [Heading("How it was measured"), _method(result)]
    return Chapter(
        title="Proxies: fidelity against secure cost",
        blocks=blocks,
        data={
            "seeds": result.seeds,
            "full": result.full,
            "points": result.points,
            "candidates": result.candidates,
            "overlap_of": ("random", "the target itself", *result.points),
            "pools": {
                name: dataclasses.asdict(pool) for name, pool in result.pools.items()
            },
        },
    )


def _about(pool: ProxyPool) -> str:
    sizes, seeds = pool.sizes, len(pool.accuracy)
    text = (
        f"{sizes.pool:,} texts are offered; {sizes.bootstrap:.0%} of them are bought "
        f"at random, and {sizes.budget:.0%} in all. The model owner has {sizes.own:,} "
        "other texts of this source, without labels. "
    )
    if sizes.kept > 1:
        text += (
            f"One of the {pool.prior.shape[1]} classes, drawn anew in each seed, is "
            f"{sizes.kept} times as frequent as each other one, as in the paper's "
            f"imbalanced pools: {pool.rare_offered.mean():.0%} of the pool are of a "
            "rare class. "
        )
    return text + (
        f"On what is left, the target is right in {pool.accuracy.mean():.1%}, mean "
        f"over {seeds} seeds."
    )


def _share(pool: ProxyPool, result: Proxies) -> np.ndarray:
    """Return each point's bytes over those of the paper's two phases, `[P]`."""
    means = pool.bytes.mean(0)
    return means / means[result.points.index(_PUBLISHED)]


def _table(name: str, pool: ProxyPool, result: Proxies) -> Table:
    known = points(full=result.full)
    rare = (pool.rare_offered > 0).any()
    rows: list[list[object]] = []
    for i, what in enumerate(("Random", "Oracle: the target itself")):
        row = [what, None if i == 0 else 1.0, spread(pool.overlap[:, i])]
        row += [spread(pool.rare[:, i])] if rare else []
        rows.append([*row, None, None])
    for i, (key, share) in enumerate(
        zip(result.points, _share(pool, result), strict=True)
    ):
        row = [known[key].says, spread(pool.spearman[:, i])]
        row += [spread(pool.overlap[:, 2 + i])]
        row += [spread(pool.rare[:, 2 + i])] if rare else []
        rows.append([*row, pool.bytes[:, i].mean() / 1e6, share])
    more = ("Rare classes",) if rare else ()
    return Table(
        columns=("Way", "Spearman", "Overlap", *more, "MB", "Of the paper's"),
        rows=rows,
        formats=("", ".2f", ".2f", *((".0%",) if rare else ()), ",.0f", ".2%"),
        caption=f"{name}: fidelity of the last phase's scores, of what is chosen, and "
        "payload of all phases, also as a share of the paper's two phases; mean ± "
        f"standard deviation over {len(result.seeds)} seeds.",
    )


def _figure(name: str, pool: ProxyPool, result: Proxies) -> Figure:
    known = points(full=result.full)
    origins = np.array([known[key].origin for key in result.points])
    size, shared = pool.bytes.mean(0) / 1e6, pool.overlap[:, 2:]
    mean = shared.mean(0)
    error = shared.std(0, ddof=1) if len(shared) > 1 else np.zeros_like(mean)
    figure = new_figure(8.8, 3.6)
    with style():
        ax = figure.subplots()
        for origin, label, marker in _ORIGINS:
            some = origins == origin
            if not some.any():
                continue
            ax.errorbar(
                size[some], mean[some], error[some], fmt=marker, label=label, capsize=2
            )
        for x, y, key in zip(size, mean, result.points, strict=True):
            ax.annotate(key, (x, y), (5, 4), textcoords="offset points", fontsize=8)
        ax.set(xscale="log", xlabel="Payload of the secure run, MB")
        ax.axhline(pool.overlap[:, 0].mean(), color=COLORS[-1], linewidth=0.8)
        ax.set(ylabel="Overlap with the target's choice")
        ax.set(xlim=(size.min() / 2, size.max() * 6))
        ax.legend(loc="lower left")
    told = "; ".join(
        f"{key} {y:.2f} for {x:,.0f} MB"
        for key, x, y in zip(result.points, size, mean, strict=True)
    )
    return Figure(
        plot=figure,
        caption=f"{name}: the front of fidelity and secure cost; the level line is a "
        "random choice. Bars are one standard deviation over seeds.",
        alt=f"Overlap with the target's choice against megabytes: {told}.",
    )


def _words(pool: ProxyPool, result: Proxies) -> str:
    """Say what the front looks like, worded by what was measured."""
    share, mean = _share(pool, result), pool.spearman.mean(0)
    known = points(full=result.full)
    origins = np.array([known[key].origin for key in result.points])
    ours, theirs = origins == "ours", origins == "paper"
    near = np.flatnonzero(ours & (share <= _SHARE))
    if len(near):
        best, text = near[mean[near].argmax()], "Within a tenth of the paper's bytes"
    else:
        best, text = np.flatnonzero(ours)[share[ours].argmin()], "The cheapest of ours:"
    top = np.flatnonzero(theirs)[mean[theirs].argmax()]
    lead = pool.spearman[:, best] - pool.spearman[:, top]
    text += (
        f" “{result.points[best]}” has a Spearman of {mean[best]:.2f} for "
        f"{share[best]:.2%} of the bytes of the paper's two phases; the best of the "
        f"paper's, “{result.points[top]}”, has {mean[top]:.2f}. Ours leads in "
        f"{(lead > 0).sum()} of {len(lead)} seeds. "
    )
    at = {key: mean[i] for i, key in enumerate(result.points)}
    return text + (
        f"The linear probe has {at['bootstrap probe']:.2f} from the labels of the "
        f"bootstrap set alone, {at['probe']:.2f} distilled on texts of the source that "
        f"is being sold, and {at['probe, other texts']:.2f} distilled on texts of "
        "another one: in-domain texts are what the data owner sells, so that the last "
        "figure is the one to expect without any."
    )


def _stopped(early: Mapping[str, int], seeds: int) -> str:
    told = listed([f"“{point}” in {count}" for point, count in early.items()])
    return (
        "The training of a proxy stopped early in some seeds, when its loss or "
        "gradient was not finite, and its best parameters until then were kept: "
        f"{told} of the {seeds} seeds."
    )


def _method(result: Proxies) -> str:
    pools = [f"`{name}`" for name in result.pools]
    return (
        f"Data: {listed(pools)}; texts of {LENGTH} tokens at most; seeds "
        f"{', '.join(map(str, result.seeds))}, each with a deal and draws of its own; "
        "the target's head and the texts of another source are the same in all. "
        "Spearman's correlation is that of the last phase's proxy on the whole pool, "
        "also on texts that an earlier phase left out; the overlap is of what all "
        "phases choose. The paper's proxies keep the heads with the largest weights, "
        "as ours do; their emulators were fitted ex vivo, half on activations of the "
        "bootstrap set and half on synthesised samples, a million in all (the paper: "
        "5.12 million synthesised), and trained in vivo for 20 epochs, the best of "
        "seven recipes for it in an earlier trial. "
        "In its 3 phases the middle one has 12 heads, which the paper does not say. "
        "All transformers read the mean over tokens, as the target does. "
        "Bytes are counted with folded weights for all, which makes the paper's "
        "cheaper than its own accounting does. Accuracy after training on what was "
        "chosen was not measured."
    )
