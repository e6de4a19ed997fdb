import dataclasses
import json
import re

import jax
import numpy as np
import pytest

from jaxsel.data import Dataset
from jaxsel.demo import _run
from jaxsel.demo._market import OWNERS as OFFERS, choose, draw_market
from jaxsel.demo._page import purchase_chapter, story
from jaxsel.demo._run import run_demo
from jaxsel.demo.purchase import run_purchase
from jaxsel.report import Figure, Report

pytestmark = pytest.mark.left_out  # `make demo` runs it

OWNERS = [*OFFERS]


@pytest.fixture(scope="module")
def purchase():
    return run_purchase((0, 1), budgets=(25, 50), main=50)


def test_the_purchase_beats_random_everywhere(purchase):
    assert purchase.chosen.shape == purchase.random.shape == (2, 2, 2)
    assert np.all(purchase.chosen[..., 0] > purchase.random[..., 0])
    assert np.all(purchase.chosen[..., 1] > purchase.random[..., 1])
    assert np.all(purchase.random.mean(0)[-1] > purchase.before.mean(0))
    assert purchase.chosen[:, -1, 0].mean() > purchase.random[:, -1, 0].mean() + 0.05
    assert np.all(purchase.harmless[:, 0] > purchase.chosen[:, 0, 0])


def test_values_find_wrong_labels_and_good_owners(purchase):
    assert all(d.auc > 0.95 and d.found_at_bad > 0.85 for d in purchase.detection)
    value = dict(zip(OWNERS, purchase.owner_value.T, strict=True))
    assert np.all(value["small but good"] > value["clean"])
    for bad in ("wrong labels", "corrupted pixels", "wrong classes"):
        assert np.all(value["clean"] > value[bad])
    assert np.all(value["wrong labels"] < 0)
    assert np.all(purchase.owner_bought.sum(1) == 50)


def test_the_gallery_is_in_order(purchase):
    gallery = purchase.gallery
    assert gallery.images.shape == (5, 2, 6, 8, 8)
    values = gallery.values.reshape(5, -1)
    assert np.all(np.diff(values) <= 0)
    wrong = gallery.given != gallery.true
    assert wrong[OWNERS.index("wrong labels"), 1].all()
    assert not np.delete(wrong, OWNERS.index("wrong labels"), axis=0).any()


def test_the_chapter_shows_the_numbers(purchase, tmp_path):
    chapter = purchase_chapter(purchase)
    html, numbers = Report(title="T", summary="S", chapters=[chapter]).save(tmp_path)
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    np.testing.assert_array_equal(data["chosen"], purchase.chosen)
    np.testing.assert_array_equal(data["before"], purchase.before)
    assert data["budgets"] == [25, 50]
    text = html.read_text()
    for shown in (purchase.chosen, purchase.random):
        mean, spread = shown[:, 1, 0].mean(), shown[:, 1, 0].std(ddof=1)
        assert f"<td>{mean:.1%} ± {spread:.1%}</td>" in text
    assert text.count("<svg") == 1
    ours, random = (a[:, 1, 0].mean() for a in (purchase.chosen, purchase.random))
    assert chapter.title.startswith("Samples bought with jaxsel")
    assert re.search(f"{ours:.1%} (against|and) {random:.1%} accuracy", chapter.title)
    alt = next(b.alt for b in chapter.blocks if isinstance(b, Figure))
    assert "of the 30 least valuable images have a wrong label. clean: " in alt


def test_the_story_has_the_figures(purchase):
    first, images, second, figure, last = story(purchase, "")
    bought = purchase.owner_bought.mean(0).round().astype(int)
    for owner, count in zip(OWNERS, bought, strict=True):
        told = f"{count} from “{owner}”" if count else "and none from"
        assert told in first
    assert f"Five owners offer {purchase.sizes.sum()} more" in first
    assert f"reads {purchase.before[:, 0].mean():.1%} of new handwritten" in first
    at_main = purchase.main
    chosen, random = (
        f"{accuracy[:, at_main, 0].mean():.1%}"
        for accuracy in (purchase.chosen, purchase.random)
    )
    assert f"reads {chosen} right. With 50 digits bought at random it" in second
    assert f"it reads {random} right, and with all 940" in second
    assert f"50 samples at random {random}; 50 samples by jaxsel {chosen}" in figure.alt
    assert last == "For this the trainer saw all that was on offer."
    assert sum(text.count(". ") + 1 for text in (first, second, last)) <= 6
    assert "of the 30 most valuable images have a wrong label. clean: " in images.alt
    assert story(purchase, " In secret.")[-1] == f"{last} In secret."


def test_a_single_seed_claims_nothing(purchase):
    per_seed = {
        name: value[:1]
        for name, value in vars(purchase).items()
        if isinstance(value, np.ndarray) and len(value) == 2 and name != "budgets"
    }
    one = dataclasses.replace(purchase, **per_seed)
    chapter = purchase_chapter(one)
    assert "cannot be told apart by 1 seed" in chapter.title


@pytest.mark.slow
def test_the_demo_writes_its_report(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "texts_ready", lambda: False)  # test_demo_texts has them
    html, numbers, summary = run_demo(tmp_path / "demo", seeds=(3,), progress=False)
    assert html.stat().st_size > 50_000
    data = json.loads(numbers.read_text())["chapters"][0]["data"]
    at_100 = {"jaxsel": data["chosen"][0][2], "random": data["random"][0][2]}
    for name, (everywhere, weak) in at_100.items():
        line = next(s for s in summary.splitlines() if name in s)
        assert line.split()[-2:] == [f"{everywhere:.1%}", f"{weak:.1%}"]
    assert at_100["jaxsel"][0] > at_100["random"][0]


def numbered(n=600, n_classes=10):
    """Images that tell who they are: two pixels hold their number."""
    x = np.zeros((n, 2, 2, 1), np.uint8)
    x[:, 0, 0, 0], x[:, 0, 1, 0] = np.divmod(np.arange(n), 256)
    names = tuple(map(str, range(n_classes)))
    return Dataset(x=x, y=np.arange(n) % n_classes, class_names=names)


def test_the_market_is_as_described():
    data = numbered()
    sizes = (60, 50, 40, 70, 20)
    market = draw_market(data, key=jax.random.key(7), n_val=100, sizes=sizes)
    np.testing.assert_array_equal(np.bincount(market.owner), sizes)
    counts = np.bincount(market.y_train, minlength=10)
    assert len(market.weak) == 3
    assert np.all(counts[market.weak] == 1)
    assert np.all(np.delete(counts, market.weak) == 12)

    noisy = market.owner == OWNERS.index("corrupted pixels")
    clean = np.concatenate([market.x_train, market.x_val, market.x[~noisy]])
    labels = np.concatenate([market.y_train, market.y_val, market.y_true[~noisy]])
    number = np.rint(clean * 255).astype(int) @ [256, 1, 0, 0]
    assert len(np.unique(number)) == len(number)
    np.testing.assert_array_equal(number % 10, labels)
    assert np.all((market.x >= 0) & (market.x <= 1))
    # These pixels were 0; noise is above 0 half of the time.
    assert 0.3 < np.mean(market.x[noisy][:, 2:] > 0) < 0.7

    wrong = market.y != market.y_true
    flipped = market.owner == OWNERS.index("wrong labels")
    assert wrong.sum() == wrong[flipped].sum() == 35
    is_weak = np.isin(market.y_true, market.weak)
    assert not is_weak[market.owner == OWNERS.index("wrong classes")].any()
    assert is_weak[market.owner == OWNERS.index("small but good")].all()

    again = draw_market(data, key=jax.random.key(7), n_val=100, sizes=sizes)
    np.testing.assert_array_equal(again.x, market.x)
    other = draw_market(data, key=jax.random.key(8), n_val=100, sizes=sizes)
    assert not np.array_equal(other.y_val, market.y_val)
    with pytest.raises(ValueError, match="data must hold more images, got 300"):
        draw_market(numbered(300), key=jax.random.key(7))


def test_choose_by_hand():
    values = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 9.0])
    labels = np.array([0, 0, 0, 1, 1, 1])
    harmless = np.array([True, True, True, True, True, False])
    pick = lambda shares, budget: choose(
        values, harmless, labels, np.array(shares), budget
    ).tolist()
    assert pick([0.5, 0.5], 2) == [0, 3]
    assert pick([0.5, 0.5], 4) == [0, 1, 3, 4]
    assert pick([1.0, 0.0], 2) == [0, 1]
    # Largest remainder: 3 * (0.6, 0.4) = (1.8, 1.2).
    assert pick([0.6, 0.4], 3) == [0, 1, 3]
    # What a class cannot use goes to the best of the others.
    assert pick([0.0, 1.0], 3) == [3, 4, 0]
    # Nothing harmful, even if the budget would allow it.
    assert pick([0.5, 0.5], 6) == [0, 1, 2, 3, 4]
    assert pick([0.5, 0.5], 0) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": ()}, "seeds must hold at least one"),
        ({"main": 30}, "main must be one of the budgets"),
        ({"budgets": (50, 1000)}, "between 1 and the 940 samples"),
        ({"budgets": (0, 50)}, "between 1 and the 940 samples"),
    ],
)
def test_run_purchase_refuses(change, message):
    arguments = {"seeds": (0,), "budgets": (25, 50), "main": 50} | change
    with pytest.raises(ValueError, match=message):
        run_purchase(arguments.pop("seeds"), **arguments)
