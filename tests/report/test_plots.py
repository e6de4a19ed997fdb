import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from jax import numpy as jnp

from jaxsel import Values
from jaxsel.report import new_figure, plot_curves, plot_images, plot_values


@pytest.fixture(autouse=True)
def settings_stay():
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before
    plt.close("all")


def make_values(values, m2=None, **fields):
    return Values(
        values=jnp.asarray(values, jnp.float32),
        count=jnp.int32(5),
        m2=None if m2 is None else jnp.asarray(m2, jnp.float32),
        **fields,
    )


def test_values_are_sorted_with_their_standard_errors():
    values = make_values([3, 1, 2], m2=[20, 80, 0])
    left, _ = values.plot()
    np.testing.assert_array_equal(left.lines[0].get_ydata(), [1, 2, 3])
    band = left.collections[0].get_paths()[0].vertices
    # Standard errors are sqrt(m2 / (4 * 5)) = 1, 2, 0.
    assert (band[:, 1].min(), band[:, 1].max()) == (-1, 4)
    assert {(0, 3), (1, 2), (2, 4)} <= set(map(tuple, band))


@pytest.mark.parametrize("ending", ["drawn", "failed"])
def test_the_mode_that_a_backend_sets_stays(ending, monkeypatch):
    # As the inline backend of notebooks does, which the first figure loads.
    figure = plt.figure

    def load_and_draw(**options):
        matplotlib.interactive(True)
        if ending == "failed":
            raise RuntimeError("no display")
        return figure(**options)

    monkeypatch.setattr(plt, "figure", load_and_draw)
    assert not matplotlib.is_interactive()
    try:
        if ending == "failed":
            with pytest.raises(RuntimeError, match="no display"):
                make_values([1, 2]).plot()
        else:
            make_values([1, 2]).plot()
        assert matplotlib.is_interactive()
    finally:
        matplotlib.interactive(False)  # and nothing else has changed


def test_curves_are_on_a_figure_that_pyplot_shows():
    ax = plot_curves([1, 2], {"a": [[3.0, 4.0]]}, xlabel="x", ylabel="y")
    assert [plt.figure(i) for i in plt.get_fignums()] == [ax.figure]
    new_figure()
    assert len(plt.get_fignums()) == 1


def test_histogram_by_class():
    labels = np.array(["cat", "dog"] * 30)
    axes = new_figure().subplots(1, 2)
    left, right = plot_values(make_values(np.arange(60)), ax=axes, labels=labels)
    assert (left, right) == tuple(axes)
    assert [t.get_text() for t in right.get_yticklabels()] == ["cat", "dog"]
    shares = np.reshape(right.collections[0].get_array(), (2, -1))
    np.testing.assert_array_equal(shares * 3, np.full((2, 10), 3.0))


def test_row_of_a_rare_class_is_as_dark_as_others():
    values = np.r_[np.linspace(0, 1, 997), -0.5, -0.4, np.nan]
    labels = np.array(["right"] * 997 + ["wrong"] * 3)
    left, right = plot_values(
        make_values(values), ax=new_figure().subplots(1, 2), labels=labels
    )
    shares = np.reshape(right.collections[0].get_array(), (2, -1))
    np.testing.assert_array_equal(shares.max(1), [1, 1])
    assert (shares[1] > 0).sum() == 2
    assert len(left.lines[0].get_ydata()) == 999  # without the unknown one


@pytest.mark.parametrize("n", [1, 2, 100_000])
def test_few_and_many_values(n):
    plot_values(make_values(np.arange(n) / n), ax=new_figure().subplots(1, 2))
    with pytest.raises(ValueError, match="all are NaN"):
        plot_values(make_values(np.full(n, np.nan)), ax=new_figure().subplots(1, 2))


def test_histogram_without_classes_and_of_equal_values():
    _, right = plot_values(make_values(np.ones(20)), ax=new_figure().subplots(1, 2))
    assert sum(bar.get_height() for bar in right.patches) == 20


def test_curves_are_means_in_a_band_of_one_deviation():
    curve, level = np.array([[0.0, 4.0], [2.0, 8.0]]), np.array([1.0, 3.0])
    ax = plot_curves(
        [10, 1000],
        {"a": curve},
        levels={"b": level},
        xlabel="x",
        ylabel="y",
        xscale="log",
        percent=True,
    )
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [1, 6])
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [2, 2])
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(6 + np.sqrt(8))
    assert heights.min() == pytest.approx(1 - np.sqrt(2))
    assert ax.get_xscale() == "log"
    assert [t.get_text() for t in ax.get_xticklabels()] == ["10", "1000"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]


def test_one_seed_has_no_band():
    ax = plot_curves([1, 2], {"a": [[3.0, 4.0]]}, xlabel="x", ylabel="y")
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (3, 4)


def test_images_keep_their_pixels():
    images = np.arange(5 * 6, dtype=float).reshape(5, 2, 3)
    figure = plot_images(
        images,
        columns=3,
        captions=list("abcde"),
        rows=["first row", "second"],
        marked=[False, True, False, False, False],
    )
    shown = [ax.images[0] for ax in figure.axes if ax.images]
    assert len(shown) == 5
    for image, drawn in zip(images, shown, strict=True):
        np.testing.assert_array_equal(drawn.get_array(), image)
        assert drawn.get_clim() == (0, 29)
        assert drawn.get_interpolation() == "nearest"
    texts = {text.get_text(): text for ax in figure.axes for text in ax.texts}
    assert set(texts) == {*"abcde", "first\nrow", "second"}
    assert texts["b"].get_color() != texts["a"].get_color()


def test_plots_refuse():
    axes = new_figure().subplots(1, 2)
    with pytest.raises(ValueError, match=r"reduce=None"):
        plot_values(make_values(np.ones((2, 3)), reduce=None), ax=axes)
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\), got \(2,\)"):
        plot_values(make_values(np.ones(3)), ax=axes, labels=[0, 1])
    with pytest.raises(ValueError, match="ax must hold two axes, got 1"):
        plot_values(make_values(np.ones(3)), ax=axes[:1])
    with pytest.raises(ValueError, match=r"curves\['a'\] must have shape \[seeds, 2\]"):
        plot_curves([1, 2], {"a": [1.0, 2.0]}, xlabel="", ylabel="")
    with pytest.raises(ValueError, match=r"levels\['b'\] must have shape \[seeds\]"):
        plot_curves([1], {}, levels={"b": 1.0}, xlabel="", ylabel="")
    with pytest.raises(ValueError, match="images must have shape"):
        plot_images(np.ones((4, 4)), columns=2)
    with pytest.raises(ValueError, match=r"captions must have length 3, got \(1,\)"):
        plot_images(np.ones((3, 4, 4)), columns=2, captions=["a"])
    with pytest.raises(ValueError, match=r"rows must have length 2, got \(3,\)"):
        plot_images(np.ones((3, 4, 4)), columns=2, rows=list("abc"))
