"""Estimates: what they add up, what they refuse, and how near they come."""

import contextlib
import dataclasses
import logging
import os

import numpy as np
import pytest
from proxy.random_proxies import random_arrays
from relay import Relay
from sessions import config_of
from test_spu_sessions import Session as Roles, running

from jaxsel.proxy import (
    Network,
    Proxy,
    Spec,
    Traffic,
    choice_cost,
    cost,
    manifest,
    probe_manifest,
    save_proxy,
    schedule,
    with_bounds,
)
from jaxsel.proxy._cost._choosing import chosen
from mpc_bridge import Result, _calibrate, _estimate
from mpc_bridge._calibrate import Calibration, Line, calibrate
from mpc_bridge._config import Link, Session
from mpc_bridge._handshake import Refused
from mpc_bridge._holdings import read_public
from mpc_bridge._network import network
from mpc_bridge._programs import wild_expected
from mpc_bridge._read_config import read_config
from mpc_bridge._toml import ConfigError
from mpc_bridge.engines import engine_of

SLOW = Link(bandwidth=0.001, latency=500.0)  # a kilobyte a second


def limited(files, hours, engine="spu-aby3", network=SLOW, **changes):
    config = config_of(files, "limited", engine=engine, **changes)
    session = dataclasses.replace(config.session, max_hours=hours)
    return dataclasses.replace(config, session=session, network=network)


def made_up(config, public):
    line = Line((1, 100), (1.0, 2.0))
    return Calibration(config.session.engine, (line, line), line, 7.0)


@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_an_estimate_is_the_sum_of_its_parts(files, engine):
    config = config_of(files, "sum", engine=engine)
    public = read_public(config)
    network = Network(bandwidth=1e6, latency=0.02)
    found = _estimate.estimates(config, public, network=network)
    phases = [
        cost(public.manifests[0], 57, network, engine=engine, batch_size=16),
        choice_cost(57, 25, network, engine=engine),
    ]
    for step, part in zip(found.steps[1:3], phases, strict=True):
        assert step.traffic.bytes == pytest.approx(part.bytes, abs=1)
        assert found.seconds(step) == pytest.approx(part.seconds)
    together = Traffic.sum(step.traffic for step in found.steps)
    assert found.traffic == together
    calibrated = _estimate.estimates(
        config, public, network=network, calibration=made_up(config, public)
    )
    seconds = sum(step.computing for step in calibrated.steps)
    assert calibrated.hours == pytest.approx(found.hours + seconds / 3600)
    # Three batches of 16 and one of 9, between 1 and 2 s.
    assert calibrated.steps[1].computing == pytest.approx(4 + (3 * 15 + 8) / 99)


def test_switches_are_computed_too(files):
    config = config_of(files, "set", engine="spu-cheetah", leak="set")
    public = read_public(config)
    calibration = dataclasses.replace(
        made_up(config, public), switch=Line((5,), (3.0,))
    )
    with_ = _estimate.estimates(config, public, calibration=calibration)
    without = _estimate.estimates(config, public, calibration=made_up(config, public))
    for step, n, k in ((2, 57, 25), (4, 25, 7)):
        # Each layer for both parties; the chosen rows are shuffled again.
        layers = [*network(n).layers, *network(k).layers]
        more = 2 * sum(3.0 * max(1, layer.size / 5) for layer in layers)
        computing = without.steps[step].computing + more
        assert with_.steps[step].computing == pytest.approx(computing)


def test_comparisons_of_the_second_shuffle_are_computed_too(files):
    by_rank, by_set = (
        _estimate.estimates(config, public, calibration=made_up(config, public))
        for config in (
            config_of(files, leak, engine="spu-aby3", leak=leak)
            for leak in ("rank", "set")
        )
        for public in (read_public(config),)
    )
    for step in (2, 4):
        assert by_set.steps[step].computing > by_rank.steps[step].computing
        assert by_set.steps[step].traffic.waits > by_rank.steps[step].traffic.waits


@pytest.mark.parametrize("engine", ["crypten", "spu-cheetah", "spu-aby3"])
def test_an_estimate_says_how_many_numbers_come_out_wild(files, engine):
    config = config_of(files, "wild", engine=engine)
    first, second = read_public(config).manifests
    # Of n samples 3 logits and what is scored of them; a ring of 64 bits, 2 x 16 cut.
    made = {op.name: op.results(57) for op in schedule(first)}
    assert made["logits"] == 57 * 3
    largest = max(first.fixed_point.bounds.values())
    products = sum(
        op.results(57) for op in schedule(first) if op.kind in ("matmul", "mul")
    )
    found = wild_expected(first, 57, engine_of(engine), 16)
    said = _estimate.estimate(config, reveals=False)
    if engine == "crypten":
        assert found == pytest.approx(products * largest / 2**32)
        both = wild_expected(first, 57, engine_of(engine))
        both += wild_expected(second, config.phases[0].keep, engine_of(engine))
        assert f"{both:.1g} or more are expected to come out wild" in said
    else:
        assert found == 0
        assert "No product below the ring's limit comes out wild" in said


def test_times_lie_on_a_line_between_sizes_and_beyond():
    line = Line((10, 20, 40), (1.0, 2.0, 3.0))
    found = [line.at(size) for size in (5, 10, 15, 30, 80)]
    assert found == pytest.approx([1.0, 1.0, 1.5, 2.5, 5.0])
    assert Line((10,), (2.0,)).at(30) == 6.0
    assert Line((10, 20), (2.0, 1.9)).at(100) == 2.0  # noise takes no time back


class Alone:
    """An engine of one party."""

    def exchange(self, message):
        return [message]


@pytest.mark.parametrize(
    ("of_size", "compiling", "sizes"),
    [
        (lambda size: 0.18, 2.0, [1, 4, 16, 25]),  # compiling spends none of the time
        (lambda size: 0.18, 60.0, [1, 4, 16, 25]),
        (lambda size: 0.18 * size, 0.0, [1, 4]),
        (lambda size: 0.02 * size, 0.0, [1, 4, 16, 25]),
        (lambda size: 10.0, 0.0, [1]),
        (lambda size: 0.3 + 0.1 * size, 0.0, [1, 4]),  # the second size once
    ],
)
def test_a_calibration_grows_while_time_is_left(monkeypatch, of_size, compiling, sizes):
    now, warm = [0.0], set()
    monkeypatch.setattr(_calibrate.time, "perf_counter", lambda: now[0])

    def made(size):
        def run():
            now[0] += of_size(size) + (0.0 if warm else compiling)
            warm.add(size)

        return run

    found, seconds, extra = _calibrate._grow(Alone(), made, 1, 25, 5.0)
    assert found == sizes
    assert seconds == pytest.approx([*map(of_size, sizes)])
    assert extra == pytest.approx(compiling)
    assert now[0] <= compiling + max(5.0, 4 * of_size(1))


def test_too_long_a_run_is_refused_before_anything_is_shared(files, monkeypatch):
    monkeypatch.setattr(_estimate, "calibrate_run", made_up)
    with pytest.raises(Refused, match=r"session\.max_hours") as refused:
        _estimate.check_hours(limited(files, 0.01, engine="spu-cheetah"))
    said = str(refused.value)
    assert "hours on spu-cheetah, 0.01 are allowed" in said
    assert "engine 'spu-aby3' (messages" in said
    assert "a smaller pool" in said
    _estimate.check_hours(limited(files, 10_000))
    # Both ways to start a run ask.
    from mpc_bridge import run_local
    from mpc_bridge._party import Party
    from mpc_bridge.engines import engine_of

    config = limited(files, 0.01)
    with pytest.raises(Refused, match="max_hours"):
        run_local(config, notice=False)
    party = Party(
        "data owner", 1, engine_of("spu-aby3"), config, force=True, progress=False
    )
    with pytest.raises(Refused, match="max_hours"):
        party.prepare()


def test_a_day_is_warned_of_where_no_limit_is_set(files, capsys):
    _estimate.check_hours(limited(files, None))
    assert not capsys.readouterr().err
    crawling = Link(bandwidth=1e-6, latency=500.0)
    _estimate.check_hours(limited(files, None, network=crawling))
    assert "hours on spu-aby3" in capsys.readouterr().err
    _estimate.check_hours(limited(files, None, network=None))
    assert not capsys.readouterr().err


def test_the_limit_and_the_network_are_read(files, tmp_path):
    config = limited(files, 2.5)
    config.write(tmp_path / "run.toml")
    assert read_config(tmp_path / "run.toml") == config
    dataclasses.replace(config, network=None).write(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="network is missing"):
        read_config(tmp_path / "none.toml")
    text = (tmp_path / "run.toml").read_text()
    (tmp_path / "run.toml").write_text(text.replace("= 2.5", "= 0"))
    with pytest.raises(ConfigError, match="max_hours must be a finite number above"):
        read_config(tmp_path / "run.toml")
    assert Session(name="a", seed=1, samples=2).max_hours is None


@pytest.mark.slow
def test_the_table_shows_other_engines(files, monkeypatch):
    monkeypatch.setattr(_estimate, "calibrate_run", made_up)
    config = limited(files, None, engine="spu-cheetah")
    text = _estimate.estimate(config, calibrated=True)
    assert "computing, s" in text
    assert "all, on spu-aby3" in text
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="can be calibrated, got engine 'crypten'"):
        _estimate.estimate(config_of(files, "c"), calibrated=True)


@contextlib.contextmanager
def over(roles, **link):
    """Put a link between the parties of a session: delay and rate."""
    with contextlib.ExitStack() as stack:
        configs = [read_config(path) for path in roles.paths]
        places = dataclasses.asdict(configs[0].parties)
        near = [each["address"] for each in places.values() if each is not None]
        far = {}
        for address in near:
            host, port = address.split(":")
            relay = stack.enter_context(Relay((host, int(port)), **link))
            far[address] = f"127.0.0.1:{relay.address[1]}"
        for rank, (config, path) in enumerate(zip(configs, roles.paths, strict=True)):
            parties = dataclasses.replace(
                config.parties,
                **{
                    name: dataclasses.replace(
                        getattr(config.parties, name), address=far[each["address"]]
                    )
                    for name, each in places.items()
                    if each is not None
                },
            )
            name = ("model_owner", "data_owner", "third_party")[rank]
            part = dataclasses.replace(config.part(rank), listen=near[rank])
            dataclasses.replace(config, parties=parties, **{name: part}).write(path)
        yield


timed = pytest.mark.skipif(
    "JAXSEL_TIMED" not in os.environ,
    reason="seconds depend on what else runs: JAXSEL_TIMED=1 on quiet cores",
)


def beside_a_run(roles, config, network, *, limit):
    """Run a session over a link; return its result, seconds estimated and seconds run.

    Both are by phase, of scoring and choosing, with as many passes as there were. Keys
    and compiling, which a run has where they are first needed, count to the first.
    """
    engine, public = config.session.engine, read_public(config)
    batches = _estimate.batches(config, public)
    calibration = calibrate(engine, public.manifests, batches, limit=limit)
    found = _estimate.estimates(
        config, public, network=network, calibration=calibration
    )
    link = {"delay": network.latency, "rate": network.bandwidth}
    with over(roles, **link), running(roles) as parties:
        for party in parties:
            assert party.wait(1500)[0] == 0, party.said
    result, seconds = Result.read(roles.outputs[0]), []
    for i, phase in enumerate(result.phases):
        scoring, choosing = found.steps[1 + 2 * i : 3 + 2 * i]
        passes, comparisons = phase.passes, phase.comparisons
        sent = chosen(engine, "rank", phase.samples, phase.kept, passes, comparisons)
        computing = calibration.choosing(passes, comparisons)
        choosing = dataclasses.replace(choosing, traffic=sent, computing=computing)
        spent = [step for step in result.steps if step.phase == f"phase {i + 1}"]
        places = ("inputs", "forward", "choice")
        begun = 0.0 if i else found.seconds(found.steps[0])
        seconds.append(
            (
                begun + found.seconds(scoring) + found.seconds(choosing),
                sum(step.seconds for step in spent if step.place in places),
            )
        )
    logging.getLogger(__name__).info("seconds estimated and run: %s", seconds)
    return result, seconds


@timed
@pytest.mark.slow
@pytest.mark.mpc
@pytest.mark.parametrize("latency", [0.05, 0.01])
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_an_estimate_comes_near_a_run_over_a_link(files, tmp_path, engine, latency):
    roles = Roles(files, tmp_path, engine)
    network = Network(bandwidth=5e6, latency=latency)
    config = config_of(files, "near", engine=engine)
    _, phases = beside_a_run(roles, config, network, limit=20)
    expected, seconds = map(sum, zip(*phases, strict=True))
    assert expected == pytest.approx(seconds, rel=0.2)


@timed
@pytest.mark.slow
@pytest.mark.mpc
def test_two_thousand_reviews_over_a_link(tmp_path, monkeypatch):
    """A twenty-first of 42,000: a probe leaves 600, a layer of MiniLM's size 400."""
    n, keeps = 2000, (600, 400)
    spec = Spec(1, 12, attention="quadratic", norm="polynomial", read="cls")
    sizes = {"hidden": 384, "head_width": 32, "intermediate": 1536, "length": 128}
    x = np.random.default_rng(0).normal(size=(n, 128, 384)).astype(np.float32)
    left = np.arange(n)
    manifests = (
        probe_manifest(width=384, n_classes=2),
        manifest(spec, layers=6, heads=12, n_classes=2, **sizes),
    )
    for i, (each, rows, keep) in enumerate(
        zip(manifests, (x[:, 0], x), keeps, strict=True)
    ):
        arrays = random_arrays(each, np.random.default_rng(i))
        made = with_bounds(Proxy.from_arrays(each, arrays), rows[:256], margin=4)
        save_proxy(made, tmp_path / f"probe{i}")
        np.save(tmp_path / f"x{i}.npy", rows)
        scores = np.asarray(made.scores(made.logits(rows[left])))
        left = np.sort(left[np.argsort(-scores, kind="stable")[:keep]])

    def of_reviews(*args, **changes):
        found = config_of(*args, **{"samples": n, "timeout": 300.0} | changes)
        phases = [
            dataclasses.replace(phase, keep=keep, batch_size=None)
            for phase, keep in zip(found.phases, keeps, strict=True)
        ]
        session = dataclasses.replace(found.session, exclude=())
        return dataclasses.replace(found, phases=tuple(phases), session=session)

    monkeypatch.setattr("processes.config_of", of_reviews)
    (tmp_path / "run").mkdir()
    roles = Roles(tmp_path, tmp_path / "run", "spu-aby3", timeout=300.0)
    network = Network(bandwidth=100e6, latency=0.1)
    config = of_reviews(tmp_path, "near", engine="spu-aby3")
    result, phases = beside_a_run(roles, config, network, limit=60)
    assert len({*left} & {*result.rows}) >= 0.99 * keeps[1]
    for expected, seconds in phases:
        assert expected == pytest.approx(seconds, rel=0.2)
    assert 21 * sum(seconds for _, seconds in phases) < 2 * 3600
