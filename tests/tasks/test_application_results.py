"""Curves, embeddings that remember, agreement, draws and learners."""

import itertools

import jax
import numpy as np
import pytest
from flax import nnx

from jaxsel import Values
from jaxsel.tasks import _embedding
from jaxsel.tasks._adaptation import domain_adaptation
from jaxsel.tasks._agreement import percentile_smoothing, rank_agreement
from jaxsel.tasks._application import check_source, draw_runs, random_values
from jaxsel.tasks._curves import Curves
from jaxsel.tasks._embedding import train_embedding
from jaxsel.tasks._learners import retrain_cnn, retrain_logistic
from jaxsel.tasks._noisy import noisy_labels
from jaxsel.tasks._summary import summarisation
from jaxsel.tasks._watermarks import instance_watermark_detection

from .application_cases import digits, nearest, oracle

pytestmark = pytest.mark.slow

KEY = jax.random.key(0)


def curves(**change):
    fields = {
        "name": "Test",
        "x": np.array([0.0, 0.5, 1.0]),
        "curves": {
            "a": np.array([[0.0, 0.2, 0.9], [0.4, 0.2, 0.5]]),
            "b": np.zeros((2, 3)),
        },
        "summary": {"a": {"auc": np.array([0.25, 0.75])}},
        "xlabel": "Share removed",
        "ylabel": "Accuracy",
        "percent_x": True,
    }
    return Curves(**(fields | change))


def test_curves_by_hand():
    result = curves()
    assert result.seeds == 2
    assert "a, b; 2 seeds" in repr(result)
    np.testing.assert_allclose(result.mean()["a"], [0.2, 0.2, 0.7])
    low, high = result.band()["a"]
    # Two numbers 2d apart have the standard deviation d * sqrt(2).
    d = np.array([0.2, 0, 0.2]) * np.sqrt(2)
    np.testing.assert_allclose(high, [0.2, 0.2, 0.7] + d)
    np.testing.assert_allclose(low, [0.2, 0.2, 0.7] - d)
    mean, sd = result.describe()["a"]["auc"]
    assert (mean, sd) == pytest.approx((0.5, 0.25 * np.sqrt(2)))
    one = curves(curves={"a": np.array([[0.1, 0.2, 0.3]])}, summary={})
    np.testing.assert_array_equal(one.band()["a"][0], one.band()["a"][1])


def test_curves_as_table_and_figure():
    result = curves()
    table = result.to_pandas()
    assert list(table) == ["method", "seed", "x", "y"]
    assert len(table) == 12
    row = table[(table.method == "a") & (table.seed == 1) & (table.x == 1.0)]
    assert row.y.item() == 0.5
    ax = result.plot()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), result.mean()["a"])
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(result.band()["a"][1].max())
    assert ax.get_xlabel() == "Share removed"
    figure = result.figure()
    assert figure.alt == (
        "Accuracy against share removed, at 100%, where the methods differ most: "
        "a 70.0%, b 0.0%."
    )
    crossed = curves(curves={"a": np.ones((2, 3)), "b": np.array([[1, 1.5, 1.25]] * 2)})
    assert crossed.figure().alt == (
        "Accuracy against share removed, at 50%, where the methods differ most: "
        "b 150.0%, a 100.0%; at 100%: b 125.0%, a 100.0%."
    )
    assert "2 seeds" in figure.caption
    named = curves(ticks=("none", "half", "all"), percent_x=False)
    assert "at 'all', where the methods differ most: a 70.0%" in named.figure().alt


def test_curves_refuse():
    with pytest.raises(ValueError, match=r"curves\['b'\] must have shape \[seeds, 3\]"):
        curves(curves={"a": np.zeros((2, 3)), "b": np.zeros((3, 3))})
    with pytest.raises(ValueError, match="curves must not be empty"):
        curves(curves={})


@pytest.fixture(scope="module")
def embedding():
    data = digits()
    low = data.y < 5
    return train_embedding(data.x[low], data.y[low], kind="mlp", steps=50, key=KEY)


def test_an_embedding_knows_its_own(embedding):
    data = digits()
    np.testing.assert_array_equal(embedding.seen(data.x), data.y < 5)
    np.testing.assert_array_equal(embedding.seen(data.x / 255), data.y < 5)
    changed = data.x[data.y < 5].copy()
    changed[:, 4, 4, 0] ^= 1
    assert not embedding.seen(changed).any()
    assert "trained on 901 rows" in repr(embedding)
    with pytest.raises(ValueError, match=r"x must hold samples of shape \(8, 8, 1\)"):
        embedding(np.ones((2, 64)))


def test_features_of_an_mlp(embedding):
    x = digits().x[:7]
    layer = nnx.merge(embedding.graphdef, embedding.params).model.layers[0]
    kernel, bias = np.asarray(layer.kernel[...]), np.asarray(layer.bias[...])
    expected = np.maximum(x.reshape(7, -1) / 255 @ kernel + bias, 0)
    np.testing.assert_allclose(embedding(x), expected, atol=1e-5)


def test_features_of_a_cnn(monkeypatch):
    monkeypatch.setattr(_embedding, "fit", lambda graphdef, params, *_, **__: params)
    data = digits()
    embedding = train_embedding(data.x[:200], data.y[:200], key=KEY)
    model = nnx.merge(embedding.graphdef, embedding.params).model
    x = data.x[:3] / 255
    for layer in model.convolutions:
        kernel = np.asarray(layer.kernel[...]).reshape(3, 3, x.shape[-1], -1)
        n, height, width, _ = x.shape
        out = np.zeros((n, height, width, kernel.shape[-1])) + np.asarray(layer.bias)
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        for i, j in itertools.product(range(3), repeat=2):
            out += padded[:, i : i + height, j : j + width] @ kernel[i, j]
        blocks = np.maximum(out, 0).reshape(n, height // 2, 2, width // 2, 2, -1)
        x = blocks.max((2, 4))
    np.testing.assert_allclose(embedding(data.x[:3]), x.reshape(3, -1), atol=1e-5)


def test_applications_warn_of_an_embedding_that_saw_the_data(embedding):
    data = digits()
    low, high = data.take(data.y < 5), data.take(data.y >= 5)
    methods = {"a": oracle}
    common = {"n": 100, "n_val": 100, "seeds": 1, "key": KEY, "embed": embedding}
    test = {"n_test": 50, "learner": nearest}
    noisy_labels(high.x, high.y, methods, **common)  # warnings are errors
    with pytest.warns(UserWarning, match="trained on 100 of the 100 rows") as caught:
        noisy_labels(low.x, low.y, methods, **common)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"trained on \d\d of the 100 rows") as caught:
        summarisation(data.x, data.y, methods, remove=[0, 0.5], **common, **test)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="trained on 20 of the 120 rows"):
        instance_watermark_detection(
            high.x, high.y, low.x[:20], methods, rate=0.2, **common, **test
        )
    with pytest.warns(UserWarning, match="trained on 100 of the 100 rows"):
        domain_adaptation(low, high, methods, **common, **test)


def test_training_an_embedding_refuses():
    data = digits()
    with pytest.raises(ValueError, match="two or more classes, got 1"):
        train_embedding(data.x[:9], np.zeros(9, int), key=KEY)
    with pytest.raises(TypeError, match="y_other must hold whole numbers"):
        train_embedding(data.x[:9], np.zeros(9), key=KEY)
    with pytest.raises(ValueError, match="kind must be one of 'cnn', 'mlp'"):
        train_embedding(data.x[:9], data.y[:9], kind="vit", key=KEY)


def test_agreement_by_brute_force():
    rng = np.random.default_rng(0)
    a, b = rng.permutation(40), rng.permutation(40)
    wrapped = Values(values=jax.numpy.asarray(a, float), count=jax.numpy.int32(1))
    result = rank_agreement({"a": wrapped, "b": b, "-a": -a}, top=(0.1, 0.5))
    assert result.names == ("a", "b", "-a")
    squares = np.sum((a - b) ** 2)
    assert result.spearman[0, 1] == pytest.approx(1 - 6 * squares / (40 * (40**2 - 1)))
    pairs = list(itertools.combinations(range(40), 2))
    tau = np.mean([np.sign((a[i] - a[j]) * (b[i] - b[j])) for i, j in pairs])
    assert result.kendall[1, 0] == pytest.approx(tau)
    assert result.spearman[0, 2] == result.kendall[0, 2] == pytest.approx(-1)
    for t, count in enumerate((4, 20)):
        both = np.sum((a >= 40 - count) & (b >= 40 - count))
        assert result.overlap[t, 0, 1] == both / count
        assert result.overlap[t, 0, 2] == 0
    np.testing.assert_array_equal(np.diagonal(result.overlap, axis1=1, axis2=2), 1)
    shown = ", ".join(
        f"{a}/{b}: {result.spearman[i, j]:.4g}"
        for (i, a), (j, b) in itertools.combinations(enumerate(result.names), 2)
    )
    assert repr(result) == f"Agreement(3 methods, spearman={{{shown}}})"
    table = result.to_pandas()
    assert len(table) == 3 * 4
    assert result.smoothed == {}
    texts = [text.get_text() for text in result.plot().texts]
    assert texts[1] == f"{result.spearman[0, 1]:.2f}"


def test_smoothing_by_brute_force():
    rng = np.random.default_rng(1)
    truth = np.round(rng.normal(size=500), 1)  # with ties
    values = truth + rng.normal(size=500) * 3
    result = percentile_smoothing(truth, values, bins=20)
    edges = [-np.inf, *np.percentile(truth, np.arange(5, 100, 5)), np.inf]
    groups = [
        (truth > low) & (truth <= high) for low, high in itertools.pairwise(edges)
    ]
    groups = [group for group in groups if group.any()]
    np.testing.assert_allclose(result.truth, [truth[g].mean() for g in groups])
    np.testing.assert_allclose(result.values, [values[g].mean() for g in groups])
    assert 0 <= result.p_value < 1e-3
    agreement = rank_agreement({"t": truth, "v": values}, truth="t", bins=20)
    assert set(agreement.smoothed) == {"v"}
    assert agreement.smoothed["v"].spearman == result.spearman
    # Means over groups agree better than single points.
    assert result.spearman > agreement.spearman[0, 1] + 0.2


def test_agreement_of_constant_values_is_not_a_number():
    result = rank_agreement({"a": np.arange(9), "b": np.ones(9)}, top=(0.5,))
    assert np.isnan(result.spearman[0, 1])
    assert np.isnan(result.kendall[0, 1])


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"a": np.arange(5)}, {}, "two or more names"),
        ({"a": np.arange(5), "b": np.arange(6)}, {}, "same length, 3 or more"),
        ({"a": np.arange(5), "b": np.ones((5, 2))}, {}, r"values\['b'\] must have"),
        ({"a": np.arange(5), "b": np.arange(5)}, {"top": (1.5,)}, "top must be above"),
        (
            {"a": np.arange(5), "b": np.arange(5)},
            {"truth": "c", "top": (0.5,)},
            "truth must be one of 'a', 'b' or None",
        ),
        (
            {"a": np.ones(5), "b": np.arange(5)},
            {"truth": "a", "top": (0.5,)},
            "three or more groups, got 1",
        ),
    ],
)
def test_agreement_refuses(values, options, message):
    with pytest.raises(ValueError, match=message):
        rank_agreement(values, **options)


def test_balanced_parts():
    y = np.repeat([0, 1, 2], [300, 50, 40])
    source = check_source(np.ones((390, 2)), y)
    sizes = {"n": 60, "n_val": 31}
    (run,) = draw_runs(source, sizes, seeds=1, key=KEY, balanced=True)
    np.testing.assert_array_equal(np.bincount(y[run.parts[0]]), 20)
    assert np.ptp(np.bincount(y[run.parts[1]])) == 1
    assert len(np.unique(np.concatenate(run.parts))) == 91


def test_random_values():
    values = random_values(KEY, 1000)
    assert isinstance(values, Values)
    assert len(values) == 1000
    assert abs((np.asarray(values.values) > 0).mean() - 0.5) < 4 * np.sqrt(0.25 / 1000)


def test_learners_against_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    data = digits()
    x, y = data.as_features(), data.y
    train, test = np.arange(0, 1797, 3), np.arange(1, 1797, 3)
    split = x[train], y[train], x[test], y[test]
    theirs = LogisticRegression(max_iter=1000).fit(*split[:2]).score(*split[2:])
    error = np.sqrt(theirs * (1 - theirs) / len(test))
    ours = retrain_logistic(steps=300)
    first = ours(*split, KEY)
    assert abs(first - theirs) < 4 * error
    assert ours(*split, KEY) == first
    assert ours.on(*split[:2], [split[2:], split[:2]], KEY)[0] == first
    assert retrain_cnn(channels=(4,)).hidden == (4,)
