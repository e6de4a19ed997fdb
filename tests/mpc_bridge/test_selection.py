"""A selection run in secret: by all roles here, and by one role a process."""

import dataclasses
import multiprocessing
import types

import numpy as np
import pytest
from parties import error_bound
from ports import free_address

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]

N, L, WIDTH = 120, 6, 5


@pytest.fixture(scope="module")
def pool():
    from jaxsel.models import Tokens
    from jaxsel.proxy import Samples

    rng = np.random.default_rng(0)
    mask = np.arange(L) < rng.integers(2, L + 1, (N, 1))
    tokens = Tokens(rng.integers(30, size=(N, L)).astype(np.int32), mask)
    return Samples(tokens, rng.normal(size=(N, WIDTH)))  # float64: any will do


@pytest.fixture(scope="module")
def probe(pool):
    """A phase with a probe of random numbers, prepared without any training."""
    from jaxsel.proxy import (
        Prepared,
        Proxy,
        Published,
        array_shapes,
        probe_manifest,
        with_bounds,
    )

    rng = np.random.default_rng(1)
    manifest = probe_manifest(width=WIDTH, n_classes=2)
    arrays = {
        name: rng.normal(size=shape) for name, shape in array_shapes(manifest).items()
    }
    arrays["offset"] = np.zeros(2)  # no prior
    proxy = with_bounds(Proxy.from_arrays(manifest, arrays), pool.features)
    published = Published(
        n=N, bootstrap=(3, 17, 50), keeps=(20,), manifests=(proxy.manifest,)
    )
    return at_clear_borders(Prepared(published=published, proxies=(proxy,)), pool, None)


def at_clear_borders(prepared, pool, base):
    """Return phases that end at gaps of the scores which no error of a run closes."""
    from jaxsel.proxy import proxy_ranks

    published, keeps = prepared.published, []
    left = np.setdiff1d(np.arange(published.n), published.bootstrap)
    for proxy, keep in zip(prepared.proxies, published.keeps, strict=True):
        scores = proxy_ranks(proxy, pool.take(left), base=base)
        order = np.argsort(-scores, kind="stable")
        gaps = -np.diff(scores[order])
        clear = 1 + np.flatnonzero(
            gaps >= 2 * error_bound(proxy.manifest.score, scores)
        )
        keeps.append(int(clear[np.argmin(np.abs(clear - keep))]))
        left = left[np.sort(order[: keeps[-1]])]
    found = dataclasses.replace(published, keeps=tuple(keeps))
    return dataclasses.replace(prepared, published=found)


def in_the_clear(prepared, pool, base=None):
    """Return the bootstrap set, and the rows that the data owner chooses, ascending."""
    from jaxsel.proxy import DataOwner

    published = prepared.published
    left = np.setdiff1d(np.arange(published.n), published.bootstrap)
    for proxy, keep in zip(prepared.proxies, published.keeps, strict=True):
        left = np.sort(DataOwner(pool=pool, base=base).choose(proxy, left, keep))
    return [*published.bootstrap, *left.tolist()]


@pytest.mark.slow
def test_all_roles_here_choose_what_is_chosen_in_the_clear(pool, tmp_path):
    """A probe, then a proxy of a transformer's first layer."""
    import jax
    from flax import nnx

    from jaxsel import Selection
    from jaxsel.models import Classifier, EncoderConfig, Target
    from jaxsel.proxy import Emulator, Phase, ProbeSpec, Spec, Training, select
    from mpc_bridge import Result, run_selection

    config = EncoderConfig(
        kind="text",
        layers=2,
        heads=4,
        hidden=16,
        intermediate=20,
        vocab=30,
        positions=L,
    )
    graphdef, params = nnx.split(Classifier(config, 2, rngs=nnx.Rngs(0)))
    base = Target(config=config, graphdef=graphdef, params=params, read="cls")
    short = Training(2, 8, 1e-3)
    spec = Spec(
        1,
        2,
        attention=Emulator("linear", bias=True),
        norm=Emulator("polynomial", degree=2),
    )
    found = select(
        pool,
        [Phase(ProbeSpec(), keep=0.6), Phase(spec, training=short, min_correlation=-1)],
        40,
        labels=lambda rows: rows % 2,
        key=jax.random.key(3),
        secret=jax.random.key(5),
        target=base,
        bootstrap=0.1,
        tuning=short,
    )
    prepared = at_clear_borders(found.prepared, pool, base)
    chosen = run_selection(
        prepared,
        pool,
        base=base,
        engine="crypten",
        appraisal="mean",
        output=tmp_path,
        notice=False,
    )
    assert isinstance(chosen, Selection)
    assert chosen.indices.tolist() == in_the_clear(prepared, pool, base)
    assert len(chosen) == len(set(chosen.indices.tolist()))
    np.testing.assert_array_equal(chosen.weights, 1)
    results = [Result.read(tmp_path / f"{owner}-owner") for owner in ("model", "data")]
    assert results[0].rows == results[1].rows
    assert 0 < results[0].appraisal < np.log(2) + 0.01


@pytest.mark.slow
def test_modules_in_the_current_folder_are_not_imported(
    probe, pool, tmp_path, monkeypatch
):
    """A stray file of the name of a standard module is common where people work."""
    from mpc_bridge import run_selection

    for name in ("re", "copy", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('a stray file')")
    monkeypatch.chdir(tmp_path)
    options = {"engine": "crypten", "notice": False, "measure": False}
    assert len(run_selection(probe, pool, **options))


def play(role, address, folder, pipe):
    """Play a role with the files of its own folder only."""
    from jaxsel.proxy import Prepared, Published, Samples, load_proxy
    from mpc_bridge import run_selection

    phased = Published.from_json((folder / "published.json").read_text())
    pool = None
    if role == "model-owner":
        phased = Prepared(published=phased, proxies=(load_proxy(folder),))
    else:
        pool = Samples(features=np.load(folder / "pool.npy"))
    chosen = run_selection(
        phased,
        pool,
        role=role,
        engine="crypten",
        rendezvous=address,
        output=folder,
        test_only_first_party=True,
    )
    pipe.send(chosen.indices.tolist())


@pytest.mark.slow
def test_each_role_needs_its_own_secrets_only(probe, pool, tmp_path):
    from jaxsel.proxy import save_proxy

    address = f"tcp://{free_address()}"
    context = multiprocessing.get_context("spawn")
    roles = []
    for role in ("model-owner", "data-owner"):
        folder = tmp_path / role
        folder.mkdir()
        (folder / "published.json").write_text(probe.published.to_json())
        ours, theirs = context.Pipe()
        process = context.Process(target=play, args=(role, address, folder, theirs))
        roles.append((process, ours))
    save_proxy(probe.proxies[0], tmp_path / "model-owner")
    np.save(tmp_path / "data-owner" / "pool.npy", pool.features)
    try:
        for process, _ in roles:
            process.start()
        for process, ours in roles:
            assert ours.poll(120), process
            assert ours.recv() == in_the_clear(probe, pool)
    finally:
        for process, _ in roles:
            process.kill()
    for role in ("model-owner", "data-owner"):
        assert (tmp_path / role / role / "result.json").exists()


@pytest.fixture
def configs(monkeypatch):
    """Configurations that would have been run, and what their files held."""
    from mpc_bridge import _selection

    seen = []

    def caught(*given, **options):
        config = given[-1]
        arrays = [np.load(inputs.x) for inputs in config.data_owner.inputs]
        folders = config.model_owner.weights
        weights = [(path / "weights.safetensors").stat().st_mode for path in folders]
        seen.append((config, arrays, weights, options))
        return types.SimpleNamespace(rows=(5, 9))

    monkeypatch.setattr(_selection, "run_local", caught)
    return seen


@pytest.mark.parametrize(
    ("options", "engine", "leak", "rendezvous"),
    [
        ({}, "spu-cheetah", "rank", None),
        ({"engine": "spu-aby3", "leak": "set"}, "spu-aby3", "set", None),
        ({"engine": "crypten"}, "crypten", "rank", "tcp://127.0.0.1:0"),
        (
            {"engine": "crypten", "rendezvous": "tcp://127.0.0.1:7"},
            "crypten",
            "rank",
            "tcp://127.0.0.1:7",
        ),
    ],
)
def test_what_is_run(probe, pool, configs, options, engine, leak, rendezvous):
    from mpc_bridge import run_selection
    from mpc_bridge._config_checks import check_config

    chosen = run_selection(
        probe, pool, name="a", seed=4, appraisal=-0.5, batch_size=7, **options
    )
    assert chosen.indices.tolist() == [3, 17, 50, 5, 9]
    ((config, (x,), (mode,), given),) = configs
    check_config(config)
    assert (config.session.name, config.session.seed) == ("a", 4)
    assert (config.session.engine, config.session.leak) == (engine, leak)
    assert config.session.rendezvous == rendezvous
    assert (config.session.samples, config.session.exclude) == (N, (3, 17, 50))
    (phase,) = config.phases
    assert (phase.keep, phase.batch_size) == (probe.published.keeps[0], 7)
    assert (config.appraisal.mode, config.appraisal.threshold) == ("threshold", -0.5)
    assert mode & 0o077 == 0
    assert not given["test_only_first_party"]
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, pool.features, rtol=1e-6)
    assert not phase.manifest.exists()  # nothing stays
    assert config.data_owner.inputs[0].mask is None
    # Nothing is measured where no result stays.
    assert (config.model_owner.measure, config.data_owner.measure) == (False, False)
    assert (config.data_owner.pools, config.session.timeout) == (None, 60.0)


def test_what_is_measured_and_kept(probe, pool, configs, tmp_path):
    from mpc_bridge import run_selection

    kept = {"output": tmp_path, "pools": tmp_path / "pools", "timeout": 300}
    run_selection(probe, pool, **kept)
    run_selection(probe, pool, **kept, measure=False)
    for (config, *_), measured in zip(configs, (True, False), strict=True):
        assert config.model_owner.measure is config.data_owner.measure is measured
        assert config.data_owner.pools == tmp_path / "pools"
        assert config.session.timeout == 300.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role": "third-party"}, "the third party runs mpc_bridge.deal"),
        (
            {"role": "data-owner", "engine": "crypten"},
            "rendezvous must be 'tcp://host:port'.*got None",
        ),
        (
            {"rendezvous": "here:1", "engine": "crypten"},
            "rendezvous must be 'tcp://host:port'",
        ),
        (
            {"rendezvous": "tcp://127.0.0.1:1"},
            "rendezvous is for engine 'crypten' only, got .* with engine 'spu",
        ),
        ({"role": "data-owner"}, "parties and certificates must be given with role"),
        ({"engine": "clear"}, "engine must be one of spu-cheetah, .*, got 'clear'"),
        ({"leak": "all"}, "leak must be one of rank, set, got 'all'"),
        ({"pool": None}, "pool must be given on the data owner's side"),
        ({"pool": "short"}, "pool must hold the 120 samples of phased, got 119"),
        ({"pool": "texts"}, "samples must have features for a probe"),
        ({"appraisal": "bit"}, "appraisal must be 'mean', 'none' or a finite number"),
        ({"appraisal": float("nan")}, "a finite number, got nan"),
        ({"appraisal": True}, "a finite number, got True"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"memory": 0}, "memory must be at least 1"),
        ({"timeout": 1}, "timeout must be from 5 to 604800 seconds, got 1"),
        ({"name": " "}, "name must not be empty"),
    ],
)
def test_bad_arguments(probe, pool, configs, options, message):
    options = dict(options)
    from jaxsel.proxy import Samples
    from mpc_bridge import run_selection

    pools = {
        "whole": pool,
        "short": pool.take(np.arange(N - 1)),
        "texts": Samples(pool.inputs),
        None: None,
    }
    given = pools[options.pop("pool", "whole")]
    with pytest.raises(ValueError, match=message):
        run_selection(probe, given, **options)
    assert not configs


def test_the_model_owner_must_have_its_proxies(probe, pool, configs):
    from mpc_bridge import run_selection

    with pytest.raises(TypeError, match="phased must hold the proxies"):
        run_selection(probe.published, pool)
    with pytest.raises(TypeError, match="must be a Phased, Prepared or Published, got"):
        run_selection(probe.proxies, pool)
    assert not configs


def test_errors_are_exported():
    import mpc_bridge

    assert issubclass(mpc_bridge.ConfigError, ValueError)
    assert issubclass(mpc_bridge.Refused, ValueError)
    assert issubclass(mpc_bridge.SessionError, RuntimeError)
    for address in ("here", "tcp://localhost:0"):
        with pytest.raises(mpc_bridge.ConfigError, match="rendezvous must"):
            mpc_bridge.deal(address)
