"""Tables on proxies: fidelity, accuracy, cost, failures and leakage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from experiments._kit.claims import averaged
from experiments._kit.words import standard_error
from experiments.selectformer.scores.trial import BUDGETS
from experiments.selectformer.sources import NAMES, kind
from jaxsel.proxy import ProbeSpec
from jaxsel.report import Table

from .costs import ENGINE, ROWS, Price
from .finals import WAYS as FINAL_WAYS, FinalPool
from .points import ATTACKED, RATES, Candidate, Point, candidates
from .run import Proxies
from .searched import PICKS, SearchedPool
from .trial import ORACLES
from .tries import best_tries

BY_CONSTRUCTION = (
    "The target's head begins as a linear probe of the bootstrap set, so that a linear "
    "probe ranks like it partly by construction."
)


def fidelity(result: Proxies, points: Mapping[str, Point]) -> Table:
    """Show rank correlation and overlap of each point, by pool."""
    rows: list[list[object]] = []
    for i, what in enumerate(("Random", "The target itself")):
        cells = [(None, pool.overlap[:, i]) for pool in result.pools.values()]
        rows.append(_fidelity_row(what, cells))
    for i, name in enumerate(result.points):
        cells = [
            (pool.spearman[:, i], pool.overlap[:, 2 + i])
            for pool in result.pools.values()
        ]
        rows.append(_fidelity_row(points[name].says, cells))
    return Table(
        columns=("Way", *(NAMES[name] for name in result.pools), "Mean"),
        rows=rows,
        caption="Rank correlation of the last phase's scores with the target's own "
        "entropies, and in parentheses the share of what is chosen that the target "
        f"would choose: means over {len(result.seeds)} seeds, without those in which "
        "the guard refused a proxy with every setting. "
        f"{BY_CONSTRUCTION}",
    )


def accepted_mean(values: np.ndarray) -> float | None:
    """Average over the seeds in which the guard accepted; None if in none.

    Args:
        values: `[S]`, NaN where a proxy was refused.
    """
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def pools_mean(pools: Sequence[np.ndarray]) -> float | None:
    """Average over pools; None if the guard refused a proxy in all seeds of one."""
    means = [accepted_mean(values) for values in pools]
    return None if None in means else float(np.mean(np.array(means, float)))


def _fidelity_row(
    what: str, cells: Sequence[tuple[np.ndarray | None, np.ndarray]]
) -> list[object]:
    def cell(spearman: float | None, overlap: float | None, refused: int) -> str:
        if overlap is None:
            return "refused"
        first = "" if spearman is None else f"{spearman:.2f} "
        return f"{first}({overlap:.2f})" + (f", {refused} refused" if refused else "")

    texts = [
        cell(
            None if rho is None else accepted_mean(rho),
            accepted_mean(overlap),
            int(np.isnan(overlap).sum()),
        )
        for rho, overlap in cells
    ]
    rhos = [rho for rho, _ in cells if rho is not None]
    overlaps = [overlap for _, overlap in cells]
    refused = sum(int(np.isnan(overlap).sum()) for overlap in overlaps)
    mean = cell(pools_mean(rhos) if rhos else None, pools_mean(overlaps), refused)
    return [what, *texts, mean]


def accuracy(result: Proxies, points: Mapping[str, Point]) -> Table:
    """Show points of accuracy beyond a random fifth, by pool."""
    says = {
        "entropy": "The target itself: the paper's Oracle",
        "margin": "The target itself, by its margin",
        "prior_entropy": "The target itself, class shares divided out",
    }
    rows = [
        _gains(says[kind], [p.beyond(p.ideal)[:, 0, i] for p in result.pools.values()])
        for i, kind in enumerate(ORACLES)
    ]
    rows += [
        _gains(
            points[name].says,
            [p.beyond(p.bought)[:, 0, i] for p in result.pools.values()],
        )
        for i, name in enumerate(result.points)
    ]
    rows.append(
        _gains(
            "All of the pool",
            [100 * (p.pool - p.random[:, 0].mean(1)) for p in result.pools.values()],
        )
    )
    usual = [f"{p.random[:, 0].mean():.1%}" for p in result.pools.values()]
    mean = np.mean([p.random[:, 0].mean() for p in result.pools.values()])
    rows.append(["A random fifth is right in", *usual, f"{mean:.1%}"])
    return Table(
        columns=("Way", *(NAMES[name] for name in result.pools), "Mean"),
        rows=rows,
        formats=("", *["+.2f"] * (len(result.pools) + 1)),
        caption="Points of test accuracy of a linear model beyond one that is trained "
        f"on a random {BUDGETS[0]:.0%}, {averaged(len(result.seeds))}.",
    )


def _gains(what: str, pools: Sequence[np.ndarray]) -> list[object]:
    cells: list[object] = []
    for values in pools:
        known = values[np.isfinite(values)]
        error = float(standard_error(known)) if len(known) > 1 else None
        cells.append((float(known.mean()), error) if len(known) else "refused")
    mean = pools_mean(pools)
    return [what, *cells, "refused" if mean is None else mean]


def budgets(result: Proxies, points: Mapping[str, Point]) -> Table:
    """Show points of accuracy beyond random ones at each budget, mean of the pools."""
    pools = [*result.pools.values()]
    oracle = np.mean([p.beyond(p.ideal)[:, :, 0].mean(0) for p in pools], axis=0)
    rows: list[list[object]] = [["The target itself", *oracle.tolist()]]
    for i, name in enumerate(result.points):
        gains = [p.beyond(p.bought)[:, :, i] for p in pools]
        means = [
            pools_mean([gain[:, b] for gain in gains]) for b in range(len(BUDGETS))
        ]
        row = ["refused" if mean is None else mean for mean in means]
        rows.append([points[name].says, *row])
    return Table(
        columns=("Way", *(f"{budget:.0%}" for budget in BUDGETS)),
        rows=rows,
        formats=("", *["+.2f"] * len(BUDGETS)),
        caption="Points of accuracy beyond a random purchase of as many, mean of "
        f"{len(pools)} pools.",
    )


def searched(result: Proxies, found: Mapping[str, SearchedPool]) -> Table:
    """Tabulate choices and purchases of searched schedules in unseen seeds."""
    rows: list[list[object]] = []
    for j, pick in enumerate(PICKS):
        for name, pool in found.items():
            counts = Counter(pool.schedules[:, j].tolist()).most_common()
            usual, count = counts[0]
            gain = result.pools[name].beyond(pool.bought[:, None])[:, 0, j]
            (cell,) = _gains("", [gain])[1:-1]
            rows.append(
                [
                    pick,
                    NAMES[name],
                    f"{usual} ({count} of {len(gain)})",
                    float(pool.hours[:, j].mean()),
                    float(pool.expected[:, j].mean()),
                    float(pool.overlap[:, j].mean()),
                    cell,
                ]
            )
        gains = [
            result.pools[name].beyond(pool.bought[:, None])[:, 0, j]
            for name, pool in found.items()
        ]
        means = [
            float(
                np.mean([getattr(pool, field)[:, j].mean() for pool in found.values()])
            )
            for field in ("hours", "expected", "overlap")
        ]
        (cell,) = _gains("", [np.mean(gains, axis=0)])[1:-1]
        rows.append([pick, "Mean", "", *means, cell])
    return Table(
        columns=("Point", "Pool", "Schedule", "Hours", "Expected", "Overlap", "Points"),
        rows=rows,
        formats=("", "", "", ".3g", ".3f", ".3f", "+.2f"),
        caption="The cheapest point of the front, the middle one and the best, each of "
        "a search on the other seeds: the schedule that was found most often, its "
        f"hours on {ENGINE} for {ROWS:,} samples, the overlap that the other seeds "
        "promised and that of the seed itself, and points of accuracy beyond a random "
        f"{BUDGETS[0]:.0%}, {averaged(len(result.seeds))}.",
    )


def finals(
    result: Proxies, found: Mapping[str, FinalPool], points: Mapping[str, Point]
) -> Table:
    """Show points of accuracy of fine-tuned final models beside linear ones."""
    rows: list[list[object]] = []
    for name, pool in found.items():
        linear = result.pools[name]
        indices = [result.points.index(way) for way in FINAL_WAYS]
        gains = {
            "The target itself": (linear.beyond(linear.ideal)[:, 0, 0], pool.ideal),
            **{
                points[way].says: (
                    linear.beyond(linear.bought)[:, 0, i],
                    pool.bought[:, j],
                )
                for j, (way, i) in enumerate(zip(FINAL_WAYS, indices, strict=True))
            },
            "All of the pool": (
                100 * (linear.pool - linear.random[:, 0].mean(1)),
                pool.pool,
            ),
        }
        for says, (of_linear, accuracy) in gains.items():
            row = _gains(says, [of_linear, 100 * (accuracy - pool.random)])[:-1]
            rows.append([NAMES[name], *row])
        usual = f"{linear.random[:, 0].mean():.1%}", f"{pool.random.mean():.1%}"
        rows.append([NAMES[name], "A random fifth is right in", *usual])
    return Table(
        columns=("Pool", "Way", "Linear", "Fine-tuned"),
        rows=rows,
        formats=("", "", "+.2f", "+.2f"),
        caption="Points of test accuracy beyond a random fifth: of linear models on "
        "public features, and of the target, fine-tuned on the same purchase, "
        f"{averaged(len(result.seeds))}.",
    )


def cost(
    points: Mapping[str, Point],
    prices: Mapping[str, Mapping[str, Price]],
    shares: Mapping[str, float],
) -> Table:
    """Tabulate the cost of each point in secret, by engine."""
    engines = [*prices]
    rows = [
        [
            points[name].says,
            *(
                figure
                for engine in engines
                for figure in (
                    prices[engine][name].bytes / 1e9,
                    prices[engine][name].hours,
                )
            ),
            shares[name],
        ]
        for name in points
    ]
    return Table(
        columns=(
            "Way",
            *(head for engine in engines for head in (f"{engine}, GB", "hours")),
            "Of the paper's",
        ),
        rows=rows,
        formats=("", *[",.3g", ",.3g"] * len(engines), ".2%"),
        caption=f"Payload of one owner and hours of messages for a pool of {ROWS:,} "
        "samples over the paper's link, counted from the manifests of movie polarity; "
        "and the bytes on CrypTen over those of the paper's two phases, mean of the "
        "pools.",
    )


def beside(result: Proxies, points: Mapping[str, Point]) -> Table:
    """Tabulate fidelity, failures and leakage of each candidate, over all seeds."""
    pools = [*result.pools.values()]
    rows: list[list[object]] = []
    for k, name in enumerate(result.candidates):
        of = [point for point, definition in points.items() if name == definition.last]
        cells = [
            float(np.mean([p.emulated[:, k].mean() for p in pools])),
            float(np.mean([p.outside[:, k].mean() for p in pools])),
            sum(int(p.stopped[:, k].sum()) for p in pools),
            sum(int(p.refused[:, k].sum()) for p in pools),
        ]
        recovered: list[float | None] = [None, None]
        if name in ATTACKED:
            j = ATTACKED.index(name)
            recovered = [
                float(np.mean([p.recovered[:, j, i].mean() for p in pools]))
                for i in range(2)
            ]
        rows.append([name, ", ".join(of) or "an early phase", *cells, *recovered])
    total = len(pools) * len(result.seeds)
    return Table(
        columns=(
            "Candidate",
            "Last phase of",
            "Emulated",
            "Out of bounds",
            "Stopped",
            "Refused",
            "|cos| recovered",
            "Ranks recovered",
        ),
        rows=rows,
        formats=("", "", ".2f", ".2%", "d", "d", ".2f", ".2f"),
        caption="Emulated: rank correlation of the scores with exact entropies of the "
        "same logits, where these are finite. Out of bounds: share of the samples that "
        "a secure run would refuse by the bootstrap set's bounds on inputs. Stopped: "
        f"trainings, of {total}, that diverged and kept their best parameters. "
        "Refused: proxies, of as many, that the guard accepted with no setting. "
        "Recovered: what the data owner learns of a linear probe from the chosen set "
        "alone.",
    )


def settings(result: Proxies, points: Mapping[str, Point]) -> Table:
    """Show the tries of the search for settings, with the rank correlation of each."""
    rows: list[list[object]] = []
    for k, name in enumerate(result.candidates):
        cells: list[object] = []
        for pool_name, pool in result.pools.items():
            candidate = candidates(kind(pool_name), variants=result.variants)[name]
            tried = zip(candidate.tries(), pool.judged[0, k], strict=True)
            results = [
                f"{_setting(setting)}: "
                + ("refused" if np.isnan(rho) else f"{rho:.2f}")
                for setting, rho in tried
            ]
            later = int((pool.place[:, k] > best_tries(pool.judged[0])[k]).sum())
            cells += [", ".join(results), later, int(pool.refused[:, k].sum())]
        of = [point for point, definition in points.items() if name == definition.last]
        rows.append([name, ", ".join(of) or "an early phase", *cells])
    heads = [
        head
        for name in result.pools
        for head in (NAMES[name], "more cautious in", "refused in")
    ]
    return Table(
        columns=("Candidate", "Last phase of", *heads),
        rows=rows,
        formats=("", "", *["", "d", "d"] * len(result.pools)),
        caption="Learning rates, or penalties of probes, with the rank correlation "
        f"that each gives on a deal that no result is from: {len(RATES)} tries for "
        "each method. “Refused”: training diverged, or emulated entropies do not rank "
        "as exact ones on the bootstrap set (below .9). The best one is taken; where "
        f"the guard refuses it in one of the {len(result.seeds)} seeds, a more "
        "cautious one; and where it refuses all, the proxy does not count.",
    )


def _setting(one: Candidate) -> str:
    if isinstance(one.spec, ProbeSpec):
        return f"{one.spec.l2:g}"
    return f"{one.training.learning_rate:g}"


def inference(result: Proxies) -> Table:
    """Show how often the target and each proxy predict the class of a test sample."""
    names = ("The target itself", *result.candidates)
    rows: list[list[object]] = []
    for k, name in enumerate(names):
        cells = [float(p.inference[:, k].mean()) for p in result.pools.values()]
        if np.isfinite(cells).all():
            rows.append([name, *cells, float(np.mean(cells))])
    return Table(
        columns=("Model", *(NAMES[name] for name in result.pools), "Mean"),
        rows=rows,
        formats=("", *[".1%"] * (len(result.pools) + 1)),
        caption="Test samples whose class is predicted, mean over seeds: proxies that "
        "learned labels or logits, used as models.",
    )
