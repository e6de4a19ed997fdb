import dataclasses
import importlib.util

import jax
import numpy as np
import pytest
from planted_tables import SIZES, planted

from experiments.mycroft.tabular import run as runs
from experiments.mycroft.tabular.chapter import tabular_blocks
from experiments.mycroft.tabular.figures import measure
from experiments.mycroft.tabular.kinds import (
    adult_kinds,
    adult_occupations,
    load_table,
)
from experiments.mycroft.tabular.market import deal, mixtures
from experiments.mycroft.tabular.run import join_tabular, run_seed, run_tabular
from experiments.mycroft.tabular.select import (
    AUTHORS,
    COVERING,
    DISTANCES,
    OURS,
    RANKINGS,
    SELECTORS,
    TREES,
    distances,
    mix,
    prepare_offer,
    rank,
)
from experiments.mycroft.tabular.trainer import (
    CLASSIFIERS,
    GRID,
    classifiers_here,
    in_words,
)
from jaxsel.data import Dataset
from jaxsel.report import Chapter, Figure, Report, Table
from jaxsel.retrieve import retrieve_binned, retrieve_nearest


@pytest.fixture(scope="module")
def result():
    table = planted()
    runs = [run_seed(s, "digits", table, None, SIZES, full=s > 9) for s in (0, 1)]
    return join_tabular(runs)


@pytest.fixture
def census():
    """Eight people who each fit one rule of `adult_kinds`, or none."""
    names = (
        "age",
        "capital-gain",
        "capital-loss",
        "education-num",
        "sex=Female",
        "sex=Male",
        "marital-status=Divorced",
        "marital-status=Married-civ-spouse",
        "occupation=Craft",
        "occupation=Sales",
    )
    people = [
        # gain, loss, education, woman, married, sales, rich
        (9000, 0, 9, 1, 0, 0, 1),
        (0, 1900, 9, 1, 0, 1, 1),
        (0, 0, 14, 1, 0, 0, 1),
        (0, 0, 14, 1, 1, 1, 1),
        (0, 0, 13, 0, 1, 1, 1),
        (0, 0, 12, 0, 1, 1, 1),
        (500, 0, 12, 0, 1, 0, 1),
        (9000, 0, 12, 0, 1, 0, 0),
    ]
    x = [
        (30, gain, loss, edu, woman, 1 - woman, 1 - wed, wed, 1 - sales, sales)
        for gain, loss, edu, woman, wed, sales, _ in people
    ]
    return Dataset(
        x=np.array(x, np.float32),
        y=np.array([person[-1] for person in people]),
        feature_names=names,
    )


def test_adult_kinds_follow_the_rules_in_order(census):
    table = adult_kinds(census)
    np.testing.assert_array_equal(table.kind, [0, 1, 2, 3, 4, 5, -1, -1])
    assert len(table.kinds) == 6
    assert table.x.shape == (8, 7)
    assert table.categorical == (4, 5, 6)
    np.testing.assert_array_equal(table.x[:, 4], [0, 0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(table.positive, census.y == 1)


def test_occupations_are_of_negatives_too_and_lose_their_column(census):
    table = adult_occupations(census, n_kinds=2)
    assert table.kinds == ("Sales", "Craft")
    np.testing.assert_array_equal(table.kind, [1, 0, 1, 0, 0, 0, 1, 1])
    assert table.x.shape == (8, 6)
    assert table.categorical == (4, 5)


def test_numbers_are_standardised_and_categories_one_hot():
    table = planted()
    numbers = table.known(np.arange(len(table.x))).numbers
    assert numbers.shape == (len(table.x), 4 + 3)
    np.testing.assert_allclose(numbers.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(numbers.std(0), 1, atol=1e-5)
    for category in range(3):
        assert np.unique(numbers[table.x[:, 4] == category, 4 + category]).size == 1


def test_digits_are_a_table():
    table, groups = load_table("digits")
    assert groups is None
    assert table.x.shape == (1797, 64)
    assert set(table.kind[table.positive]) == set(range(5))
    assert set(table.kind[~table.positive]) == {-1}


def test_mixtures_are_shares():
    shares = mixtures(4)
    assert shares.shape == (4 + 6 + 12, 4)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert len(np.unique(shares, axis=0)) == len(shares)
    assert ((shares > 0).sum(1) <= 2).all()


def test_deal_gives_no_row_to_two_and_keeps_the_shares():
    table, shares = planted(3), mixtures(3)
    market = deal(table, shares, key=jax.random.key(3), **SIZES)
    owned = np.union1d(market.offered, market.beside)
    for p, hard in enumerate(market.hard):
        test, own = market.test[p], market.own[p]
        mine = np.concatenate([test, own, hard])
        assert len(np.unique(mine)) == len(mine)
        np.testing.assert_array_equal(table.positive[test], np.arange(60) < 20)
        assert (table.kind[hard] == p).all()
        assert (table.kind[test[:20]] == p).all()
        assert not table.positive[own].any()
    everyone = np.concatenate([market.test.ravel(), market.own.ravel(), *market.hard])
    assert not np.isin(owned, everyone).any()
    for o, share in enumerate(shares):
        counts = np.bincount(table.kind[market.offered[o]], minlength=3)
        np.testing.assert_array_equal(counts, np.rint(40 * share))
        everything = market.everything(o)
        assert len(np.unique(everything)) == len(everything) == 80
        assert table.positive[everything].sum() == 40
    # Kinds come in no order, or ties of a distance would favour the first.
    assert np.any(np.diff(table.kind[market.offered[3]]) < 0)
    again = deal(table, shares, key=jax.random.key(3), **SIZES)
    np.testing.assert_array_equal(again.offered, market.offered)
    other = deal(table, shares, key=jax.random.key(4), **SIZES)
    assert not np.array_equal(other.offered, market.offered)


def test_deal_uses_negatives_of_the_same_group_where_there_are_any():
    table = planted()
    kind = np.where(table.positive, table.kind, np.arange(len(table.kind)) % 2)
    grouped = dataclasses.replace(table, kind=kind)
    market = deal(grouped, np.eye(2), key=jax.random.key(0), **SIZES)
    for p in range(2):
        for rows in (market.own[p], market.test[p], market.beside[p]):
            assert (kind[rows] == p).all()


def test_deal_refuses_a_table_that_is_too_small():
    with pytest.raises(ValueError, match="kind 'kind 0'.*got 14"):
        deal(
            planted(n=40), mixtures(2), key=jax.random.key(0), **SIZES | {"n_test": 21}
        )


# Rankings without the names of trees, and those that don't look at the hard samples'
# columns.
WAYS = [name for name in RANKINGS if OURS not in name]
BLIND = ("random", "confidence")


@pytest.fixture(scope="module")
def offer():
    table = planted()
    market = deal(table, mixtures(2), key=jax.random.key(0), **SIZES)
    rows = market.offered[2]  # both kinds, in halves
    beside = table.x[market.beside[2]]
    made = prepare_offer(table.known(rows), beside, table.categorical, seed=0)
    lot = np.random.default_rng(0).random(len(rows))
    return made, table.known(market.hard[1]), lot, table.kind[rows] == 1


@pytest.mark.every(8)
@pytest.mark.parametrize("name", WAYS)
def test_smaller_budget_is_the_beginning(name, offer):
    made, hard, lot, _ = offer
    long = rank(name, made, hard, 20, lot)
    assert len(np.unique(long)) == 20
    short = rank(name, made, hard, 7, lot)
    np.testing.assert_array_equal(short, long[:7])


@pytest.mark.parametrize("name", [n for n in WAYS if n not in BLIND])
def test_the_right_kind_comes_first(name, offer):
    made, hard, lot, right = offer
    assert right.mean() == 0.5
    assert right[rank(name, made, hard, 7, lot)].mean() > 0.7


@pytest.mark.left_out
def test_all_distances_choose_in_the_same_two_ways(offer):
    """By the least, and covering: as `retrieve_nearest` and `retrieve_binned` do."""
    made, hard, lot, _ = offer
    for name, metric in (("Euclidean distance", "l2"), ("cosine distance", "cosine")):
        found = rank(name + COVERING, made, hard, 12, lot)
        expected = retrieve_nearest(
            made.known.numbers, hard.numbers, 12, metric=metric
        ).indices
        np.testing.assert_array_equal(found, expected)
    for name in DISTANCES:
        near = distances(name, made.known, hard)
        assert near.shape == (len(hard.x), len(lot))
        order = np.argsort(near.min(axis=0), kind="stable")[:12]
        np.testing.assert_array_equal(rank(name, made, hard, 12, lot), order)
    for covers in (False, True):
        name = "binning distance" + COVERING * covers
        expected = retrieve_binned(
            made.known.x, hard.x, 12, coverage=covers, categorical=made.categorical
        ).indices
        np.testing.assert_array_equal(rank(name, made, hard, 12, lot), expected)


def test_total_variation_is_of_distributions(offer):
    made, hard, *_ = offer
    for rows in (made.known.shares, hard.shares):
        assert rows.min() >= 0
        np.testing.assert_allclose(rows.sum(axis=1), 1)
    near = distances("total variation", made.known, hard)
    p, q = hard.shares[2], made.known.shares[5]
    larger = p > q  # the event whose probabilities differ most
    assert near[2, 5] == pytest.approx(p[larger].sum() - q[larger].sum())
    assert near.max() <= 1


def test_trees_are_those_of_the_authors_code_and_ours():
    table = planted(n=900)
    rows = np.arange(400)
    known, beside = table.known(rows[:200]), table.x[rows[200:]]
    made = {t: prepare_offer(known, beside, (), seed=0, tree=t) for t in TREES}
    assert made[AUTHORS].tree.get_depth() <= 4 < made[OURS].tree.get_depth()
    tree = made[OURS].tree.tree_
    assert tree.n_node_samples[tree.children_left < 0].min() >= 5


def test_xgboost_is_said_to_be_absent(result, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    classifiers_here.cache_clear()
    assert classifiers_here() == CLASSIFIERS[:-1]
    classifiers_here.cache_clear()
    some = result.classifiers[:3]
    absent = dataclasses.replace(
        result,
        classifiers=some,
        settings=result.settings[:3],
        by_classifier=result.by_classifier[:, :3],
    )
    blocks, _ = tabular_blocks(absent)
    text = " ".join(block for block in blocks if isinstance(block, str))
    assert "XGBoost is not installed (`pip install xgboost-cpu`)" in text
    with pytest.raises(ValueError, match="results must be of the same classifiers"):
        join_tabular([result, dataclasses.replace(result, classifiers=())])


@pytest.mark.skipif(
    importlib.util.find_spec("xgboost") is None, reason="needs xgboost-cpu"
)
def test_xgboost_is_trained_where_it_is_installed(result):
    assert result.classifiers == CLASSIFIERS
    assert np.nanmean(result.by_classifier[:, -1]) > 0.2


def test_random_is_the_lot(offer):
    made, hard, lot, _ = offer
    chosen = rank("random", made, hard, 7, lot)
    np.testing.assert_array_equal(chosen, np.argsort(lot)[:7])


def test_decision_path_and_confidence_against_slow_references(offer):
    made, hard, lot, _ = offer
    paths = [set(np.flatnonzero(row)) for row in made.paths]
    theirs = made.tree.decision_path(hard.x).toarray()
    theirs = [set(np.flatnonzero(row)) for row in theirs]
    shared = [max(np.inf if a == b else len(a & b) for b in theirs) for a in paths]
    order = sorted(range(len(lot)), key=lambda i: (-shared[i], lot[i]))
    chosen = rank("decision path", made, hard, 40, lot)
    np.testing.assert_array_equal(chosen, order)
    own, other = (made.tree.predict_proba(x)[:, 1] for x in (made.known.x, hard.x))
    far = [min(abs(a - b) for b in other) for a in own]
    order = sorted(range(len(lot)), key=lambda i: (far[i], lot[i]))
    chosen = rank("confidence", made, hard, 40, lot)
    np.testing.assert_array_equal(chosen, order)


def test_mix_takes_half_of_each_and_nothing_twice():
    one, two = np.array([4, 2, 0, 1, 3]), np.array([4, 2, 3, 0, 1])
    np.testing.assert_array_equal(mix(one, two, 5), [4, 2, 0, 3, 1])
    np.testing.assert_array_equal(mix(one, two, 2), [4, 2])
    np.testing.assert_array_equal(mix(one, two, 1), [4])


def test_result_on_a_planted_table(result):
    holds = result.shares.T > 0
    assert (result.before == 0).all()
    assert result.everything[:, holds].mean() > 0.8
    assert result.everything[:, ~holds].mean() < 0.3
    np.testing.assert_array_equal(result.budgets, [5, 10, 20])
    assert result.f1.shape == (2, 2, 5, len(SELECTORS), 3)
    few = (holds & (result.shares.T < 0.1))[None].repeat(2, 0)
    assert few.sum() == 4
    hits = result.hits[few]
    # The owner has two such samples; five at random have one in four times.
    assert hits[:, SELECTORS.index("binning distance"), 0].mean() >= 0.25
    assert hits[:, SELECTORS.index("random"), 0].mean() < 0.15
    assert (result.hits[:, ~holds][:, :, 0] == 0).all()
    run = np.isfinite(result.f1).any(axis=(0, 1, 2))
    assert run[:2].all()
    np.testing.assert_array_equal(run[2:], [[True, False, False]] * (len(run) - 2))
    some = np.isfinite(result.by_classifier).all(axis=(0, 1, -1))
    np.testing.assert_array_equal(some, holds & (np.arange(5) % 7 == 0))


@pytest.mark.slow
def test_full_runs_everything_and_agrees_with_the_short_run(result):
    full = run_seed(0, "digits", planted(), planted(3), SIZES, full=True)
    assert np.isfinite(full.f1).all()
    short = np.isfinite(result.f1[0])
    np.testing.assert_array_equal(full.f1[0][short], result.f1[0][short])
    assert full.by_group.shape == (1, 3, 3)
    same = np.eye(3, dtype=bool)
    assert full.by_group[0][same].min() > 0.8
    assert full.by_group[0][~same].mean() < 0.3
    blocks, data = tabular_blocks(full)
    assert sum(isinstance(block, Figure) for block in blocks) == 3
    assert "occupations (kind 0, kind 1, kind 2" in blocks[1]
    assert data["f1_by_group"].shape == (1, 3, 3)


def test_measures_against_slow_loops(result):
    m = measure(result)
    s, k = 1, 0
    trainers, owners = result.everything.shape[1:]
    pairs = [(p, o) for p in range(trainers) for o in range(owners)]
    f1, everything = result.f1[s, :, :, k, 0], result.everything[s]
    held = [(p, o) for p, o in pairs if result.shares[o, p] > 0]
    assert m.f1[s, k, 0] == pytest.approx(np.mean([f1[at] for at in held]))
    assert m.everything[s] == pytest.approx(np.mean([everything[at] for at in held]))
    reached = [f1[at] >= everything[at] - 0.01 for at in pairs]
    assert m.reached[s, k, 0] == pytest.approx(np.mean(reached))
    useful = [at for at in pairs if everything[at] >= 0.5]
    reached = [f1[at] >= everything[at] - 0.01 for at in useful]
    assert m.reached_useful[s, k, 0] == pytest.approx(np.mean(reached))
    assert m.useful[s].sum() == len(useful)
    assert m.found[s, :, k].sum() == sum(f1[at] >= 0.5 for at in pairs)
    for j in range(len(SELECTORS)):
        f1, shares = result.f1[s, :, :, j, 0], []
        for p in range(trainers):
            useful = everything[p] >= 0.5
            ahead = [
                1.0 if a > b else 0.5 if a == b else 0.0
                for a in f1[p, useful]
                for b in f1[p, ~useful]
            ]
            shares.append(np.mean(ahead))
        assert m.ordered[s, j] == pytest.approx(np.mean(shares))
    level = dataclasses.replace(result, f1=np.full_like(result.f1, 0.5))
    assert (measure(level).ordered == 0.5).all()
    assert np.isnan(m.reached[s, 2:, 1:]).all()


def test_measures_where_no_owner_is_useful(result):
    useless = dataclasses.replace(
        result, everything=0 * result.everything, f1=0 * result.f1
    )
    m = measure(useless)
    assert np.isnan(m.reached_useful).all()
    assert np.isnan(m.ordered).all()
    assert m.found.sum() == m.useful.sum() == 0
    assert (m.reached[:, 0] == 1).all()
    tabular_blocks(useless)


def test_blocks_make_a_chapter_and_tell_what_was_measured(result, tmp_path):
    blocks, data = tabular_blocks(result)
    chapter = Chapter(title="A table", blocks=blocks, data=data)
    page, numbers = Report(title="T", summary="S", chapters=[chapter]).save(tmp_path)
    assert page.stat().st_size > 10_000
    assert "reached_of_useful" in numbers.read_text()
    m = measure(result)
    text = " ".join(block for block in blocks if isinstance(block, str))
    assert f"give a mean F1 of {m.f1[:, 0, 0].mean():.2f}" in text
    assert f"at random {m.f1[:, 1, 0].mean():.2f}" in text
    tables = [block for block in blocks if isinstance(block, Table)]
    assert len(tables) == 4
    beside = tables[0].rows[0]
    assert beside[1][0] == pytest.approx(m.reached[:, 0, 0].mean())
    assert beside[3:] == (0.65, 0.30)
    assert tables[1].rows[-1][2][0] == pytest.approx(m.found[:, :, 0].sum(1).mean())
    assert [row[0] for row in tables[2].rows] == [s.capitalize() for s in SELECTORS]


def test_causes_are_named_where_they_were_measured(result):
    useless = 0 * result.everything
    for reached, share in ((0.0, "100%"), (-0.5, "0%")):
        f1 = np.full_like(result.f1, reached)
        blocks, _ = tabular_blocks(
            dataclasses.replace(result, everything=useless, f1=f1)
        )
        text = " ".join(block for block in blocks if isinstance(block, str))
        assert (
            f"reach full information in {share} of the pairs by binning distance, and "
            f"in {share} at random"
        ) in text
        assert "reason" not in text
    f1 = result.f1.copy()
    f1[..., 0, 0] = 0
    blocks, _ = tabular_blocks(
        dataclasses.replace(result, everything=0 * useless + 1, f1=f1)
    )
    text = " ".join(block for block in blocks if isinstance(block, str))
    found = (f1[..., 0] >= 0.5).sum(2).mean(0).max(1)
    assert ("Other ways to choose find none" in text) == (found < 0.5).any()


def test_seeds_are_independent_and_reproducible(result):
    again = run_seed(1, "digits", planted(), None, SIZES, full=False)
    for name in ("everything", "f1", "hits", "by_classifier"):
        value = getattr(again, name)[0]
        np.testing.assert_array_equal(value, getattr(result, name)[1])
        assert not np.array_equal(value, getattr(result, name)[0], equal_nan=True)


def test_run_tabular_runs_each_seed(result, monkeypatch):
    monkeypatch.setattr(runs, "tables", lambda name: (planted(), None))
    monkeypatch.setitem(runs.SIZES, "digits", SIZES)
    best = [(name, GRID[name][9]) for name in classifiers_here()]
    monkeypatch.setattr(runs, "search", lambda *_: best)
    runs._searched.cache_clear()
    run = run_tabular((0,), table="digits")
    runs._searched.cache_clear()
    np.testing.assert_array_equal(run.f1[0], result.f1[0])
    # Classifiers are compared by what the search found, and by nothing else.
    assert run.settings == tuple(map(in_words, best))
    assert not np.array_equal(
        run.by_classifier[0], result.by_classifier[0], equal_nan=True
    )
    np.testing.assert_array_equal(run.seeds, [0])


def test_bad_input(result):
    with pytest.raises(ValueError, match="at least one seed"):
        run_tabular(())
    with pytest.raises(ValueError, match="table must be one of 'adult', 'digits'"):
        run_tabular((0,), table="wine")
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        run_tabular((-1,), table="digits")
    with pytest.raises(ValueError, match="at least one result"):
        join_tabular([])
    with pytest.raises(ValueError, match="one table and one size, got 'digits'"):
        join_tabular([result, dataclasses.replace(result, table="adult")])
