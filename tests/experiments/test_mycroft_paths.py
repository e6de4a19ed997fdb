"""Decision paths and combined choices, on a planted table."""

import jax
import numpy as np
import pytest
from planted_tables import SIZES, planted

from experiments.mycroft.tabular import paths as room
from experiments.mycroft.tabular.chapter import tabular_blocks
from experiments.mycroft.tabular.market import deal, mixtures
from experiments.mycroft.tabular.paths import (
    BUDGET,
    OTHERS,
    SPLITS,
    WAYS,
    combine,
    features_asked,
    join_paths,
    on_path,
    paths_of,
    paths_seed,
)
from experiments.mycroft.tabular.run import join_tabular, run_seed
from experiments.mycroft.tabular.select import SELECTORS, prepare_offer
from jaxsel.report import Figure, Table

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def found():
    return join_paths([paths_of(seed, planted(), SIZES) for seed in SEEDS])


@pytest.fixture(scope="module")
def tabular():
    runs = [run_seed(s, "digits", planted(), None, SIZES, full=False) for s in SEEDS]
    return join_tabular(runs)


@pytest.fixture(scope="module")
def offer():
    table = planted()
    market = deal(table, mixtures(2), key=jax.random.key(0), **SIZES)
    rows, beside = market.offered[2], market.beside[2]
    made = prepare_offer(table.known(rows), table.x[beside], table.categorical, seed=0)
    return made, table.x[market.hard[1]]


def walked(tree, row):
    """Walk down a tree, and return the nodes and columns that a row meets."""
    node, nodes, columns = 0, [0], set()
    while tree.children_left[node] >= 0:
        column = tree.feature[node]
        columns.add(column)
        goes_left = row[column] <= tree.threshold[node]
        node = (tree.children_left if goes_left else tree.children_right)[node]
        nodes.append(node)
    return tuple(nodes), columns


def test_paths_are_those_of_a_walk_down_the_tree(offer):
    made, hard = offer
    tree = made.tree.tree_
    theirs = [walked(tree, row) for row in hard]
    nodes = {path for path, _ in theirs}
    expected = [walked(tree, row)[0] in nodes for row in made.known.x]
    same = on_path(made, hard)
    np.testing.assert_array_equal(same, expected)
    assert 0 < same.sum() < len(same)
    asked = np.mean([len(columns) for _, columns in theirs])
    assert features_asked(made, hard) == pytest.approx(asked)
    assert asked > 1


def test_combined_choices_by_hand():
    one, two = np.array([4, 2, 0, 1, 3]), np.array([2, 3, 4, 1, 0])
    np.testing.assert_array_equal(combine(one, two, 0, 3), [2, 3, 4])
    np.testing.assert_array_equal(combine(one, two, 2, 4), [4, 2, 3, 1])
    np.testing.assert_array_equal(combine(one, two, 3, 3), [4, 2, 0])


def test_cases_are_pairs_in_which_the_owner_holds_the_kind(found):
    holds = np.swapaxes(found.shares, 1, 2) > 0
    cases = found.cases()
    assert cases.any(axis=(1, 2)).all()
    assert not cases[~holds].any()
    assert np.isnan(found.alone[~cases]).all()
    for values in (found.alone, found.hits, found.combined):
        assert np.isfinite(values[cases]).all()
        assert np.all((values[cases] >= 0) & (values[cases] <= 1))
    assert found.alone.shape == (2, 2, 5, len(WAYS))
    assert found.combined.shape == (2, 2, 5, len(OTHERS), len(SPLITS))
    share = found.on_path[cases]
    assert np.all((share * SIZES["n_owner"] >= BUDGET) & (share < 1))


def test_means_are_over_the_cases_of_each_seed(found):
    for s, mean in enumerate(found.means(found.alone)):
        rows = [found.alone[s, p, o] for p, o in np.argwhere(found.cases()[s])]
        np.testing.assert_allclose(mean, np.mean(rows, axis=0))


@pytest.mark.left_out
def test_trainers_owners_and_draws_are_those_of_the_other_experiment(found, tabular):
    """Five by binning distance, and five at random, have the same F1 in both."""
    cases = found.cases()
    for way, name in (("Mycroft", "binning distance"), ("random", "random")):
        np.testing.assert_array_equal(
            found.alone[cases][:, WAYS.index(way)],
            tabular.f1[cases][:, SELECTORS.index(name), 0],
        )
    # Ten by Mycroft, whatever it is combined with; ten at random.
    ten = tabular.f1[cases][:, :2, 1]
    np.testing.assert_array_equal(found.combined[cases][:, 0, -1], ten[:, 0])
    np.testing.assert_array_equal(found.combined[cases][:, 1, -1], ten[:, 0])
    np.testing.assert_array_equal(found.combined[cases][:, 1, 0], ten[:, 1])


def test_the_path_of_a_hard_sample_leads_to_its_kind(found):
    hits = dict(zip(WAYS, found.means(found.hits).mean(axis=0), strict=True))
    assert hits["same path"] > hits["random"] > hits["other paths"]


def test_an_owner_without_two_kinds_of_paths_is_no_case(monkeypatch):
    """All candidates on one path: there are no others to compare with."""
    monkeypatch.setattr(
        room, "on_path", lambda offer, hard: np.ones(len(offer.known.x), bool)
    )
    found = paths_of(0, planted(), SIZES)
    assert np.isnan(found["alone"]).all()
    assert np.isnan(found["on_path"]).all()


@pytest.mark.left_out
def test_blocks_show_paths(found, tabular):
    blocks, data = tabular_blocks(tabular, found)
    (table,) = (b for b in blocks if isinstance(b, Table) and b.columns[0] == "Sent")
    assert table.rows[1][1][0] == pytest.approx(found.means(found.alone)[:, 1].mean())
    figures = [block for block in blocks if isinstance(block, Figure)]
    assert sum("Figure 10" in f.caption for f in figures) == 1
    assert sum("Figure 11" in f.caption for f in figures) == 1
    np.testing.assert_array_equal(
        data["paths"]["f1_combined"], found.means(found.combined)
    )
    assert "paths" not in tabular_blocks(tabular)[1]


def test_bad_input():
    with pytest.raises(ValueError, match="table must be one of 'adult', 'digits'"):
        paths_seed(0, table="wine")
    with pytest.raises(ValueError, match="tree must be one of 'depth 4', 'leaves of"):
        paths_seed(0, table="digits", tree="oak")
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        paths_seed(-1, table="digits")
