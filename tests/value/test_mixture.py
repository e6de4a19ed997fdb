"""The response to mixtures: kernels against NumPy, calibration, choices, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from jaxsel import value
from jaxsel.value._mixture_fit import _prior, moments, posterior
from jaxsel.value._mixture_kernel import mixture_left_out, mixture_posterior
from jaxsel.value._mixture_programs import scales_loss

MODELS = ("quadratic", "gp")


def scales_of(model, domains):
    if model == "quadratic":
        return np.array([0.7, -1.0])
    lengths = np.log(np.linspace(0.3, 0.9, domains))
    return np.array([*lengths, np.log(0.6), 0.1, -0.5, -1.2])


def covariance(model, scales, a, b):
    """The prior covariance, pair by pair."""
    out = np.empty((len(a), len(b)))
    for i, w in enumerate(a):
        for j, v in enumerate(b):
            if model == "quadratic":
                pairs = [(k, m) for k in range(len(w)) for m in range(k)]
                total = sum(w[k] * w[m] * v[k] * v[m] for k, m in pairs)
                out[i, j] = np.exp(2 * scales[0]) * total
                continue
            power = np.exp(scales[-4])
            gap = ((w + 1e-3) ** power - (v + 1e-3) ** power) / np.exp(scales[:-4])
            r = np.sqrt(5 * np.sum(gap**2))
            smooth = np.exp(2 * scales[-3]) * (1 + r + r**2 / 3) * np.exp(-r)
            out[i, j] = smooth + np.exp(2 * scales[-2]) * w @ v
    return out


def reference(model, scales, mixtures, metrics, points):
    """Posterior of a process whose trend has a prior of huge variance."""
    trend = [np.ones((len(w), 1)) for w in (mixtures, points)]
    if model == "quadratic":
        trend = [mixtures, points]
    wide = 1e7
    k = covariance(model, scales, mixtures, mixtures) + wide * trend[0] @ trend[0].T
    k += np.exp(2 * scales[-1]) * np.eye(len(mixtures))
    between = covariance(model, scales, mixtures, points)
    between += wide * trend[0] @ trend[1].T
    prior = covariance(model, scales, points, points) + wide * trend[1] @ trend[1].T
    solved = linalg.solve(k, between, assume_a="pos")
    return solved.T @ metrics, prior - between.T @ solved


def runs(seed=0, count=14, domains=3):
    rng = np.random.default_rng(seed)
    mixtures = rng.dirichlet(np.ones(domains), count)
    return mixtures, rng.normal(size=count), rng.dirichlet(np.ones(domains), 5)


@pytest.mark.parametrize("model", MODELS)
def test_posterior_is_that_of_a_process_with_a_trend_of_wide_prior(model):
    mixtures, metrics, points = runs()
    scales = scales_of(model, 3)
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, (mixtures, metrics, scales, points))
        mean, cov = mixture_posterior(*arrays, model=model)
        mean, cov = np.asarray(mean), np.asarray(cov)
    expected, expected_cov = reference(model, scales, mixtures, metrics, points)
    np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_left_out_errors_are_those_of_refits(model):
    mixtures, metrics, _ = runs()
    scales = scales_of(model, 3)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(a) for a in (mixtures, metrics, scales)]
        errors, variances = mixture_left_out(*arrays, model=model)
        for i in range(len(metrics)):
            rest = np.arange(len(metrics)) != i
            mean, cov = mixture_posterior(
                arrays[0][rest],
                arrays[1][rest],
                arrays[2],
                arrays[0][i][None],
                model=model,
            )
            np.testing.assert_allclose(errors[i], metrics[i] - mean[0], rtol=1e-8)
            noise = np.exp(2 * scales[-1])
            np.testing.assert_allclose(variances[i], cov[0, 0] + noise, rtol=1e-8)


def test_quadratic_of_free_products_is_least_squares():
    mixtures, metrics, points = runs()
    pairs = [(0, 1), (0, 2), (1, 2)]

    def terms(w):
        return np.column_stack([w, *(w[:, i] * w[:, j] for i, j in pairs)])

    effect = np.linalg.lstsq(terms(mixtures), metrics, rcond=None)[0]
    with jax.enable_x64(True):
        arrays = (mixtures, metrics, np.array([9.0, 0.0]), points)
        mean, _ = mixture_posterior(*map(jnp.asarray, arrays), model="quadratic")
    np.testing.assert_allclose(mean, terms(points) @ effect, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_likelihood_is_that_of_contrasts(model):
    """Restricted likelihood: of metrics without the trend, up to a constant."""
    mixtures, metrics, _ = runs()
    trend = mixtures if model == "quadratic" else np.ones((len(mixtures), 1))
    contrasts = linalg.null_space(trend.T)
    prior = _prior(model, mixtures)

    def log_density(scales):
        k = covariance(model, scales, mixtures, mixtures)
        k = contrasts.T @ (k + np.exp(2 * scales[-1]) * np.eye(len(k))) @ contrasts
        y = contrasts.T @ metrics
        return -y @ np.linalg.solve(k, y) / 2 - np.linalg.slogdet(k)[1] / 2

    gaps = []
    for shift in (0.0, 0.3):
        scales = scales_of(model, 3) + shift
        unlikely = np.sum(((scales - prior.centre) / prior.width) ** 2) / 2
        with jax.enable_x64(True):
            arrays = (scales, mixtures, metrics, *prior)
            loss = scales_loss(*map(jnp.asarray, arrays), model=model)
        gaps.append(float(loss) - (unlikely - log_density(scales)))
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-8)


@pytest.mark.parametrize("model", MODELS)
def test_float32_beside_float64(model):
    mixtures, metrics, points = runs()
    scales = scales_of(model, 3)
    arrays = [a.astype(np.float32) for a in (mixtures, metrics, scales, points)]
    narrow, _ = mixture_posterior(*map(jnp.asarray, arrays), model=model)
    expected, _ = reference(model, scales, mixtures, metrics, points)
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, expected, atol=2e-3)


def planted(kind, rng, domains):
    effect = rng.normal(size=domains)
    square = rng.normal(size=(domains, domains))
    return {
        "linear": lambda w: w @ effect,
        "quadratic": lambda w: w @ effect + np.einsum("ri,ij,rj->r", w, square, w),
        "logarithm": lambda w: -np.log(w @ np.abs(effect) + 0.05),
        "power": lambda w: ((w + 0.02) ** -0.4) @ np.abs(effect),
    }[kind]


@pytest.mark.slow
def test_intervals_hold_planted_responses():
    """95 % intervals of the expected metric and of a run, at new mixtures."""
    inside, of_run = [], []
    for seed, kind in enumerate(("linear", "quadratic", "logarithm", "power") * 3):
        rng = np.random.default_rng(seed)
        truth = planted(kind, rng, 4)
        mixtures = value.mixture_design(jax.random.key(seed), 32, 4)
        points = rng.dirichlet(np.ones(4), 100)
        noise = (0.05, 0.1, 0.3)[seed % 3] * truth(mixtures).std()
        metrics = truth(mixtures) + noise * rng.normal(size=32)
        response = value.mixture_response(mixtures, metrics)
        low, high = response.interval(points).T
        inside.append(np.mean((low <= truth(points)) & (truth(points) <= high)))
        low, high = response.interval(points, of_run=True).T
        new = truth(points) + noise * rng.normal(size=100)
        of_run.append(np.mean((low <= new) & (new <= high)))
    assert 0.9 <= np.mean(inside) <= 0.99
    assert 0.9 <= np.mean(of_run) <= 0.99


def noisy(seed, domains, count):
    """Runs with 15 % noise: half of the domains are needed, the others do harm.

    Losses fall by a power of each needed weight, and differ by large factors.
    """
    rng, needed = np.random.default_rng(seed), domains // 2
    effect = rng.uniform(0.5, 2, needed)

    def truth(w):
        harm = np.exp(w[:, needed:] @ np.linspace(0, 1, domains - needed))
        return ((w[:, :needed] + 0.01) ** -0.6) @ effect / 20 * harm

    mixtures = value.mixture_design(jax.random.key(seed), count, domains)
    metrics = truth(mixtures) * np.exp(0.15 * rng.normal(size=count))
    return mixtures, metrics, truth


def covered(response, truth, seed, domains):
    points = value.mixture_design(jax.random.key(seed + 99), 300, domains)
    low, high = response.interval(points).T
    return np.mean((low <= truth(points)) & (truth(points) <= high))


@pytest.mark.parametrize("seed", [2, 8])
def test_noise_is_not_taken_for_a_rough_response(seed):
    """Without repeated runs, too little noise fits too: intervals were too short."""
    mixtures, metrics, truth = noisy(seed, 4, 24)
    response = value.mixture_response(mixtures, metrics)
    assert response.log
    assert 0.6 * 0.15 <= response.noise <= 1.6 * 0.15
    assert covered(response, truth, seed, 4) >= 0.93


@pytest.mark.slow
def test_the_better_runs_decide_whether_logarithms_are_fitted():
    """The likelihood of all runs prefers raw metrics here, which miss the optimum."""
    mixtures, metrics, truth = noisy(1, 8, 64)
    response = value.mixture_response(mixtures, metrics)
    assert response.log
    best = response.best()
    low, high = best.interval
    assert low <= truth(best.mixture[None])[0] <= high
    assert best.metric == pytest.approx(truth(best.mixture[None])[0], rel=0.2)


@pytest.mark.slow
def test_intervals_of_the_best_hold_its_metric():
    """Of 24 responses: half spread once, half with half of the runs chosen later."""
    inside, elsewhere = [], []
    for seed in range(12):
        for later in (0, 12):
            mixtures, metrics, truth = noisy(seed, 4, 24)
            if later:
                mixtures, metrics = mixtures[:12], metrics[:12]
                first = value.mixture_response(mixtures, metrics)
                more = first.next_design(later)
                rng = np.random.default_rng(seed + 1000)
                noise = np.exp(0.15 * rng.normal(size=later))
                mixtures = np.concatenate([mixtures, more])
                metrics = np.append(metrics, truth(more) * noise)
            response = value.mixture_response(mixtures, metrics)
            best = response.best()
            low, high = best.interval
            inside.append(low <= truth(best.mixture[None])[0] <= high)
            elsewhere.append(covered(response, truth, seed, 4))
    assert np.mean(inside) >= 0.9
    assert 0.9 <= np.mean(elsewhere) <= 0.999
    assert min(elsewhere) >= 0.85


def losses(mixtures):
    """Two domains are needed equally, a third is useless."""
    return 1 / (0.1 + mixtures[:, 0]) + 1 / (0.1 + mixtures[:, 1]) + mixtures[:, 2]


@pytest.fixture(scope="module")
def response():
    mixtures = value.mixture_design(jax.random.key(0), 24, 3)
    return value.mixture_response(mixtures, losses(mixtures), names="abc")


def test_means_are_their_factors_times_the_metrics(response):
    points = np.random.default_rng(0).dirichlet(np.ones(3), 7)
    data = response.mixtures, response._scaled, points
    mean, covariance, by_run = posterior(response.fitted, *data)
    np.testing.assert_allclose(by_run @ response._scaled, mean, rtol=1e-6, atol=1e-8)
    alone, variance = moments(response.fitted, *data)
    np.testing.assert_allclose(alone, mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(variance, covariance.diagonal(), rtol=1e-4, atol=1e-9)


def test_best_mixture_of_a_known_response(response):
    best = response.best()
    np.testing.assert_allclose(best.mixture, [0.5, 0.5, 0], atol=0.03)
    assert best.mixture[2] == 0
    assert best.dispensable == ("c",)
    low, high = best.interval
    assert low <= losses(best.mixture[None])[0] <= high
    assert low < best.metric < high
    assert best.without[2] == 0
    assert (best.without[:2] > 1).all()
    assert (best.weight_intervals[:, 0] <= best.weight_intervals[:, 1]).all()


@pytest.mark.slow
def test_goal_max_is_min_of_the_negative(response):
    mixtures, metrics = response.mixtures, -response.metrics
    turned = value.mixture_response(mixtures, metrics, goal="max", log=False)
    straight = value.mixture_response(mixtures, -metrics, log=False)
    a, b = turned.best(), straight.best()
    np.testing.assert_allclose(a.mixture, b.mixture, atol=1e-6)
    assert a.metric == pytest.approx(-b.metric)
    assert a.interval == pytest.approx((-b.interval[1], -b.interval[0]))


def test_units_do_not_matter(response):
    """Raw metrics in thousands, and of 1e-6, give the same mixture."""
    points = response.mixtures[:3]
    for unit in (1e4, 1e-6):
        scaled = value.mixture_response(response.mixtures, unit * response.metrics)
        np.testing.assert_allclose(
            scaled.predict(points), unit * np.array(response.predict(points)), rtol=1e-2
        )


def test_bounds_hold(response):
    upper = [0.3, 1.0, 0.2]
    bounded = value.mixture_response(response.mixtures, response.metrics, upper=upper)
    best = bounded.best()
    assert (best.mixture <= np.array(upper) + 1e-9).all()
    assert best.mixture.sum() == pytest.approx(1)
    assert best.mixture[0] == pytest.approx(0.3, abs=0.02)
    assert np.isnan(best.without[1])  # the others' bounds sum to a half
    assert (bounded.next_design(5) <= np.array(upper) + 1e-9).all()


@pytest.mark.parametrize("method", ["expected_improvement", "variance"])
def test_next_mixtures_are_new_and_differ(response, method):
    design = response.next_design(6, method=method)
    assert design.shape == (6, 3)
    np.testing.assert_allclose(design.sum(1), 1)
    everything = np.concatenate([design, response.mixtures])
    for i, row in enumerate(design):
        others = np.delete(everything, i, axis=0)
        assert np.abs(others - row).max(1).min() > 1e-3


def test_next_mixtures_lie_where_they_help(response):
    improving = response.next_design(4)
    unknown = response.next_design(4, method="variance")
    assert losses(improving).mean() < losses(unknown).mean()
    errors = response.predict(unknown)[1]
    pool = np.random.default_rng(0).dirichlet(np.ones(3), 200)
    assert errors[0] > np.quantile(response.predict(pool)[1], 0.9)


def test_diverged_runs_are_left_out_with_a_warning(response):
    mixtures = np.concatenate([response.mixtures, [[0, 0, 1], [0.1, 0, 0.9]]])
    metrics = np.append(response.metrics, [np.nan, np.inf])
    with pytest.warns(UserWarning, match="2 of 26 runs"):
        again = value.mixture_response(mixtures, metrics)
    assert again.diverged == 2
    points = response.mixtures[:4]
    # Not bit by bit: programs of other shapes stop the search elsewhere.
    for part, right in zip(
        again.predict(points), response.predict(points), strict=True
    ):
        np.testing.assert_allclose(part, right, rtol=0.01)


def test_columns_of_a_table_name_the_domains(response):
    pd = pytest.importorskip("pandas")
    runs = [f"r{i}" for i in range(len(response.mixtures))]
    table = pd.DataFrame(response.mixtures, runs, ["web", "code", "news"])
    metrics = pd.Series(response.metrics, runs)
    named = value.mixture_response(table, metrics, model="quadratic")
    assert named.names == ("web", "code", "news")
    with pytest.raises(ValueError, match="mixtures and metrics must have their rows"):
        value.mixture_response(table, metrics[::-1])


def test_models_are_chosen_by_errors_of_runs_left_out():
    rng = np.random.default_rng(0)
    mixtures = value.mixture_design(jax.random.key(1), 30, 4)
    for kind, expected in (("quadratic", "quadratic"), ("power", "gp")):
        metrics = planted(kind, rng, 4)(mixtures)
        metrics = metrics + 0.02 * metrics.std() * rng.normal(size=30)
        response = value.mixture_response(mixtures, metrics, log=False)
        assert response.model == expected
        assert response.model == min(response.loo_errors, key=response.loo_errors.get)
    alone = value.mixture_response(mixtures, metrics, model="quadratic")
    assert alone.model == "quadratic"
    assert [*alone.loo_errors] == ["quadratic"]


def test_few_runs_leave_the_process_alone():
    mixtures, metrics, _ = runs(count=5, domains=4)
    response = value.mixture_response(mixtures, metrics)
    assert response.model == "gp"
    with pytest.raises(ValueError, match="needs 6 runs for 4 domains"):
        value.mixture_response(mixtures, metrics, model="quadratic")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": np.ones(24)}, "metrics must differ"),
        ({"metrics": np.full(24, np.nan)}, "4 runs or more that are finite, got 0"),
        ({"metrics": np.ones(3)}, "same length"),
        ({"metrics": np.ones((24, 1))}, "metrics must have shape"),
        ({"mixtures": np.ones((24, 1))}, "two domains or more"),
        ({"mixtures": np.full((24, 3), 0.5)}, "sum to 1, but row 0 sums to 1.5"),
        ({"mixtures": np.tile([1.5, -0.5, 0], (24, 1))}, "weights of 0 or more"),
        ({"mixtures": np.tile([0.5, 0.5, 0], (24, 1))}, "mixtures must differ"),
        ({"upper": [0.2, 0.2, 0.2]}, "upper must sum to 1 or more"),
        ({"upper": [1.0, 1.0]}, "upper must have shape"),
        ({"names": ["a"]}, "names must have length 3"),
        ({"goal": "least"}, "goal must be one of"),
        ({"model": "cubic"}, "model must be one of"),
        ({"metrics": np.arange(24.0), "log": True}, "log must be False"),
    ],
)
def test_bad_input(response, change, message):
    arguments = {"mixtures": response.mixtures, "metrics": response.metrics}
    with pytest.raises(ValueError, match=message):
        value.mixture_response(**{**arguments, **change})


@pytest.mark.slow
def test_repr_and_plot(response):
    plt = pytest.importorskip("matplotlib.pyplot")
    assert len(repr(response)) < 200
    assert "24 runs, 3 domains" in repr(response)
    assert repr(response.best()).startswith("BestMixture({")
    curves, bars = response.plot()
    assert len(curves.get_lines()) == 3
    assert [t.get_text() for t in bars.get_yticklabels()][-1] == "c"
    plt.close("all")
    with pytest.raises(ValueError, match="two axes"):
        response.plot(ax=[curves])
