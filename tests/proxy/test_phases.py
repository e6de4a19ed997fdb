"""Selection in phases: what is left of what, what is bought, and resuming exactly."""

import dataclasses

import jax
import numpy as np
import pytest
from test_build import TEXT, L, target

from jaxsel.models import Tokens
from jaxsel.proxy import (
    DataOwner,
    Emulator,
    KeyCommitment,
    KeyOpening,
    KeyShare,
    ModelOwner,
    Phase,
    ProbeSpec,
    Samples,
    Spec,
    Training,
    draw_bootstrap,
    embed,
    joint_key,
    proxy_ranks,
    select,
    with_bounds,
)
from jaxsel.proxy._parties import _proxy_maker
from jaxsel.proxy._parties._proxy_maker import ProxyMaker

N, BUDGET = 200, 40
KEY = jax.random.key(3)
CLASSES = np.random.default_rng(4).integers(3, size=N)
SHORT = Training(2, 8, 1e-3)
SMALL = Spec(
    1, 2, attention=Emulator("linear", bias=True), secure=Emulator("mlp", width=12)
)
SCHEDULE = (
    Phase(ProbeSpec(), keep=0.6, min_correlation=0.5),
    Phase(SMALL, keep=0.4, training=SHORT, min_correlation=0.5),
    Phase(
        dataclasses.replace(SMALL, layers=2),
        goal="logits",
        training=SHORT,
        min_correlation=0.5,
    ),
)


def samples(n, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(50, size=(n, L)).astype(np.int32)
    mask = np.arange(L) < rng.integers(3, L + 1, (n, 1))
    return Samples(Tokens(tokens, mask), rng.normal(size=(n, 5)).astype(np.float32))


POOL, OTHERS = samples(N, 0), samples(60, 1)


def run(**options):
    given = {"target": target(TEXT), "key": KEY, "tuning": Training(1, 8, 1e-3)}
    given["secret"] = jax.random.key(5)
    given |= {"labels": lambda rows: CLASSES[rows], "distil": OTHERS, "bootstrap": 0.1}
    given |= options
    schedule = given.pop("schedule", SCHEDULE)
    return select(
        given.pop("pool", POOL), schedule, given.pop("budget", BUDGET), **given
    )


@pytest.fixture(scope="module")
def found():
    return run()


@pytest.mark.slow
def test_each_phase_sieves_what_the_one_before_left(found):
    assert found.bootstrap.tolist() == sorted(set(found.bootstrap.tolist()))
    assert [len(rows) for rows in found.survivors] == [100, 60, 20]
    left = np.setdiff1d(np.arange(N), found.bootstrap)
    for proxy, rows in zip(found.proxies, found.survivors, strict=True):
        scores = proxy_ranks(proxy, POOL.take(left), base=target(TEXT))
        best = left[np.argsort(-scores, kind="stable")[: len(rows)]]
        np.testing.assert_array_equal(rows, best)
        left = rows
    indices = np.asarray(found.selection.indices)
    assert len(set(indices.tolist())) == int(found.selection.n_valid) == BUDGET
    np.testing.assert_array_equal(indices[:20], found.bootstrap)
    np.testing.assert_array_equal(indices[20:], found.survivors[-1])
    np.testing.assert_array_equal(found.labels, CLASSES[found.bootstrap])


@pytest.mark.slow
def test_bounds_hold(found):
    """Powers of two; that of the inputs is at most four times as large as they are.

    Within encoders others have margins by degree; those of probes are the worst.
    """
    bought = POOL.take(found.bootstrap)
    for proxy in found.proxies:
        bounds = proxy.manifest.fixed_point.bounds
        assert all(np.log2(bound) % 1 == 0 for bound in bounds.values())
        if proxy.manifest.layers:
            x, mask = embed(target(TEXT), bought.inputs)
            assert {"layers.0.scores", "layers.0.variance"} < set(bounds)
            for name in ("scores", "variance"):
                usual = bounds.get(f"layers.0.{name}_unit", 0)
                assert usual <= bounds[f"layers.0.{name}"]
        else:
            x, mask = bought.features, None
        logits = proxy.logits(x, mask)
        for place, values in (
            ("inputs", x),
            ("head.logits", logits),
            ("score", proxy.scores(logits)),
        ):
            assert bounds[place] / np.abs(values).max() >= 2
            assert place != "inputs" or bounds[place] <= 4 * np.abs(values).max()


@pytest.mark.left_out
def test_bounds_are_measured_once(monkeypatch, tmp_path):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return with_bounds(*arguments)

    monkeypatch.setattr(_proxy_maker, "with_bounds", counted)
    labels = lambda rows: CLASSES[rows] % 2
    options = {"schedule": (Phase(ProbeSpec()),), "target": None, "n_classes": 2}
    for times in (1, 2):  # the second time, the phase is read
        found = run(**options, labels=labels, folder=tmp_path / "run")
        assert len(calls) == times
        assert found.proxies[0].manifest.fixed_point.bounds
    places = [tmp_path / "run", *(tmp_path / "run").iterdir()]
    assert len(places) > 2
    assert {path.stat().st_mode & 0o777 for path in places} == {0o700}


@pytest.mark.slow
def test_bounds_of_what_overflows(found):
    x = np.full((1, L, 16), 1e30)
    x[:, :, ::2] *= -1
    with pytest.raises(ValueError, match="finite numbers, got layers.0.scores of"):
        with_bounds(found.proxies[1], x)


@pytest.mark.slow
def test_costs_follow_what_is_left(found):
    counted = found.costs()
    assert [passes.n for passes, _ in counted] == [180, 100, 60]
    sizes = [passes.bytes_per_sample for passes, _ in counted]
    assert sizes == sorted(sizes)
    assert all(choice.comparisons > 0 for _, choice in counted)


def test_neither_party_can_choose_the_joint_key():
    ours, theirs = KeyShare("model owner"), KeyShare("data owner")
    sent = KeyCommitment.from_json(theirs.commitment.to_json())
    with pytest.raises(ValueError, match="the data owner must commit itself first"):
        ours.key(theirs.open(ours.commitment))
    opened = KeyOpening.from_json(ours.open(sent).to_json())
    key = theirs.key(opened)
    assert key == ours.key(theirs.open(ours.commitment))
    assert jax.random.key_data(key).size == 4  # words of 32 bits
    # A number other than the one committed to, and a commitment made after the fact.
    other = KeyShare("data owner")
    with pytest.raises(ValueError, match="must be the one that it committed itself to"):
        ours.key(other.open(ours.commitment))
    with pytest.raises(ValueError, match="must commit itself once"):
        ours.open(other.commitment)
    # One that sends back what it got.
    for step in (ours.open, ours.key):
        mirrored = ours.commitment if step == ours.open else opened
        with pytest.raises(ValueError, match="must be of the data owner, got one of"):
            step(mirrored)
        mirrored = dataclasses.replace(mirrored, role="data owner")
        with pytest.raises(ValueError, match="commit"):
            step(mirrored)
    with pytest.raises(ValueError, match="format must be 'jaxsel KeyOpening'"):
        KeyOpening.from_json(theirs.commitment.to_json())
    with pytest.raises(ValueError, match="digits must be 64 hexadecimal digits"):
        KeyCommitment.from_json(sent.to_json().replace(sent.digits, sent.digits[:32]))


def test_each_bit_of_a_joint_key_counts_for_its_rows():
    key = joint_key(1, 2)
    rows = draw_bootstrap(key, 1000, 0.1).tolist()
    assert rows == draw_bootstrap(joint_key(1, 2), 1000, 0.1).tolist()
    words = np.asarray(jax.random.key_data(key))
    for bit in range(0, 128, 9):
        changed = words.copy()
        changed[bit // 32] ^= np.uint32(1 << bit % 32)
        other = jax.random.wrap_key_data(changed, impl="rbg")
        assert draw_bootstrap(other, 1000, 0.1).tolist() != rows


def test_the_key_is_of_both_parties():
    keys = [
        tuple(jax.random.key_data(joint_key(*pair)).tolist())
        for pair in ((1, 2), (2, 1), (1, 3), (12, 0), (1, 20))
    ]
    assert len(set(keys)) == 5
    rows = [draw_bootstrap(joint_key(1, i), 100, 0.25) for i in range(400)]
    assert {len(each) for each in rows} == {25}
    counts = np.bincount(np.concatenate(rows), minlength=100)
    # Each row is drawn 100 times of 400 on average, give or take 8.7.
    assert 60 < counts.min() < counts.max() < 140


@pytest.mark.slow
@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_killed_run_goes_on(found, tmp_path, phase):
    """It ends as one that was not, and buys the labels once."""
    bought, calls = [], []

    def labels(rows):
        bought.append(rows)
        return CLASSES[rows]

    def winners(proxy, rows, count):
        calls.append(len(proxy.manifest.layers))
        if len(calls) == phase + 1:
            raise KeyboardInterrupt
        scores = proxy_ranks(proxy, POOL.take(rows), base=target(TEXT))
        return rows[np.argsort(-scores, kind="stable")[:count]]

    with pytest.raises(KeyboardInterrupt):
        run(labels=labels, winners=winners, folder=tmp_path)
    again = run(labels=labels, winners=winners, folder=tmp_path)
    assert len(bought) == 1
    assert calls == [0, 1, 2][: phase + 1] + [0, 1, 2][phase:]
    for one, other in zip(again.survivors, found.survivors, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(again.proxies, found.proxies, strict=True):
        assert one.manifest == other.manifest
        for name, array in other.arrays().items():
            np.testing.assert_array_equal(one.arrays()[name], array)
    for change in (
        {"key": jax.random.key(4)},
        {"secret": jax.random.key(4)},
        {"bootstrap": 0.125, "budget": 45},
        {"target": dataclasses.replace(target(TEXT), read="mean")},
    ):
        with pytest.raises(ValueError, match="holds a run with other data"):
            run(folder=tmp_path, **change)


@pytest.mark.left_out
def test_the_prior_comes_off():
    options = {"schedule": (Phase(ProbeSpec()),), "target": None, "n_classes": 2}
    options["labels"] = lambda rows: (CLASSES[rows] == 0).astype(int)
    (plain,) = run(**options).proxies
    found = run(**options, kind="prior_entropy")
    (proxy,) = found.proxies
    logits = proxy.logits(POOL.features)
    np.testing.assert_allclose(logits, plain.logits(POOL.features), rtol=1e-5)
    counts = np.bincount(found.labels, minlength=2) + 1
    lead = logits[:, 1] - logits[:, 0] - np.log(counts[1] / counts[0])
    np.testing.assert_allclose(proxy.scores(logits), -(lead**2), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"kind": "prior_entropy"},
        {"heads": "gradient"},
        {
            "schedule": (
                Phase(SMALL, goal="ranks", training=SHORT, min_correlation=0.5),
            )
        },
        # With 4 hidden units some samples switch all of them off, and tie.
        {"schedule": (Phase(ProbeSpec(hidden=16), goal="ranks"),), "distil": None},
        {
            "schedule": (
                Phase(SMALL, keep=0.5, training=SHORT, min_correlation=0.3),
                Phase(SMALL, goal="logits", training=SHORT, min_correlation=0.3),
            )
        },
    ],
    ids=["prior", "gradient", "ranks", "probe of ranks", "one spec twice"],
)
def test_other_ways_lead_to_the_budget(options):
    selection = run(**options).selection
    assert len(set(np.asarray(selection.indices).tolist())) == BUDGET


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": ()}, "schedule must hold at least one phase"),
        ({"budget": 20}, "budget must be above the bootstrap set's 20 samples"),
        ({"budget": N}, "below the pool's 200, got 200"),
        ({"schedule": (Phase(SMALL, keep=0.5),)}, r"schedule\[0\].keep must be None"),
        ({"schedule": (Phase(SMALL), Phase(SMALL))}, "keep must be a share, got None"),
        (
            {"schedule": (Phase(SMALL, keep=0.1), Phase(SMALL))},
            "at least the budget 40, got 20",
        ),
        ({"target": None}, r"target must be given for schedule\[1\]"),
        (
            {"pool": Samples(POOL.inputs)},
            r"pool must have features for schedule\[0\]",
        ),
        (
            {"distil": Samples(features=OTHERS.features)},
            r"distil must have inputs for schedule\[2\]",
        ),
        ({"bootstrap": 0.001}, "bootstrap must be a share of the pool"),
        ({"labels": lambda rows: CLASSES[rows] + 1}, r"labels must lie in \[0, 3\)"),
        ({"labels": lambda rows: CLASSES[rows] / 2}, "labels must return integers"),
        ({"kind": "doubt"}, "kind must be one of"),
        (
            {"winners": lambda proxy, rows, count: rows[: count - 1]},
            "winners must return 100 distinct rows, got shape",
        ),
        (
            {"winners": lambda proxy, rows, count: np.arange(count)},
            "winners must return rows that it was given",
        ),
    ],
)
@pytest.mark.every(3)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        run(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schedule": (Phase(dataclasses.replace(SMALL, layers=7)),)},
            "spec.layers must be at most the target's 2",
        ),
        (
            {"distil": Samples(OTHERS.inputs, np.ones((60, 4)))},
            r"distil.features must have rows of shape \(5,\) as the pool's, got \(4,\)",
        ),
        (
            {"distil": Samples(jax.tree.map(lambda a: a[:, :4], OTHERS.inputs))},
            "distil.inputs must have rows of shape",
        ),
    ],
)
def test_what_fails_fails_before_anything_is_bought(options, message):
    def labels(rows):
        raise AssertionError("bought")

    with pytest.raises(ValueError, match=message):
        run(labels=labels, **options)


@pytest.mark.left_out
def test_a_target_that_no_phase_needs_is_left_alone():
    found = run(schedule=(Phase(ProbeSpec()),), pool=Samples(features=POOL.features))
    assert found.target is None
    assert found.selection.n_valid == BUDGET


@pytest.mark.slow
def test_a_probe_and_a_proxy_learn_from_what_they_read():
    """Texts without features teach proxies, whatever the probes before them read."""
    schedule = (SCHEDULE[0], SCHEDULE[2])
    found = run(schedule=schedule, distil=Samples(OTHERS.inputs))
    assert found.selection.n_valid == BUDGET


@pytest.mark.left_out
def test_a_ranking_is_accepted_unchecked():
    """The refusal names the option, and None accepts any ranking."""
    labels = lambda rows: CLASSES[rows]
    options = {"target": None, "n_classes": 3, "labels": labels}
    with pytest.raises(ValueError, match=r"min_correlation=1.*None accepts any"):
        run(schedule=(Phase(ProbeSpec(), min_correlation=1.0),), **options)
    schedule = (Phase(ProbeSpec(), min_correlation=None),)
    assert run(schedule=schedule, **options).selection.n_valid == BUDGET


@pytest.mark.slow
def test_phases_choose_what_emulators_learn_from(monkeypatch):
    """Each source and number of samples gets a loop of its own; phases alike share."""
    loops, emulate = [], _proxy_maker.emulate

    def fewer(proxies, *rows, source="rows", n_points, **options):
        loops.append((len(proxies), source, n_points))
        if proxies[0].manifest.layers:
            return proxies
        return emulate(proxies, *rows, source=source, n_points=512, **options)

    monkeypatch.setattr(_proxy_maker, "emulate", fewer)
    two = dataclasses.replace(SMALL, layers=2)
    owner = ModelOwner(
        schedule=(
            Phase(ProbeSpec(), keep=0.9),
            Phase(ProbeSpec(), keep=0.8, source="gaussian", n_points=600),
            Phase(SMALL, keep=0.7),
            Phase(two, keep=0.6, source="gaussian", n_points=5_120_000),
            Phase(SMALL, keep=0.5, source="gaussian", n_points=5_120_000),
            Phase(two),
        ),
        budget=BUDGET,
        secret=KEY,
        target=target(TEXT),
        bootstrap=0.1,
    )
    seller = DataOwner(pool=POOL, base=owner.target)
    plan = owner.plan(seller.offer())
    sold = seller.sell(plan, lambda rows: CLASSES[rows], key=KEY)
    maker = ProxyMaker(owner=owner, plan=plan, sold=sold, tuned=owner.target)
    made = maker._untrained
    assert loops == [(2, "rows", 1_024_000), (2, "gaussian", 5_120_000)]
    assert made[SMALL, "rows", 1_024_000] is not made[SMALL, "gaussian", 5_120_000]
    for i in range(2):
        maker.attempt(i)
    assert loops[2:] == [(1, "both", 1_024_000), (1, "gaussian", 600)]


def test_what_a_run_saves_is_for_its_user_alone(tmp_path):
    labels = lambda rows: CLASSES[rows] % 2
    options = {"target": None, "n_classes": 2, "labels": labels}
    run(schedule=(Phase(ProbeSpec()),), folder=tmp_path / "run", **options)
    folders = [tmp_path / "run", *(tmp_path / "run").iterdir()]
    assert len(folders) > 2
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_bad_phases():
    with pytest.raises(TypeError, match="proxy must be a Spec or a ProbeSpec"):
        Phase("probe")
    with pytest.raises(ValueError, match="keep must lie between 0 and 1, got 1"):
        Phase(SMALL, keep=1)
    with pytest.raises(
        ValueError, match=r"min_correlation must lie in \[-1, 1\], got 2"
    ):
        Phase(SMALL, min_correlation=2)
    with pytest.raises(TypeError, match="min_correlation must be a number or None"):
        Phase(SMALL, min_correlation="0.9")
    with pytest.raises(TypeError, match="training must be a Training"):
        Phase(SMALL, training=3)
    with pytest.raises(ValueError, match="source must be one of .*got 'normal'"):
        Phase(SMALL, source="normal")
    with pytest.raises(ValueError, match="n_points must be .*got 0"):
        Phase(SMALL, n_points=0)
    with pytest.raises(TypeError, match="refit must be True or False, got 1"):
        Phase(SMALL, refit=1)
    with pytest.raises(ValueError, match="must have one length"):
        Samples(POOL.inputs, np.ones((3, 2)))
