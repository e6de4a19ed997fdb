"""The first call: what it finds, returns, shows and refuses."""

import jax
import numpy as np
import pandas as pd
import pytest
from label_cases import draw
from scipy import optimize

import jaxsel
from jaxsel import data, labels, tables, value
from jaxsel._inputs.columns import on_one_scale
from jaxsel.labels import _neighbours, _pool, _rank
from jaxsel.labels._quality import fuse_ranks


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


@pytest.mark.left_out
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


@pytest.mark.left_out
def test_rankings_are_fused(digits, errors, monkeypatch):
    x, y, wrong = digits
    options = {"pred_probs": errors.pred_probs, "key": jax.random.key(0)}
    # Quicker than the default learner's bags.
    monkeypatch.setattr(_rank.value, "LogisticRegression", value.GaussianNB)
    names = ("self_confidence", "knn_shapley", "data_oob")
    found = {n: jaxsel.find_label_errors(x, y, rank_by=n, **options) for n in names}
    for each in found.values():
        assert 0 <= each.scores.min() < each.scores.max() <= 1
        assert each.scores[wrong].mean() < 0.5 * each.scores[~wrong].mean()
    fused = jaxsel.find_label_errors(x, y, rank_by=names, **options)
    wanted = fuse_ranks(*(found[name].scores for name in names))
    np.testing.assert_allclose(fused.scores, wanted, atol=1e-6)


@pytest.mark.parametrize("name", labels.RANKINGS)
def test_rankings_check_their_needs(name):
    """Before any model is trained; each ranks wrong labels low."""
    ranking = _rank.RANKINGS_BY_NAME[name]
    x = np.random.default_rng(0).normal(size=(40, 2)) + 9 * (np.arange(40)[:, None] % 2)
    y = np.arange(40) % 2
    y[:2] = 1, 0
    options = {"rank_by": name, "learner": value.GaussianNB()}
    if ranking.samples:
        with pytest.raises(ValueError, match=f"x must be given for rank_by {name!r}"):
            labels.find_label_errors(None, y, pred_probs=np.eye(2)[y], rank_by=name)
    if ranking.draws:
        with pytest.raises(ValueError, match=f"key must be given for rank_by {name!r}"):
            labels.find_label_errors(x, y, **options)
        options["key"] = jax.random.key(0)
    result = labels.find_label_errors(x, y, **options)
    assert sorted(np.argsort(result.scores)[:2].tolist()) == [0, 1]
    assert 0 <= result.scores.min() <= result.scores.max() <= 1


@pytest.mark.left_out
def test_two_samples_of_each_class():
    x, y = np.array([[0.0], [0.1], [5.0], [5.1]]), np.array(["a", "a", "b", "b"])
    found = jaxsel.find_label_errors(x, y, folds=2)
    assert len(found) == 0
    assert np.isnan(found.precision)
    assert "None of 4 labels is suspected" in str(found)
    assert "nan" not in str(found)
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


def test_units_of_columns_make_no_difference():
    rng = np.random.default_rng(0)
    n = 150
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 5)) + 1.5 * np.eye(5)[y]
    x = np.column_stack([x, rng.integers(0, 2, n), np.ones(n)])
    y[:6] = (y[:6] + 1) % 3
    plain = jaxsel.find_label_errors(x, y)
    units = np.array([1e-9, 1.0, 1e3, 1e6, 20.0, 7.0, 1e12])
    # A timestamp around 1.7e9 has digits that float32 drops.
    raw = x * units + np.array([0, 0, -5e4, 1.7e9, 0, 0, 0])
    found = jaxsel.find_label_errors(raw, y)
    np.testing.assert_allclose(found.scores, plain.scores, atol=2e-3)
    assert found.n_errors == plain.n_errors
    assert found.duplicates.radius == pytest.approx(plain.duplicates.radius, rel=1e-3)


def test_embeddings_keep_their_scale():
    """Directions of little variance are noise: standardised, they would count."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 64)) * np.linspace(1, 0.1, 64)
    assert on_one_scale(x) is not x
    np.testing.assert_array_equal(on_one_scale(x), x.astype(np.float32))
    table = rng.normal(size=(60, 64)) * np.append(np.ones(62), [1e6, 1e4])
    np.testing.assert_allclose(on_one_scale(table).std(0), 1, rtol=1e-5)
    # All of one value, two values, and a range beyond float64's.
    odd = np.stack([np.ones(60), np.arange(60) % 2 * 8.0, np.linspace(-1, 1, 60)], 1)
    odd[:, 2] *= 1.7e308
    scaled = on_one_scale(odd)
    assert np.ptp(scaled, axis=0).tolist()[:2] == [0, 1]
    assert scaled[:, 2].std() == pytest.approx(1)


def test_overlapping_classes_are_said_to_overlap():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = rng.normal(size=(400, 2)) + y[:, None]
    found = jaxsel.find_label_errors(x, y, duplicates=None)
    assert found.joint.n_errors > 60 > found.interval[0]
    assert found.precision < 0.3
    assert f"held-out accuracy is {(found.suggested == y).mean():.0%}" in str(found)
    assert "most suspects are hard to tell, not wrong" in str(found)


def test_figures_and_tables(digits, errors):
    import matplotlib.pyplot as plt

    _, y, _ = digits
    text = str(errors)
    first = errors.indices[0]
    low, high = errors.interval
    first_line = f"About {errors.n_errors} of 400 labels are wrong (95 % interval: "
    assert text.startswith(f"{first_line}{low} to {high})\n{len(errors)} are suspected")
    assert f"and {len(errors) - 10} more" in text
    assert f"{first}" in text.splitlines()[4]
    assert repr(errors).startswith(f"LabelErrors({len(errors)} of 400 labels suspected")
    assert len(repr(errors)) <= 300
    html = errors._repr_html_()
    assert html.count("<tr>") == 11
    assert f"<td>{first}</td>" in html
    left, right = errors.plot()
    counted = sum(patch.get_height() for patch in left.patches)
    assert counted > len(errors)
    assert len(right.patches) == min(8, sum(p.n >= 0.5 for p in errors.confused))
    plt.close("all")
    numbers = [pair.n for pair in errors.confused]
    assert numbers == sorted(numbers, reverse=True)
    assert sum(numbers) == pytest.approx(errors.n_errors, abs=0.51)
    pair = errors.confused[0]
    assert pair.share == pytest.approx(pair.n / (y == pair.given).sum())
    every = errors.to_pandas(whole=True)
    assert every["suspected"].sum() == len(errors)
    assert every["score"].tolist() == errors.scores.tolist()


@pytest.mark.left_out
def test_chapters(digits, errors, tmp_path):
    from jaxsel.report import Report

    images = data.load("digits").x[:400]
    texts = np.array(["<script>alert(1)</script> $x_"] * 400, object)
    for samples, blocks in ((images, 4), (texts, 3), (None, 3)):
        chapter = errors.chapter(samples, budget=5)
        assert len(chapter.blocks) == blocks
        assert chapter.title == f"About {errors.n_errors} of 400 labels are wrong"
        alt, most = chapter.blocks[1].alt, errors.confused[0]
        assert alt.startswith(f"The {len(errors)} suspected labels have scores up to ")
        assert f"most often: {most.given} in place of {most.true} ({most.n:.0f})" in alt
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
    with pytest.raises(ValueError, match="samples must have one entry for each of 400"):
        errors.chapter(images[:10])
    columns = {"age": np.linspace(0, 1e7, 400), "town": np.full(400, "Ur")}
    chapter = errors.chapter(columns=columns, budget=5)
    assert chapter.blocks[-1].columns[-2:] == ["age", "town"]
    assert chapter.blocks[-1].rows[0][-2:] == [f"{first * 1e7 / 399:.6g}", "Ur"]
    with pytest.raises(ValueError, match="age must have one entry for each of 400"):
        errors.chapter(columns={"age": np.arange(3)})


def test_a_chapter_on_clean_labels_says_so():
    p = np.repeat(np.eye(2) * 0.9 + 0.05, 20, axis=0)
    clean = jaxsel.find_label_errors(None, np.repeat([0, 1], 20), pred_probs=p)
    chapter = clean.chapter()
    assert chapter.title == "About 0 of 40 labels are wrong"
    assert "lowest score is 0.95" in chapter.blocks[1].alt
    # Neither a table without rows nor a picture without bars.
    assert len(chapter.blocks) == 2
    assert not clean.plot()[1].patches


@pytest.mark.parametrize("limit", [7199, 7200])
@pytest.mark.every(2)
def test_neighbours_are_searched_unasked_where_that_is_cheap(limit, monkeypatch):
    """Of 60 samples of two features: 60 * 60 * 2 multiply-adds."""
    monkeypatch.setattr(_neighbours, "_SEARCH", limit)
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
        ({"k": 0}, "k must be at least 1, got 0"),
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


@pytest.mark.left_out
def test_suspects_that_may_all_be_wrong_are_not_said_to_be_right():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 2)) + y[:, None]
    found = jaxsel.find_label_errors(x, y, duplicates=None)
    assert found.precision < 0.5
    assert found.interval[1] >= len(found)
    assert found.summary[-1].endswith("labels are wrong: the samples can't tell which")


@pytest.mark.left_out
def test_a_single_suspect_says_nothing_of_overlap():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.normal(size=(200, 4)) + 5 * y[:, None]
    y[7] = 1 - y[7]
    found = jaxsel.find_label_errors(x, y, duplicates=None)
    assert found.indices.tolist() == [7]
    assert found.precision < 0.5
    assert "Classes overlap:" not in str(found)


def test_columns_of_a_chapter_come_as_a_frame():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 2)) + 5 * y[:, None]
    y[3] = 1 - y[3]
    found = jaxsel.find_label_errors(x, y)
    town = pd.Series([f"town {i}" if i % 2 else None for i in range(60)])
    frame = pd.DataFrame({7: town, "age": np.where(town.isna(), 30.5, np.nan)})
    table = next(b for b in found.chapter(columns=frame).blocks if hasattr(b, "rows"))
    assert table.columns[-2:] == ["7", "age"]
    assert next(row for row in table.rows if row[0] == "3")[-2:] == ["town 3", ""]


@pytest.mark.parametrize("gaps", [[np.nan], [None], [pd.NA]])
@pytest.mark.left_out
def test_gaps_of_a_data_frame_are_encoded(gaps):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    frame = pd.DataFrame(rng.normal(size=(80, 2)) + 5 * y[:, None], columns=["a", "b"])
    frame["c"] = pd.Series([1, 2, 3, *gaps] * 20, dtype="Int64")
    y[3] = 1 - y[3]
    with pytest.warns(UserWarning, match="x has gaps, as in column 'c'"):
        found = jaxsel.find_label_errors(frame, y)
    encoded = tables.TableEncoder().fit_transform(frame)
    expected = jaxsel.find_label_errors(encoded, y)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert 3 in found.indices
    with pytest.raises(ValueError, match="row 3 has NaN"):
        jaxsel.find_label_errors(frame.astype(float).to_numpy(), y)
