"""The costs of a secure choice as a chapter of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from experiments._kit.claims import (
    by_claim,
    claim_table,
    differs_table,
    matrix,
    tally,
    untested_table,
)
from experiments._kit.judge import FAILS, Claim
from experiments._kit.words import listed, spread
from experiments.selectformer.sources import NAMES
from jaxsel.report import (
    COLORS,
    Chapter,
    Figure,
    Heading,
    Table,
    new_figure,
    style,
)

from .choice import RUNS, WIDTH
from .claims import CLAIMS, FIGURES, judged
from .paper import BANDWIDTH, HOURS, LATENCY, LENGTHS, MPCFORMER
from .run import SecureCosts
from .ways import BATCH, ENGINES, selections


def secure_chapter(result: SecureCosts) -> Chapter:
    """Show counts beside the paper's figures, and the cost of real runs."""
    target, claims = "DistilBERT", judged(result)
    untested = untested_table(claims)
    return Chapter(
        title="The cost of choosing in secret",
        blocks=[
            matrix(claims, "The paper's claims; for counts, a setting is a length."),
            _figure(result, target),
            "Two parties choose a fifth of 42,000 texts without showing each other the "
            "texts or the model. The paper evaluates proxies of the model on CrypTen, "
            "over a link of 100 MB/s and 100 ms. Costs here are counted from the "
            "proxies' manifests (`jaxsel.proxy.cost`): messages alone, without "
            "computing.",
            Heading(f"Of the paper's claims {tally(claims)}"),
            claim_table(claims, "Counts are on CrypTen.", n_seeds=len(result.seeds)),
            *_far(claims),
            differs_table(CLAIMS, "By what each claim is judged."),
            Heading("A whole selection"),
            *([] if untested is None else [untested]),
            *(_table(result, target, length) for length in LENGTHS),
            _words(result, target),
            Heading("A choice that was made"),
            *_runs(result),
            *_purchases(result),
            Heading("How it was counted"),
            _method(),
        ],
        data={
            "seeds": result.seeds,
            "rows": result.rows,
            "keep": result.keep,
            "paper": {key: figure._asdict() for key, figure in FIGURES.items()},
            "claims": {str(n): dict(counts) for n, counts in result.claims.items()},
            "judged": [dataclasses.asdict(claim) for claim in claims],
            "hours": {**HOURS, "MPCFormer over the paper": MPCFORMER},
            "selections": {
                str(length): {
                    name: {
                        way: {
                            engine: dataclasses.asdict(counted)
                            for engine, counted in engines.items()
                        }
                        for way, engines in ways.items()
                    }
                    for name, ways in targets.items()
                }
                for length, targets in result.selections.items()
            },
            "runs": {
                engine: dataclasses.asdict(run) for engine, run in result.runs.items()
            },
            "purchases": {
                engine: {
                    name: dataclasses.asdict(purchases)
                    for name, purchases in of.items()
                }
                for engine, of in result.purchases.items()
            },
        },
    )


def _far(claims: Sequence[Claim]) -> list[str]:
    """Name the claims that fail in each setting, if there are any."""
    far = [
        f"“{text}”"
        for text, rows in by_claim(claims).items()
        if all(row.verdict == FAILS for row in rows)
    ]
    return [f"Not reproduced: {listed(far)}."] if far else []


def _table(result: SecureCosts, target: str, length: int) -> Table:
    known = selections(length)[target][1]
    rows: list[list[str]] = []
    for name, engines in result.selections[length][target].items():
        row = [known[name].says, _shown(HOURS[name]) if name in HOURS else ""]
        for engine in ENGINES:
            counted = engines[engine]
            parts = (counted.bytes / 1e9, counted.rounds, counted.hours)
            row += [_shown(part) for part in parts]
        rows.append(row)
    columns = ["Way", "Paper, hours"]
    for engine in ENGINES:
        columns += [f"{engine}: GB", "rounds", "hours"]
    return Table(
        columns=columns,
        rows=rows,
        formats=("",) * len(columns),
        caption=f"{target}, texts of {length} tokens: payload that a party sends plus "
        "receives, rounds, and hours on the paper's link without computing, of "
        f"{result.keep:,} of {result.rows:,} texts; beside the delays that the paper "
        "measured.",
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _figure(result: SecureCosts, target: str) -> Figure:
    length = LENGTHS[-1]
    by_way = result.selections[length][target]
    figure = new_figure(8.8, 3.6)
    places = np.arange(len(by_way))
    height = 0.8 / len(ENGINES)
    with style():
        ax = figure.subplots()
        for i, engine in enumerate(ENGINES):
            hours = [engines[engine].hours for engines in by_way.values()]
            ax.barh(places + i * height, hours, height, label=engine)
        for i, name in enumerate(by_way):
            if name in HOURS:
                middle = i + (len(ENGINES) - 1) * height / 2
                label = "measured by the paper" if name == next(iter(HOURS)) else None
                ax.plot(HOURS[name], middle, "D", color=COLORS[-1], label=label)
        ax.set_yticks(places + (len(ENGINES) - 1) * height / 2, [*by_way])
        ax.invert_yaxis()
        ax.set(xscale="log", xlabel="Hours on the paper's link")
        ax.legend(loc="lower right")
    text = "; ".join(
        f"{name} "
        + ", ".join(f"{engines[engine].hours:.3g} h on {engine}" for engine in ENGINES)
        for name, engines in by_way.items()
    )
    return Figure(
        plot=figure,
        caption=f"{target}, texts of {length} tokens: hours that messages take, by way "
        "and engine, and the paper's delays, which have computing in them.",
        alt=f"Hours of messages: {text}.",
    )


def _words(result: SecureCosts, target: str) -> str:
    engine, length = next(iter(ENGINES)), LENGTHS[-1]
    sent = {
        way: engines[engine].bytes
        for way, engines in result.selections[length][target].items()
    }
    return (
        f"On {engine}, with texts of {length} tokens, a linear probe first, then one "
        "layer with linear attention sends "
        f"{sent['paper'] / sent['probe, 1 layer']:.2g} times fewer bytes than the "
        "paper's two phases, in part because its products are folded; how well each "
        "ranks is another matter, see `python -m experiments selectformer`."
    )


def _runs(result: SecureCosts) -> list[str | Table]:
    missing = [engine for engine in RUNS if engine not in result.runs]
    blocks: list[str | Table] = []
    if missing:
        blocks.append(f"Not run, because SPU is not installed here: {listed(missing)}.")
    if not result.runs:
        return blocks
    rows: list[list[object]] = []
    for engine, run in result.runs.items():
        rows.append(
            [
                engine,
                spread(run.megabytes[:, 0]),
                spread(run.megabytes[:, 1]),
                spread(run.choice_megabytes),
                spread(run.rounds.astype(float)),
                spread(run.passes.astype(float)),
                spread(run.wall),
                spread(run.working),
                spread(run.same),
            ]
        )
    sources = listed(list(dict.fromkeys(run.source for run in result.runs.values())))
    blocks += [
        Table(
            columns=(
                "Engine",
                "MB, model owner",
                "MB, data owner",
                "MB, choosing",
                "Rounds",
                "Passes",
                "Seconds, with set-up",
                "Seconds, without",
                "Same rows",
            ),
            rows=rows,
            formats=("", ",.0f", ",.0f", ",.0f", ",.0f", ",.1f", ",.0f", ",.0f", ".3%"),
            caption=f"A linear probe of {WIDTH} features scores {result.rows:,} rows "
            f"and chooses {result.keep:,}, all roles on this machine, over TLS on "
            "loopback: payload that each owner sent, of the choice both ways, seconds, "
            "and the share of the rows that the clear choice has too.",
        ),
        f"Features: {sources}. Set-up is processes, certificates, keys and compiling. "
        "A link adds its delay for each round and its rate for each byte; all parties "
        "share this machine's cores. What such a choice gives away of the probe is "
        "another matter (`jaxsel.proxy.expected_leakage`).",
    ]
    return blocks


def _purchases(result: SecureCosts) -> list[str | Heading | Table]:
    rows: list[list[object]] = []
    apart: list[float] = []
    for engine, of in result.purchases.items():
        for name, purchases in of.items():
            secret, clear, random = purchases.accuracy.T
            # Of two models on the same test samples, as if they were independent.
            error = float(np.mean(np.sqrt(2 * clear * (1 - clear) / purchases.tested)))
            apart.append(abs(float((secret - clear).mean())) / error)
            rows.append(
                [
                    NAMES[name],
                    engine,
                    spread(purchases.n.astype(float)),
                    spread(purchases.same),
                    *(spread(x) for x in (secret, clear, random)),
                ]
            )
    if not rows:
        return []
    all_purchases = [
        purchases for of in result.purchases.values() for purchases in of.values()
    ]
    same = float(np.mean([purchases.same for purchases in all_purchases]))
    return [
        Heading("Purchases in secret, and in the clear"),
        f"{same:.2%} of what was bought in secret is bought in the clear, mean over "
        "pools, and the models that are trained on both differ by "
        f"{max(apart):.1f} standard errors of a test at most. The paper finds half a "
        "point between CrypTen and PyTorch on SST2 (its section 5.4).",
        Table(
            columns=(
                "Pool",
                "Engine",
                "Offered",
                "Same rows",
                "Secret",
                "Clear",
                "Random",
            ),
            rows=rows,
            formats=("", "", ",.0f", ".2%", ".2%", ".2%", ".2%"),
            caption="A linear probe of the labels of a bootstrap set chooses a fifth "
            "of an imbalanced pool by margin, in secret and in the clear; accuracy of "
            "a linear model on each purchase.",
        ),
    ]


def _method() -> str:
    return (
        f"Batches of {BATCH}; a link of {BANDWIDTH / 1e6:.0f} MB/s each way and "
        f"{LATENCY * 1e3:.0f} ms, which a round takes once. All transformers read the "
        "mean over rows; the paper's, its peers' and the target take products as "
        "CrypTen's layers do, ours folded (`plan`). Of the pool 5 % are bought before, "
        "at random; a first phase leaves 30 %, the last one 20 %, as in the paper. "
        "Peers stand for their softmax, on the paper's proxies, with the norm and the "
        "entropy exact. A probe reads public features, which its owner computes in the "
        "clear. The dealer of CrypTen's randomness is not counted, nor what ABY3's "
        "helper sends; rounds of SPU's engines are messages. Of Table 3 and "
        "Figures 2, 6 and 7 the text's figures are taken, since the rest are plots."
    )


def summed_up(result: SecureCosts) -> str:
    """Return a line on each real run."""
    lines = [
        f"{engine}: {result.keep:,} of {result.rows:,} rows in "
        f"{run.wall.mean():,.0f} s ({run.working.mean():,.0f} s without set-up), "
        f"{run.megabytes.mean(0).sum():,.0f} MB sent by both owners, "
        f"{run.same.mean():.2%} of them the clear choice's"
        for engine, run in result.runs.items()
    ]
    return "\n".join(lines) or "No real run: SPU is not installed here"
