"""Filtering's additions: messages over links, few writers, the best threshold."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments._kit.scenes import thresholds
from experiments._kit.scenes.federation import FilterSizes
from experiments._kit.scenes.networks import new_net
from experiments._kit.scenes.trainer import images
from experiments.filter import best, links, writers
from experiments.filter.links import Link
from jaxsel.data import load
from jaxsel.filter import federated_threshold, loss_threshold

LINK = Link(up=100.0, down=1000.0, latency=2.0)

TINY = FilterSizes(
    side=8,
    hidden=16,
    clients=12,
    clean=240,
    test=120,
    benchmark=0.25,
    ratios=(0.5, 1.5),
    fit=100,
    rounds=2,
    evaluate_every=2,
    folds=2,
)


@pytest.fixture(scope="module")
def data():
    """Digits, and noise without structure."""
    x, y = images(load("digits"), 8)
    rng = np.random.default_rng(0)
    return (x, y), [(rng.random((600, 8, 8)).astype(np.float32), np.arange(600) % 10)]


def test_a_message_and_its_answer():
    assert LINK.exchange(3000, 400) == pytest.approx(2 + 3 + 2 + 4)
    assert LINK.exchange(3000, 0) == pytest.approx(2 + 3)


def test_rounds_take_the_model_there_and_back():
    np.testing.assert_allclose(
        links.training_seconds(LINK, np.array([1, 10]), 1000), [15, 150]
    )


def test_the_filter_sends_the_model_once_and_answers_each_question():
    messages = np.array([[0, 0], [2000, 100], [1000, 300], [500, 0]])
    model, asked, verdict = 2 + 1, 2 + 2 + 2 + 1 + 2 + 1 + 2 + 3, 2 + 0.5
    seconds = links.filter_seconds(LINK, messages, 1000)
    assert seconds == pytest.approx(model + asked + verdict)
    assert links.exchanged_bytes(messages[None], 1000).tolist() == [4900]


def test_rounds_to_a_goal():
    accuracy = np.array([[0.1, 0.6, 0.5], [0.1, 0.2, 0.3], [0.5, 0.5, 0.5]])
    found = links.rounds_to(accuracy, np.full(3, 0.5), np.array([5, 10, 15]))
    assert found.tolist() == [10, np.inf, 5]


def test_what_is_saved_is_the_least_it_can_be():
    """A goal that is missed without a filter counts as all rounds, with one as NaN."""
    messages = np.tile([[1000, 100], [1000, 0]], (3, 1, 1))
    cost = links.filter_seconds(LINK, messages[0], 1000)
    without, kept = np.array([20, np.inf, 20]), np.array([10.0, 10.0, np.inf])
    found = links.saved(LINK, without, kept, messages, 1000, 60)
    np.testing.assert_allclose(found, [150 - cost, 750 - cost, np.nan])


def test_messages_are_those_of_the_filter():
    rng = np.random.default_rng(0)
    benchmark = rng.gamma(1, 1, 50)
    losses = {str(i): rng.gamma(1 + i, 1, 40) for i in range(4)}
    found = links.exchanged(benchmark, losses)
    server = federated_threshold(benchmark, losses)
    assert len(found) == server.round + 1
    assert found[-1, 1] == 0
    assert (found[:, 0] > 0).all()
    # The first question has 4 bytes for each edge, its answer 4 for each of 2 E + 1.
    assert 4 * 50 < found[0, 0] < 4 * 50 + 2000
    assert 4 * 101 < found[0, 1] < 4 * 101 + 2000


def test_bytes_of_models():
    net = new_net("mlp", (8, 8), 10, jax.random.key(0), hidden=16)
    assert links.model_bytes(net) == 4 * (64 * 16 + 16 + 16 * 10 + 10)
    layers = 25 * 32 + 32, 25 * 32 * 64 + 64, 49 * 64 * 2048 + 2048, 2048 * 62 + 62
    assert sum(layers) * 4 == links.LARGE


def line(shift=0.0, width=1, size=14, at=0):
    """Return a line that goes to the right by `shift` pixels for each one up."""
    x = np.zeros((size, size), np.float32)
    for row in range(3, 11):
        middle = size // 2 + at + shift * (6.5 - row)
        columns = np.arange(size)
        x[row] = np.clip(width / 2 + 0.5 - np.abs(columns - middle), 0, 1)
    return x


def test_handwriting():
    upright, right, thick, moved = writers.handwriting(
        np.stack([line(), line(0.5), line(width=3), line(0.5, at=2)])
    )
    assert upright[0] == pytest.approx(0, abs=1e-6)
    assert right[0] == pytest.approx(0.5, abs=0.02)
    assert thick[1] > 1.5 * upright[1]
    assert right[2] > upright[2]
    np.testing.assert_allclose(moved, right, atol=1e-6)


def test_clusters_are_of_handwriting_and_not_of_classes(data):
    x, y = (part[:600] for part in data[0])
    styles = writers.cluster((x, y), 4, 0)
    of = styles.of((x, y))
    for c in range(4):
        assert len(set(y[of == c])) == 10
    slant = writers.handwriting(x)[:, 0] - styles.means[y, 0]
    between = np.ptp([slant[of == c].mean() for c in range(4)])
    assert between > styles.scale[0]


def test_unusual_slants_make_a_cluster_though_classes_lean():
    y = np.repeat([0, 1], 20)
    lean = np.where(y == 1, 0.4, 0.0)  # class 1 leans as a whole
    writer = np.tile([0, 1], 20)
    rng = np.random.default_rng(0)
    shift = lean + 0.3 * writer + 0.01 * rng.normal(size=40)
    x = np.stack([line(each) for each in shift])
    of = writers.cluster((x, y), 2, 0).of((x, y))
    assert len({*zip(of.tolist(), writer.tolist(), strict=True)}) == 2


@pytest.fixture
def recorded(monkeypatch):
    """Make trainings note what they are trained on, in place of training."""
    seen = {"benchmarks": [], "scenes": []}

    class Untrained:
        def right(self, x, y):
            return np.arange(len(y)) % 2 == 0

    class Bench:
        net = Untrained()

    class Run:
        scores = np.array([0.5])

    def begin(*args):
        start = thresholds.begin(*args)

        def train(benchmark):
            seen["benchmarks"].append(benchmark)
            return Bench()

        def learn(scene, kept):
            seen["scenes"].append((scene, kept))
            return Run(), Untrained()

        return dataclasses.replace(start, train=train, learn=learn)

    def filtered(scene, bench):
        n = len(scene.clean)
        return {"threshold": np.ones(n, bool), "cross-fitted": scene.clean}, {}

    monkeypatch.setattr(writers, "begin", begin)
    monkeypatch.setattr(writers, "filtered", filtered)
    return seen


def test_few_writers_sets_are_of_few_writers(data, recorded, monkeypatch):
    monkeypatch.setattr(writers, "STYLES", 6)
    found = writers.writers_seed(*data, TINY, 3)
    styles = writers.cluster(data[0], 6, 3)
    every, few = recorded["benchmarks"]
    assert len(set(styles.of(few))) == writers.FEW
    assert len(set(styles.of(every))) > writers.FEW
    assert len(few[1]) == len(every[1]) == 60
    scene, _ = recorded["scenes"][0]
    known = {image.tobytes() for part in (every, few) for image in part[0]}
    others = (*scene.samples[0], *scene.test[0])
    assert not known & {image.tobytes() for image in others}
    # The second filter keeps the clean samples, and these only.
    assert found["removed"].tolist() == [[0, 1], [0, 1]]
    assert (found["own"] == 1).all()
    assert (found["foreign"] == 1).all()
    last = [kept.tolist() for _, kept in recorded["scenes"][-2:]]
    assert last == [[True] * len(scene.clean), scene.clean.tolist()]


def test_too_few_samples_of_few_writers(data, recorded, monkeypatch):
    monkeypatch.setattr(writers, "STYLES", 200)
    with pytest.raises(ValueError, match="few writers must have 60 samples"):
        writers.writers_seed(*data, TINY, 0)


def test_the_best_threshold_is_chosen_by_other_samples_than_judge_it():
    chosen = np.array([[[0.5, 0.1], [0.2, 0.3], [0.9, 0.8]]])
    found = {"chosen": chosen, "judged": -chosen}
    assert best.best(found, best.BY.index("loss")).tolist() == [1]
    assert best.best(found, best.BY.index("accuracy")).tolist() == [2]


@pytest.mark.left_out
def test_thresholds_beside_the_papers(data, monkeypatch):
    seen, halves = {}, []

    def begin(*args):
        start = thresholds.begin(*args)
        seen["scene"] = start.scene("open", 1.5)

        def train(benchmark):
            seen["bench"] = start.train(benchmark)
            return seen["bench"]

        return dataclasses.replace(
            start,
            train=train,
            learn=lambda scene, kept: (None, kept.mean()),
        )

    def figures(net, scene, parts):
        halves.append(parts)
        return [(1 - net, net)] * 2

    monkeypatch.setattr(best, "begin", begin)
    monkeypatch.setattr(best, "_figures", figures)
    found = best.best_seed(*data, TINY, 0, kind="open")
    bench, scene = seen["bench"], seen["scene"]
    losses = thresholds.losses_of(bench.half, scene.samples)
    threshold = loss_threshold(bench.held_out, losses)
    assert found["values"][0] == threshold.value
    assert found["share"][0] == threshold.share
    np.testing.assert_allclose(found["share"][1:], best.SHARES, atol=2 / len(losses))
    np.testing.assert_array_equal(found["chosen"][:, 1], found["share"])
    for name, rows in (("kept", scene.clean), ("removed", ~scene.clean)):
        under = losses[rows] <= threshold.value
        want = under.mean() if name == "kept" else 1 - under.mean()
        assert found[name][0] == pytest.approx(want)
    assert not set(halves[0][0]) & set(halves[0][1])
    assert sum(map(len, halves[0])) == TINY.test
    assert found["messages"][-1, 0] > 0
    assert found["messages"][0, 0] == 0
