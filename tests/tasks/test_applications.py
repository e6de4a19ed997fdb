import jax
import numpy as np
import pytest

from jaxsel import knn_shapley
from jaxsel.tasks._acquisition import acquisition
from jaxsel.tasks._adaptation import domain_adaptation
from jaxsel.tasks._noisy import noisy_labels
from jaxsel.tasks._removal import point_addition, point_removal
from jaxsel.tasks._summary import summarisation
from jaxsel.tasks._watermarks import (
    instance_watermark_detection,
    pattern_watermark_detection,
)

from .application_cases import (
    Recorder,
    class_zero,
    digits,
    fooled,
    is_right,
    labels_by_row,
    nearest,
    numbered,
    oracle,
)

KEY = jax.random.key(0)


def by_knn(x, y, x_val, y_val, key):
    return knn_shapley(x, y, x_val, y_val, k=5)


@pytest.fixture(scope="module")
def noisy():
    data = digits()
    methods = {"oracle": oracle, "fooled": fooled, "KNN-Shapley": by_knn}
    return noisy_labels(data.x, data.y, methods, n=200, n_val=100, seeds=4, key=KEY)


def test_noisy_labels_known_answers(noisy):
    auc = {name: measures["auc"] for name, measures in noisy.summary.items()}
    np.testing.assert_array_equal(auc["oracle"], 1)
    np.testing.assert_array_equal(auc["fooled"], 0)
    np.testing.assert_array_equal(noisy.summary["oracle"]["found_at_bad"], 1)
    # The variance of the AUC of 20 bad among 200, from that of the rank-sum statistic.
    error = np.sqrt(201 / (12 * 20 * 180) / 4)
    assert abs(auc["Random"].mean() - 0.5) < 4 * error
    assert auc["KNN-Shapley"].min() > 0.9
    assert noisy.curves["oracle"].shape == (4, 201)
    expected = np.minimum(np.arange(201) / 20, 1)
    np.testing.assert_allclose(noisy.curves["oracle"][2], expected)


def test_parts_are_disjoint_and_only_training_labels_are_flipped():
    data, seen = digits(), Recorder(lambda x, y: np.arange(len(y)))
    noisy_labels(data.x, data.y, {"a": seen}, n=150, n_val=90, seeds=3, key=KEY)
    assert len(seen.calls) == 3
    for x, y, x_val, y_val in seen.calls:
        assert x.shape == (150, 64)
        assert is_right(x_val, y_val).all()
        assert (~is_right(x, y)).sum() == 15
        assert not {row.tobytes() for row in x} & {row.tobytes() for row in x_val}
    assert not np.array_equal(seen.calls[0][0], seen.calls[1][0])


def test_seeds_and_methods_do_not_disturb_one_another(noisy):
    data = digits()
    sizes = {"n": 200, "n_val": 100}
    two = noisy_labels(data.x, data.y, {"b": by_knn}, seeds=2, key=KEY, **sizes)
    np.testing.assert_array_equal(two.curves["b"], noisy.curves["KNN-Shapley"][:2])
    np.testing.assert_array_equal(two.curves["Random"], noisy.curves["Random"][:2])
    other = noisy_labels(
        data.x, data.y, {"b": by_knn}, seeds=2, key=jax.random.key(1), **sizes
    )
    assert not np.array_equal(other.curves["Random"], two.curves["Random"])


@pytest.mark.left_out
def test_instance_watermark_known_answers():
    data = digits()
    foreign = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1), np.uint8)
    result = instance_watermark_detection(
        data.x,
        data.y,
        foreign,
        {"oracle": oracle, "fooled": fooled},
        n=300,
        n_val=20,
        n_test=200,
        learner=nearest,
        seeds=3,
        key=KEY,
    )
    reference, after = result.reference, result.summary
    # A planted sample is its own nearest neighbour until it is removed.
    np.testing.assert_array_equal(reference["success_before"], 1)
    np.testing.assert_array_equal(after["fooled"]["success_after"], 1)
    error = np.sqrt(0.1 * 0.9 / 90)
    assert abs(after["oracle"]["success_after"].mean() - 0.1) < 4 * error
    assert abs(reference["success_unmarked"].mean() - 0.1) < 4 * error
    assert abs(after["Random"]["success_after"].mean() - 0.9) < 4 * error
    np.testing.assert_array_equal(after["oracle"]["auc"], 1)
    assert np.all(after["oracle"]["accuracy_after"] > 0.85)


@pytest.mark.left_out
def test_pattern_watermark_succeeds_until_it_is_removed():
    data, seen = digits(), Recorder(lambda x, y: np.where(is_right(x, y), 1.0, -1.0))
    result = pattern_watermark_detection(
        data.x,
        data.y,
        {"oracle": seen},
        n=400,
        n_val=50,
        n_test=200,
        rate=0.2,
        size=3,
        learner=nearest,
        seeds=2,
        key=KEY,
    )
    x, y, _, _ = seen.calls[0]
    marked = ~is_right(x, y)
    corner = x.reshape(-1, 8, 8)[:, -3:, -3:]
    assert marked.sum() == 80
    assert np.all(np.isin(corner[marked], (0.0, 1.0)))
    assert not any(row.tobytes() in labels_by_row() for row in x[marked])
    assert np.all(result.reference["success_before"] > 0.5)
    after = result.summary["oracle"]
    np.testing.assert_array_equal(after["auc"], 1)
    assert np.all(after["success_after"] < 0.15)
    assert np.all(result.reference["success_unmarked"] < 0.15)
    random = result.summary["Random"]
    assert np.all(random["success_after"] > 2 * after["success_after"])
    assert np.all(after["accuracy_after"] > 0.85)


@pytest.mark.left_out
def test_a_blended_word_stands_for_its_class():
    data = digits()
    small = lambda x: x.reshape(-1, 16, 16)[:, ::2, ::2].reshape(-1, 64)
    seen = Recorder(lambda x, y: np.where(is_right(small(x), y), 1.0, -1.0))
    result = pattern_watermark_detection(
        data.x.repeat(2, 1).repeat(2, 2),
        data.y,
        {"oracle": seen},
        n=300,
        n_val=20,
        n_test=100,
        rate=0.2,
        pattern="text",
        label=4,
        learner=nearest,
        seeds=1,
        key=KEY,
    )
    ((x, y, _, _),) = seen.calls
    marked = ~is_right(small(x), y)
    assert marked.sum() == 60
    assert np.all(y[marked] == 4)
    np.testing.assert_array_equal(result.summary["oracle"]["auc"], 1)
    assert result.reference["success_before"] > 0.5
    assert result.summary["oracle"]["success_after"] < 0.3
    assert result.reference["success_unmarked"] < 0.3


def test_removal_and_addition_follow_the_order():
    x, y = numbered()
    zero = Recorder(lambda x, y: (y == 0).astype(float))
    common = {"n": 80, "n_val": 40, "n_test": 40, "learner": class_zero}
    common |= {"balanced": True, "seeds": 2, "key": KEY}
    shares = np.array([0, 0.1, 0.25, 0.5])
    k = 80 * shares
    left = (20 - np.minimum(k, 20)) / (80 - k)
    # Of 80 there are 20 of class 0, whose value is highest.
    highest = point_removal(x, y, {"a": zero}, remove=shares, **common)
    np.testing.assert_allclose(highest.curves["a"], [left, left])
    np.testing.assert_allclose(highest.reference["all"], 0.25)
    lowest = point_removal(x, y, {"a": zero}, order="lowest", remove=shares, **common)
    np.testing.assert_allclose(lowest.curves["a"][0], 20 / (80 - k))
    same = summarisation(x, y, {"a": zero}, remove=shares, **common)
    np.testing.assert_array_equal(same.curves["a"], lowest.curves["a"])
    add = np.array([0.1, 0.25, 0.5, 1])
    added = point_addition(x, y, {"a": zero}, add=add, **common)
    np.testing.assert_allclose(added.curves["a"][1], np.minimum(1, 0.25 / add))
    # By trapezia: (1 + 1) / 2, (1 + 0.5) / 2 and (0.5 + 0.25) / 2.
    area = 0.15 * 1 + 0.25 * 0.75 + 0.5 * 0.375
    np.testing.assert_allclose(added.summary["a"]["mean_accuracy"], area / 0.9)
    np.testing.assert_allclose(added.summary["a"]["last_accuracy"], 0.25)


def test_the_test_set_is_seen_by_the_learner_alone_and_sets_are_trained_on_once():
    x, y = numbered()
    trained, tests = [], []

    def learner(x, y, x_test, y_test, key):
        trained.append(frozenset(x[:, 0].tolist()))
        tests.append(frozenset(x_test[:, 0].tolist()))
        return 0.5

    values = Recorder(lambda x, y: x[:, 0])
    sizes = {"n": 100, "n_val": 50, "n_test": 60, "seeds": 1, "key": KEY}
    embed = lambda x: np.tile(x, 2)
    summarisation(
        x, y, {"a": values}, remove=[0, 0.2], learner=learner, embed=embed, **sizes
    )
    ((seen, _, seen_val, _),) = values.calls
    assert seen.shape == (100, 4)
    train, val, test = set(seen[:, 0]), set(seen_val[:, 0]), tests[0]
    assert (len(train), len(val), len(test)) == (100, 50, 60)
    assert not (train & val) | (train & test) | (val & test)
    # Everything once, then what each of two methods leaves.
    assert len(trained) == len(set(trained)) == 3
    assert train - trained[1] == set(np.sort(seen[:, 0])[:20])
    assert set(tests) == {test}


def clean_pixels(x, y):
    """Digits have 17 grey levels; noise leaves few pixels on one of them."""
    level = 17 * x
    return (np.abs(level - np.round(level)) < 1e-3).mean(1)


@pytest.mark.left_out
def test_acquisition_buys_the_best_first_and_learns_from_what_it_bought():
    data = digits()
    good, bad = Recorder(clean_pixels), lambda x, y, *_: -clean_pixels(x, y)
    arguments = {
        "n_start": 40,
        "n_val": 50,
        "n_pool": 200,
        "n_test": 100,
        "rounds": 3,
        "buy": 15,
        "trees": 10,
        "learner": nearest,
        "seeds": 2,
        "key": KEY,
    }
    result = acquisition(data.x / 255, data.y, {"good": good, "bad": bad}, **arguments)
    np.testing.assert_array_equal(result.x, [0, 15, 30, 45])
    share = {name: m["clean_share"] for name, m in result.summary.items()}
    assert np.all(share["good"] > 0.9)
    assert np.all(share["bad"] < 0.1)
    error = np.sqrt(0.25 * 0.75 / 90)
    assert abs(share["Random"].mean() - 0.25) < 4 * error
    assert np.all(result.clean_bought["good"][:, 0] == 0)
    np.testing.assert_array_equal(
        result.clean_bought["good"][:, -1], 45 * share["good"]
    )
    assert [len(x) for x, *_ in good.calls] == [40, 55, 70] * 2
    # Half of the start is noisy, and what was owned is valued again.
    first, second = good.calls[0][0], good.calls[1][0]
    assert (clean_pixels(first, None) == 1).sum() == 20
    np.testing.assert_array_equal(second[:40], first)
    # A round ends with the accuracy of all that is owned by then.
    start = {name: c[:, 0] for name, c in result.curves.items()}
    np.testing.assert_array_equal(start["good"], start["bad"])

    good.calls.clear()
    once = acquisition(
        data.x / 255, data.y, {"good": good}, iterated=False, **arguments
    )
    assert [len(x) for x, *_ in good.calls] == [40, 40]
    np.testing.assert_array_equal(once.curves["Random"], result.curves["Random"])
    np.testing.assert_array_equal(
        once.curves["good"][:, :2], result.curves["good"][:, :2]
    )


def test_adaptation_keeps_positive_values_only():
    data = digits()
    wrong = np.random.default_rng(1).random(len(data.y)) < 0.5
    y = np.where(wrong, (data.y + 3) % 10, data.y)
    result = domain_adaptation(
        (data.x, y),
        data,
        {"oracle": oracle, "none": lambda x, y, *_: np.zeros(len(y))},
        n=300,
        n_val=20,
        n_test=200,
        learner=nearest,
        seeds=3,
        key=KEY,
    )
    found = result.summary["oracle"]
    assert abs(found["kept"].mean() - 0.5) < 4 * np.sqrt(0.25 / 900)
    assert np.all(found["after"] > 0.85)
    assert np.all(found["before"] < 0.7)
    np.testing.assert_allclose(found["gain"], found["after"] - found["before"])
    np.testing.assert_array_equal(result.summary["none"]["kept"], 0)
    np.testing.assert_array_equal(result.summary["none"]["gain"], 0)
    assert abs(result.summary["Random"]["kept"].mean() - 0.5) < 4 * np.sqrt(0.25 / 900)
    assert result.plot().get_xticklabels()[1].get_text() == "positive values"
