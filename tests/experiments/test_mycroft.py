"""Mycroft's vision experiments, on digits and tiny."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx

from experiments._kit.scenes.networks import new_net, steps_for
from experiments._kit.scenes.owner import new_owner
from experiments._kit.scenes.spoiling import PERMUTED, SPOILT, spoilt
from experiments._kit.scenes.starved import deal, draw_starved
from experiments._kit.scenes.trainer import Sizes, images
from experiments._kit.store import remembered
from experiments.mycroft import cases as studies, run as runs
from experiments.mycroft.cases import cases_seed
from experiments.mycroft.chapter import mycroft_chapters
from experiments.mycroft.choosing import (
    PUBLISHED,
    SELECTORS,
    VARIANTS,
    _cross_entropy,
    choose,
    filled,
    shared_view,
    two_layers,
)
from experiments.mycroft.figures import matched
from experiments.mycroft.ranking import disturb, owners_seed
from experiments.mycroft.run import run_mycroft
from experiments.mycroft.spurious import (
    draw_backgrounds,
    mixed,
    on_background,
    spurious_seed,
)
from experiments.mycroft.starved import starved_seed
from experiments.mycroft.variants import (
    ANSWERS,
    _first_of_each,
    answers,
    requests,
    variants_seed,
)
from jaxsel.data import load
from jaxsel.gradients import per_sample
from jaxsel.report import Report

# Two classes, and sizes that are padded alike: few programs to compile.
TINY = Sizes(
    net="mlp",
    side=8,
    own=40,
    weak=1,
    val=500,
    test=100,
    offered=400,
    shared=20,
    held_out=10,
    budgets=(4, 8),
    main=8,
    first=32,
    epochs=4,
    min_steps=32,
    cycles=(10,),
)
SMALL = dataclasses.replace(TINY, own=25, val=400, budgets=(8,))
PAIR = (0, 1)
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def digits():
    return images(load("digits"), 8)


@pytest.fixture(scope="module")
def parity(digits):
    """Digits as two classes, even and odd."""
    return digits[0], digits[1] % 2


def few(data):
    """Another source's samples: some of these, as negatives."""
    return 1 - data[0][:300], data[1][:300]


def tiny_experiments(data):
    return {
        "starved-digits": (TINY, lambda seed: starved_seed(data, TINY, seed)),
        "foreign": (TINY, lambda s: starved_seed(data, TINY, s, foreign=few(data))),
        "spurious": (SMALL, lambda s: spurious_seed(data, SMALL, s, pair=PAIR)),
        "cases": (SMALL, lambda s: cases_seed(data, SMALL, s, pair=PAIR)),
        "variants": (SMALL, lambda s: variants_seed(data, SMALL, s, pair=PAIR)),
        "owners": (SMALL, lambda s: owners_seed(data, SMALL, s, pair=PAIR)),
    }


@pytest.fixture(scope="module")
def result(parity, tmp_path_factory):
    """All experiments in two goes: the first is killed in the middle."""
    folder = tmp_path_factory.mktemp("runs")
    jobs, ran = tiny_experiments(parity), []

    def counted(name, run, dies):
        def one(seed):
            if dies and (name, seed) == ("cases", 0):
                raise KeyboardInterrupt
            ran.append((name, seed))
            return run(seed)

        return one

    with pytest.MonkeyPatch.context() as patch:
        for dies in (True, False):
            some = {
                name: (size, counted(name, run, dies))
                for name, (size, run) in jobs.items()
            }
            patch.setattr(runs, "experiments", lambda *_, some=some, **__: some)
            patch.setattr(runs, "Sizes", lambda: TINY)
            patch.setattr(runs, "SIZES", SMALL)
            patch.setattr(runs, "FOREIGN", TINY)
            # Another multilayer perceptron: a CNN takes long to compile.
            patch.setitem(studies.OTHER, "mlp", "mlp")
            if dies:
                with pytest.raises(KeyboardInterrupt):
                    run_mycroft(folder, seeds=SEEDS)
                first = list(ran)
            else:
                whole = run_mycroft(folder, seeds=SEEDS)
    # Nothing that was found is found again, whatever ran beside the one that died.
    assert ("starved-digits", 0) in first
    assert len(first) < len(jobs) * len(SEEDS)
    assert sorted(ran) == sorted((name, seed) for name in jobs for seed in SEEDS)
    assert not [p for p in (folder / "default").iterdir() if p.name.startswith(".")]
    return whole


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_numbers(result, parity):
    again = starved_seed(parity, TINY, 0)
    for name, value in again.items():
        np.testing.assert_array_equal(
            getattr(result.starved["digits"], name)[0], value, err_msg=name
        )


@pytest.mark.slow
def test_results_are_of_the_documented_shapes(result):
    starved, spurious = result.starved["digits"], result.spurious
    for one, budgets in ((starved, 2), (result.foreign, 2), (spurious, 1)):
        assert one.accuracy.shape == (2, 4, budgets, 2)
        assert one.sent.shape == (2, 4, budgets)
        assert one.nothing.shape == one.everything.shape == (2, 2)
        assert np.all(one.sent <= one.budgets)
        assert np.all(one.sent[:, 2:] == one.budgets)
        assert one.published.shape == (2, budgets, 2)
    assert starved.published_sent.shape == (2, 2)
    assert np.all(starved.published_sent == starved.budgets)
    assert spurious.published_useful.shape == (2, 1)
    assert spurious.useful.shape == (2, 4, 1)
    assert spurious.useful_by_checkpoint.shape == (2, 3, 2, 1)
    assert spurious.useful_by_pixels.shape == (2, 1)
    np.testing.assert_array_equal(spurious.steps, [0, 10])
    cases, owners = result.cases, result.owners
    assert cases.by_spoiling.shape == (2, 3, 5, 2)
    assert cases.published.shape == (2, 3, 2)
    assert cases.by_checkpoint.shape == (2, 3, 2, 2)
    assert cases.other_model.shape == (2, 3, 2)
    assert cases.retrained.shape == cases.tuned.shape == (2, 4, 2)
    variants = result.variants
    assert variants.accuracy.shape == variants.useful.shape == (2, 4, 1)
    assert variants.by_hard.shape == (2, 3, 4)
    assert variants.answers.shape == (2, 4)
    np.testing.assert_array_equal(variants.n_hard, [4, 8, 16, 20])
    # Those that are published are those of the other experiment.
    np.testing.assert_array_equal(variants.accuracy[:, 0], spurious.published[..., 0])
    np.testing.assert_array_equal(variants.random, spurious.accuracy[:, 3, :, 0])
    np.testing.assert_array_equal(variants.by_hard[:, 0, -1], variants.answers[:, 0])
    assert owners.accuracy.shape == (2, 3, 5)
    assert owners.everything.shape == owners.published.shape == (2, 5)
    for accuracy in (starved.accuracy, cases.by_spoiling, owners.accuracy):
        assert np.all((accuracy >= 0) & (accuracy <= 1))


@pytest.mark.slow
def test_results_make_sense(result):
    starved, cases = result.starved["digits"], result.cases
    assert np.all(starved.weak_before < starved.strong_before)
    assert np.all(starved.everything[:, 0] > starved.nothing[:, 0] + 0.1)
    spurious = result.spurious
    assert np.all(spurious.natural_before < spurious.spurious_before)
    assert spurious.useful[:, 2].mean() > spurious.useful[:, 3].mean() + 0.2
    # Full information gives what the trainings in the case studies give as well.
    np.testing.assert_array_equal(cases.tuned[:, 2:], cases.by_spoiling[:, 0, 3:])
    np.testing.assert_array_equal(cases.tuned[:, 1], cases.published[:, 0])
    # What another source sends is of less use than what the trainer's own does.
    gained = result.foreign.everything - result.foreign.nothing
    assert gained[:, 0].mean() < (starved.everything - starved.nothing)[:, 0].mean()
    np.testing.assert_array_equal(cases.right[:, 0], 1)
    i = SPOILT.index("permuted labels")
    assert np.all(cases.right[:, i, 4] < 1 - 0.7 * PERMUTED / 2)
    assert np.all(np.abs(result.owners.spearman[:, 0]) <= 1)


@pytest.mark.slow
def test_the_chapter_shows_the_numbers(result, tmp_path):
    chapters = mycroft_chapters(result)
    html, numbers = Report(title="T", summary="S", chapters=chapters).save(tmp_path)
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    np.testing.assert_array_equal(
        data["starved"]["digits"]["accuracy"], result.starved["digits"].accuracy
    )
    np.testing.assert_array_equal(data["owners"]["accuracy"], result.owners.accuracy)
    text = html.read_text()
    assert text.count("<svg") == 5
    one = result.starved["digits"]
    means = one.published[:, 1, 0].mean(), one.accuracy[:, 3, 1, 0].mean()
    assert f">{means[0]:.2f} / {means[1]:.2f}<" in text
    assert "Not tested here, because" in text
    assert ">0.61 / 0.47<" in text
    for number in (13.7, 16.9):
        assert f"<td>{number}</td>" in text


@pytest.mark.slow
def test_matching_full_information_counts_from_then_on(result):
    one = result.starved["digits"]
    accuracy = np.zeros((2, 4, 2, 2))
    accuracy[0, 0, 0, 0] = 0.5
    accuracy[1, 3, 1, 0] = 0.7
    everything = np.array([[0.5, 0.0], [0.6, 0.0]])
    one = dataclasses.replace(one, accuracy=accuracy, everything=everything)
    budgets, reached = matched(dataclasses.replace(result, starved={"a": one}))
    assert reached.shape == (4, 2, 2)
    np.testing.assert_array_equal(budgets, [4, 8])
    np.testing.assert_array_equal(reached[0], [[True, True], [False, False]])
    np.testing.assert_array_equal(reached[3], [[False, False], [False, True]])
    assert not reached[1:3].any()


def numbered(n=2000, side=8, n_classes=2):
    """Images that tell who they are: their first two pixels hold their number."""
    x = np.zeros((n, side, side), np.float32)
    x[:, 0, 0], x[:, 0, 1] = np.divmod(np.arange(n), 256)
    x[:, 2:] = np.random.default_rng(0).random((n, side - 2, side))
    return x / 255, np.arange(n) % n_classes


def number_of(samples):
    return np.rint(samples[0][:, 0, :2] * 255).astype(int) @ [256, 1]


@pytest.mark.slow
def test_nobody_has_a_sample_of_another():
    data = numbered()
    scene = draw_starved(data, TINY, jax.random.key(3))
    trainer = scene.trainer
    parts = [trainer.own, trainer.shared, trainer.held_out, trainer.test, scene.offer]
    numbers = np.concatenate([number_of(part) for part in parts])
    assert len(np.unique(numbers)) == len(numbers)
    for part in parts:
        np.testing.assert_array_equal(number_of(part) % 2, part[1])
    counts = np.bincount(trainer.own[1])
    assert np.all(counts[scene.weak] == 4)
    assert np.all(np.delete(counts, scene.weak) == 40)
    np.testing.assert_array_equal(np.bincount(scene.offer[1]), 200)
    hard = np.concatenate([trainer.shared[1], trainer.held_out[1]])
    assert np.isin(hard, scene.weak).all()
    assert len(trainer.shared[1]) == TINY.shared
    assert not trainer.net.right(*trainer.held_out).any()

    again = draw_starved(data, TINY, jax.random.key(3))
    np.testing.assert_array_equal(again.offer[0], scene.offer[0])
    other = draw_starved(data, TINY, jax.random.key(4))
    assert not np.array_equal(other.offer[0], scene.offer[0])
    with pytest.raises(ValueError, match="data must hold more samples, got 1000"):
        draw_starved(numbered(1000), TINY, jax.random.key(3))


@pytest.mark.left_out
def test_too_few_hard_samples_are_refused(parity):
    sizes = dataclasses.replace(TINY, held_out=490)
    with pytest.raises(ValueError, match="val must have at least 510 hard samples"):
        draw_starved(parity, sizes, jax.random.key(0))


def test_answers_that_are_not_what_the_owner_has():
    x = np.random.default_rng(0).random((6, 4, 4)).astype(np.float32)
    y = np.array([0, 1, 0, 1, 0, 1])
    sent = answers((x, y), jax.random.key(0))
    assert len(sent) == len(ANSWERS)
    assert sent[0][0] is x
    for pixels, labels in sent:
        np.testing.assert_array_equal(labels, y)
        assert pixels.shape == x.shape
        assert pixels.dtype == x.dtype
        assert pixels.min() >= 0
        assert pixels.max() <= 1
    gaps = [np.abs(pixels - x).mean() for pixels, _ in sent]
    assert 0 == gaps[0] < gaps[1] < gaps[2]
    np.testing.assert_allclose(sent[3][0][2], (x[2] + x[0]) / 2)
    np.testing.assert_allclose(sent[3][0][1], (x[1] + x[5]) / 2)


def test_requests_of_few_hard_samples():
    assert requests(TINY) == (4, 8, 16, 20)
    rows = _first_of_each(np.array([0, 0, 0, 1, 1, 0]), 4)
    np.testing.assert_array_equal(rows, [0, 1, 3, 4])
    assert len(_first_of_each(np.array([0, 0, 0, 1]), 4)) == 4


def test_gradients_of_two_layers_are_those_of_autodiff():
    net = new_net("cnn", (8, 8), 3, jax.random.key(0), channels=(2, 4))
    rng = np.random.default_rng(0)
    x, y = rng.random((5, 8, 8)).astype(np.float32), np.arange(5) % 3
    oracle = two_layers(net, (x, y))
    loss = _cross_entropy(net.graphdef)
    wanted = ("convolutions/1/*", "dense/*")
    slow = per_sample(loss, net.params, (x, y), wrt=wanted)
    np.testing.assert_allclose(
        oracle.columns(np.arange(5)), slow.columns(np.arange(5)), rtol=1e-3, atol=1e-6
    )
    assert len(oracle.layers) == 2


def test_backgrounds():
    x = np.zeros((4, 14, 14), np.float32)
    x[:, 5, 5] = 0.9
    vertical = np.array([True, True, False, False])
    striped = on_background(x, vertical, jax.random.key(0))
    assert np.all(striped[:, 5, 5] == np.float32(0.9))
    assert np.all(striped[:2, 0] == striped[:2, 1])
    assert np.all(striped[2:, :, 0] == striped[2:, :, 1])
    assert np.all(np.ptp(striped[:2, 0], axis=1) > 0.5)


@pytest.mark.left_out
def test_owners_of_backgrounds(parity):
    scene = draw_backgrounds(parity, SMALL, jax.random.key(1), pair=PAIR)
    samples, natural = mixed(scene, 80, 0.1)
    assert natural.sum() == 8
    np.testing.assert_array_equal(samples[0][natural], scene.natural[0][:8])
    np.testing.assert_array_equal(np.bincount(samples[1]), [40, 40])
    assert not mixed(scene, 80, 0.0)[1].any()
    large = dataclasses.replace(SMALL, offered=800)
    with pytest.raises(ValueError, match="data must hold more samples"):
        draw_backgrounds(parity, large, jax.random.key(1), pair=PAIR)


@pytest.mark.left_out
def test_all_samples_are_spoilt(digits):
    offer = digits[0][:400], digits[1][:400]
    states = spoilt(offer, jax.random.key(0))
    assert tuple(states) == SPOILT
    assert states["clean"] is offer
    x, y = states["corrupted features"]
    np.testing.assert_array_equal(y, offer[1])
    assert x.shape == offer[0].shape
    assert np.all(np.abs(x - offer[0]).max((1, 2)) > 0.05)
    assert x.min() >= 0
    assert x.max() <= 1
    x, y = states["permuted labels"]
    np.testing.assert_array_equal(x, offer[0])
    np.testing.assert_array_equal(np.bincount(y), np.bincount(offer[1]))
    # A tenth of the permuted labels is right by chance.
    assert 0.9 * PERMUTED - 0.08 < np.mean(y != offer[1]) <= PERMUTED
    disturbed = disturb(offer[0], jax.random.key(0))
    assert np.all(np.abs(disturbed - offer[0]).max((1, 2)) > 0.05)


@pytest.mark.slow
def test_choices_keep_to_budget_and_classes(parity):
    scene = draw_starved(parity, TINY, jax.random.key(0))
    shared = scene.trainer.shared
    owner = new_owner(scene.offer, scene.n_classes, TINY, jax.random.key(1))
    view = shared_view(owner, shared)
    assert view.features.shape == (400, 128)
    share = np.bincount(shared[1], minlength=2) / len(shared[1])
    for how in (*SELECTORS, PUBLISHED, *VARIANTS):
        rows = choose(how, view, 8, jax.random.key(2))
        assert len(np.unique(rows)) == len(rows) <= 8
        counts = np.bincount(scene.offer[1][rows], minlength=2)
        assert np.all(counts[share == 0] == 0)
        if how != "retrieve":
            assert np.all(counts <= np.ceil(8 * share))
        if how in (PUBLISHED, *VARIANTS):
            assert len(rows) == 8
    # More than there are of the classes asked for.
    everything = choose("random", view, 400, jax.random.key(2))
    assert len(everything) == np.isin(scene.offer[1], shared[1]).sum()


def test_what_is_left_of_a_budget_is_filled_by_class():
    y = np.array([0, 1, 0, 1, 0, 2])
    rows = filled(np.array([4]), np.array([1, 0, 4, 3]), y)
    np.testing.assert_array_equal(rows, [4, 0, 1, 3])
    np.testing.assert_array_equal(filled(rows, np.array([1, 4]), y), rows)
    np.testing.assert_array_equal(filled(np.array([2]), np.array([0, 4]), y), [2, 0])
    nothing = np.empty(0, int)
    np.testing.assert_array_equal(filled(nothing, np.array([5, 2]), y), [2, 5])


def test_deal_by_hand():
    y = np.array([0, 1, 0, 1, 0])
    rows, left = deal(y, np.array([4, 3, 2, 1, 0]), np.array([2, 1]))
    np.testing.assert_array_equal(rows, [4, 2, 3])
    np.testing.assert_array_equal(left, [1, 0])
    with pytest.raises(ValueError, match="data must hold more samples, got 5"):
        deal(y, np.arange(5), np.array([1, 3]))


def test_results_are_remembered(tmp_path):
    path, calls = tmp_path / "new" / "a.npz", []

    def run():
        calls.append(0)
        return {"x": np.arange(3.0), "n": 4, "names": ("a", "b"), "kind": "c"}

    found = remembered(path, {"seed": 1}, run)
    assert found["n"] == 4
    assert found["names"] == ("a", "b")
    assert found["kind"] == "c"
    np.testing.assert_array_equal(remembered(path, {"seed": 1}, run)["x"], np.arange(3))
    assert len(calls) == 1
    remembered(path, {"seed": 2}, run)  # other settings
    assert len(calls) == 2
    path.write_bytes(path.read_bytes()[:100])  # damaged
    remembered(path, {"seed": 2}, run)
    assert len(calls) == 3

    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        remembered(path, {"seed": 3}, fails)
    assert remembered(path, {"seed": 2}, run)["n"] == 4
    assert len(calls) == 3
    assert [p.name for p in path.parent.iterdir()] == ["a.npz"]


def test_images_are_averaged(digits):
    data = load("digits")
    small = images(data, 4)[0]
    np.testing.assert_allclose(small[0, 0, 0], digits[0][0, :2, :2].mean(), rtol=1e-6)
    with pytest.raises(ValueError, match="side must divide the sides of grey images"):
        images(data, 3)


@pytest.mark.slow
def test_the_chapter_where_nothing_was_sent(result):
    spurious, cases = result.spurious, result.cases
    useful, right = spurious.useful_by_checkpoint.copy(), cases.right.copy()
    useful[0, 0], useful[:, 1], right[0, :, 0], right[:, :, 1] = [np.nan] * 4
    owners = result.owners
    spearman = np.where(np.arange(2)[:, None] == 0, np.nan, owners.spearman)
    (chapter,) = mycroft_chapters(
        dataclasses.replace(
            result,
            spurious=dataclasses.replace(spurious, useful_by_checkpoint=useful),
            cases=dataclasses.replace(cases, right=right),
            owners=dataclasses.replace(
                owners,
                spearman=spearman,
                kendall=0 * spearman,
                accuracy=owners.accuracy,
            ),
        )
    )
    text = " ".join(block for block in chapter.blocks if isinstance(block, str))
    assert "defined for 1 of 2 seeds) by FuncFeat, undefined by GradMatch" in text
    assert "GradMatch is undefined at some checkpoint of every run" in text
    assert "nan" not in text


@pytest.mark.parametrize("kind", ["cnn", "mlp"])
def test_features_are_what_the_last_layer_sees(digits, kind):
    x = digits[0][:5]
    net = new_net(kind, (8, 8), 10, jax.random.key(0))
    model = nnx.merge(net.graphdef, net.params)
    last = model.dense if kind == "cnn" else model.layers[-1]
    np.testing.assert_allclose(last(net.features(x)), net.logits(x), atol=1e-5)


def test_steps_of_a_fine_tuning():
    assert steps_for(1000, 6, 10) == steps_for(1024, 6, 10) == 96
    assert steps_for(1025, 6, 10) == 192
    assert steps_for(1000, 6, 256) == 256


def test_no_seeds_are_refused(tmp_path):
    with pytest.raises(ValueError, match="seeds must hold at least one"):
        run_mycroft(tmp_path, seeds=())
