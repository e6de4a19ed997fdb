"""The first call: what it finds, returns, shows and refuses."""

import jax
import numpy as np
import pandas as pd
import pytest
from label_cases import draw
from scipy import optimize

import jaxsel
from jaxsel import data, labels, value
from jaxsel.labels import _find, _pool, _posterior


@pytest.fixture(scope="module")
def digits():
    """Return features, labels, and where these are wrong."""
    whole = data.load("digits")
    y, wrong = data.flip_labels(jax.random.key(0), whole.y[:400], 0.1, n_classes=10)
    return whole.as_features()[:400], np.asarray(y), np.asarray(wrong)


@pytest.fixture(scope="module")
def errors(digits):
    x, y, _ = digits
    return jaxsel.find_label_errors(x, y)


def test_wrong_digits_are_found(digits, errors):
    _, y, wrong = digits
    assert wrong[errors.indices].mean() > 0.9
    assert wrong[errors.indices].sum() > 0.65 * wrong.sum()
    assert abs(errors.n_errors - wrong.sum()) < 0.25 * wrong.sum()
    assert abs(errors.precision - wrong[errors.indices].mean()) < 0.1
    truth = data.load("digits").y[:400]
    rows = errors.indices[wrong[errors.indices]]
    assert (errors.suggested[rows] == truth[rows]).mean() > 0.9
    assert (np.diff(errors.scores[errors.indices]) >= 0).all()
    np.testing.assert_array_equal(errors.given, y)
    np.testing.assert_array_equal(np.flatnonzero(errors.mask), np.sort(errors.indices))


def test_labels_of_any_kind(digits, errors):
    x, y, _ = digits
    names = np.array([f"class {c}" for c in range(10)])[y]
    for given in (names, names.astype(object), (y * 3 - 7).astype(float), y.tolist()):
        found = jaxsel.find_label_errors(x, given)
        np.testing.assert_array_equal(found.indices, errors.indices)
        np.testing.assert_array_equal(found.given, np.asarray(given))
    assert found.suggested.dtype == np.asarray(y.tolist()).dtype


def test_a_table_with_names(digits, errors):
    x, y, _ = digits
    rows = [f"r{i}" for i in range(len(y))]
    table, column = pd.DataFrame(x, index=rows), pd.Series(y, index=rows)
    found = jaxsel.find_label_errors(table, column)
    np.testing.assert_array_equal(found.indices, errors.indices)
    shown = found.to_pandas()
    assert shown.index.tolist() == [f"r{i}" for i in errors.indices]
    assert shown.columns.tolist() == ["given", "suggested", "score", "wrong"]
    assert f"r{errors.indices[0]}" in str(found)
    with pytest.raises(ValueError, match="rows in one order"):
        jaxsel.find_label_errors(table, column.iloc[::-1])


def test_order_of_rows_hardly_matters(digits, errors):
    x, y, _ = digits
    order = np.random.default_rng(0).permutation(len(y))
    found = jaxsel.find_label_errors(x[order], y[order])
    moved = set(order[found.indices].tolist())
    assert len(moved & {*errors.indices.tolist()}) > 0.85 * len(errors)


def test_in_x64(digits, errors):
    x, y, _ = digits
    with jax.enable_x64(True):
        found = jaxsel.find_label_errors(x.astype(np.float64), y)
    both = np.intersect1d(found.indices, errors.indices)
    assert len(both) > 0.95 * len(errors)
    np.testing.assert_allclose(found.scores, errors.scores, atol=0.02)


def test_given_probabilities(digits):
    x, y, _ = digits
    probs = labels.cross_val_probs(value.GaussianNB(), x + 0.01, y)
    for filter_by in labels.FILTERS:
        found = jaxsel.find_label_errors(
            None, y, pred_probs=probs, filter_by=filter_by, rank_by="self_confidence"
        )
        wanted = labels.label_issues(probs, y, filter_by=filter_by)
        np.testing.assert_array_equal(found.mask, wanted)
        np.testing.assert_array_equal(found.scores, probs[np.arange(len(y)), y])
        assert found.duplicates is None
    seen = jaxsel.find_label_errors(x, y, pred_probs=probs)
    assert seen.duplicates is not None
    own = jaxsel.find_label_errors(x + 0.01, y, learner=value.GaussianNB())
    np.testing.assert_array_equal(own.indices, seen.indices)


def test_options_reach_the_filter(digits):
    y, probs = draw("many classes", 0)
    wanted = labels.label_issues(probs, y, min_per_class=12, noise_share=0.7)
    found = jaxsel.find_label_errors(
        None, y, pred_probs=probs, min_per_class=12, noise_share=0.7
    )
    np.testing.assert_array_equal(found.mask, wanted)
    assert (wanted != labels.label_issues(probs, y)).any()


def test_rankings_are_fused(digits, errors, monkeypatch):
    x, y, wrong = digits
    options = {"pred_probs": errors.pred_probs, "key": jax.random.key(0)}
    # Quicker than the default learner's bags.
    monkeypatch.setattr(_find.value, "LogisticRegression", value.GaussianNB)
    names = ("self_confidence", "knn_shapley", "data_oob")
    found = {n: jaxsel.find_label_errors(x, y, rank_by=n, **options) for n in names}
    for each in found.values():
        assert 0 <= each.scores.min() < each.scores.max() <= 1
        assert each.scores[wrong].mean() < 0.5 * each.scores[~wrong].mean()
    fused = jaxsel.find_label_errors(x, y, rank_by=names, **options)
    wanted = labels.fuse_ranks(*(found[name].scores for name in names))
    np.testing.assert_allclose(fused.scores, wanted, atol=1e-6)


def test_two_samples_of_each_class():
    x, y = np.array([[0.0], [0.1], [5.0], [5.1]]), np.array(["a", "a", "b", "b"])
    found = jaxsel.find_label_errors(x, y, folds=2)
    assert len(found) == 0
    assert np.isnan(found.precision)
    assert "0 of 4 labels are suspected" in str(found)
    assert found.to_pandas().shape == (0, 4)


@pytest.mark.left_out
def test_repeated_rows_and_constant_features():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(20, 3)), 5, axis=0)
    y = np.repeat(x[::5, 0] > 0, 5).astype(int)
    y[7] = 1 - y[7]
    found = jaxsel.find_label_errors(x, y)
    assert found.scores.argmin() == 7
    assert {7} == set(found.duplicates.pairs.ravel()) - {5, 6, 8, 9}
    flat = jaxsel.find_label_errors(np.ones((30, 2)), np.arange(30) % 3)
    assert np.isfinite(flat.scores).all()


def test_powers_of_a_pool_are_those_of_the_greatest_likelihood():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    members = []
    for noise in (1.0, 2.0):
        z = noise * rng.normal(size=(200, 3)) + 2 * np.eye(3)[y]
        members.append(z - np.log(np.exp(z).sum(1, keepdims=True)))

    def loss(powers):
        z = sum(p * m for p, m in zip(powers, members, strict=True))
        return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(200), y])

    probs, powers = _pool.pool(members, y)
    best = optimize.minimize(loss, [0.5, 0.5], method="Nelder-Mead")
    np.testing.assert_allclose(powers, best.x, atol=1e-2)
    assert loss(powers) < best.fun + 1e-6
    np.testing.assert_allclose(
        -np.log(probs[np.arange(200), y]).mean(), loss(powers), rtol=1e-9
    )
    # One that says the opposite is left out.
    _, powers = _pool.pool([members[0], -members[0]], y)
    assert powers[1] == 0


def test_probability_of_a_wrong_label_is_bayes_rule():
    """Where probabilities are what noise makes of known ones."""
    noise = np.array([[0.8, 0.1, 0.0], [0.15, 0.7, 0.2], [0.05, 0.2, 0.8]])
    true = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]])
    probs = true @ noise.T
    for given in range(3):
        found = _posterior.wrong_probability(probs, np.full(3, given), noise)
        wanted = 1 - true[:, given] * noise[given, given] / probs[:, given]
        np.testing.assert_allclose(found, wanted, atol=0.04)
    none = _posterior.wrong_probability(true, np.zeros(3, int), np.eye(3))
    np.testing.assert_allclose(none, 0, atol=1e-6)


def test_figures_and_tables(digits, errors):
    import matplotlib.pyplot as plt

    text = str(errors)
    first = errors.indices[0]
    assert f"{len(errors)} of 400 labels are suspected" in text
    assert f"and {len(errors) - 10} more" in text
    assert f"{first}" in text.splitlines()[4]
    assert repr(errors).startswith("LabelErrors(find_label_errors(logistic")
    left, right = errors.plot()
    counted = sum(patch.get_height() for patch in left.patches)
    assert counted > len(errors)
    assert len(right.patches) == min(8, len(errors.confused))
    plt.close("all")
    counts = errors.joint.counts
    pair = errors.confused[0]
    assert (
        counts[pair.given, pair.true]
        == pair.n
        == max(counts[i, j] for i in range(10) for j in range(10) if i != j)
    )
    assert pair.share == pair.n / counts[pair.given].sum()
    every = errors.to_pandas(whole=True)
    assert every["suspected"].sum() == len(errors)
    assert every["score"].tolist() == errors.scores.tolist()


def test_chapters(digits, errors, tmp_path):
    from jaxsel.report import Report

    images = data.load("digits").x[:400]
    texts = np.array(["<script>alert(1)</script> $x_"] * 400, object)
    for samples, blocks in ((images, 4), (texts, 3), (None, 3)):
        chapter = errors.chapter(samples, budget=5)
        assert len(chapter.blocks) == blocks
        assert chapter.title == f"{len(errors)} of 400 labels are probably wrong"
        alt, most = chapter.blocks[1].alt, errors.confused[0]
        assert alt.startswith(f"The {len(errors)} suspected labels have scores up to ")
        assert f"most often: {most.given} in place of {most.true} ({most.n})" in alt
        folder = tmp_path / str(blocks)
        page, _ = Report(title="T", summary="S", chapters=[chapter]).save(folder)
        shown = page.read_text()
        assert "<script>alert" not in shown
        if samples is texts:
            assert "&lt;script&gt;alert" in shown
        table = chapter.blocks[-1]
        assert len(table.rows) == 5
        assert table.rows[0][0] == str(errors.indices[0])
    first = errors.indices[0]
    assert f" {first} is labelled {errors.given[first]}, and more like " in (
        errors.chapter(images, budget=5).blocks[2].alt
    )
    with pytest.raises(ValueError, match="one entry for each of 400"):
        errors.chapter(images[:10])


def test_a_chapter_on_clean_labels_says_so():
    p = np.repeat(np.eye(2) * 0.9 + 0.05, 20, axis=0)
    clean = jaxsel.find_label_errors(None, np.repeat([0, 1], 20), pred_probs=p)
    chapter = clean.chapter()
    assert chapter.title == "None of 40 labels are probably wrong"
    assert "lowest score is 0.95" in chapter.blocks[1].alt


@pytest.mark.parametrize("limit", [7199, 7200])
def test_neighbours_are_searched_unasked_where_that_is_cheap(limit, monkeypatch):
    """Of 60 samples of two features: 60 * 60 * 2 multiply-adds."""
    monkeypatch.setattr(_find, "_SEARCH", limit)
    x = np.random.default_rng(0).normal(size=(60, 2))
    found = jaxsel.find_label_errors(x, (x[:, 0] > 0).astype(int))
    assert ("metric=" in found.method) == (limit == 7200)


def test_hostile_labels_stay_on_one_line(tmp_path):
    from jaxsel.report import Report

    names = np.array(["a\nb\x1b[31m" + "z" * 200, "<b>$\\frac{</b>"])
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = names[(x[:, 0] > 0).astype(int)]
    y[:3] = names[(x[:3, 0] <= 0).astype(int)]
    found = jaxsel.find_label_errors(x, y)
    assert len(found)
    assert all(len(line) < 120 for line in str(found).splitlines())
    assert "\x1b" not in str(found)
    chapter = found.chapter()
    page, _ = Report(title="T", summary="S", chapters=[chapter]).save(tmp_path)
    assert "<b>" not in page.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "x must be given where pred_probs are not"),
        ({"y": np.zeros(40, int)}, "two classes or more"),
        ({"y": np.arange(39) % 2}, "same length"),
        ({"x": np.full((40, 2), np.nan)}, "x must be finite"),
        ({"x": np.full(40, "text")}, "x must be numeric"),
        ({"y": np.full(40, np.nan)}, "y must be finite"),
        ({"y": np.linspace(0, 1, 40)}, "must hold class labels"),
        ({"rank_by": "best"}, "rank_by must be one of"),
        ({"rank_by": ()}, "one ranking or more"),
        ({"rank_by": "data_oob"}, "key must be given for rank_by 'data_oob'"),
        ({"filter_by": "none"}, "filter_by must be one of"),
        ({"metric": "l1"}, "metric must be one of"),
        ({"duplicates": -1}, "duplicates must be"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"classes": ["a", "b"]}, "classes are for the columns of pred_probs"),
        ({"pred_probs": np.full((40, 2), 2.0)}, "between 0 and 1"),
        (
            {"pred_probs": np.full((40, 2), 0.5), "learner": value.GaussianNB()},
            "must not both be given",
        ),
        (
            {"x": None, "pred_probs": np.full((40, 2), 0.5), "rank_by": "knn_shapley"},
            "x must be given for rank_by 'knn_shapley'",
        ),
        ({"learner": "logistic"}, "learner must be one of jaxsel.value"),
    ],
)
def test_what_is_refused(change, message):
    given = {"x": np.eye(40), "y": np.arange(40) % 2} | change
    with pytest.raises((ValueError, TypeError), match=message):
        jaxsel.find_label_errors(given.pop("x"), given.pop("y"), **given)
