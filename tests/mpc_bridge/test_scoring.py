"""Scores in secret: those of the clear module, at the cost that was counted."""

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from parties import EMULATED, both, error_bound

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]


def run(rank, folder, calls):
    """Return the opened scores and the counts by step of each call.

    Args:
        rank: The party.
        folder: Of proxies and samples, see `write`.
        calls: Number of the proxy, samples, batch and lanes.
    """
    from mpc_bridge import Ledger, read_manifest, score_pool, to_crypten

    results = []
    for name, n, batch, lanes in calls:
        at, ledger, read = f"{folder}/{name}", Ledger(allow=("scores",)), None
        module = to_crypten(at if rank == 0 else read_manifest(at), ledger=ledger)
        if rank == 1:
            read = reader(f"{at}/samples.npz", n)
        scores = score_pool(module, n, read, batch_size=batch, lanes=lanes)
        steps = {
            (place, name): (spent.rounds, spent.bytes)
            for (_, place, name), spent in ledger.steps.items()
        }
        results.append((ledger.open("scores", scores).tolist(), steps))
    return results


def reader(path, n):
    with np.load(path) as file:
        x, mask = file["x"], file.get("mask")
    asked = [0]

    def read(rows):
        assert rows.start == asked[-1]  # in order, each once
        asked.append(rows.stop)
        assert rows.stop <= n
        return x[rows], None if mask is None else mask[rows]

    return read


def write(folder, name, made):
    from mpc_bridge import export

    target, x, mask = made
    export(target, folder / name)
    arrays = {"x": x} if mask is None else {"x": x, "mask": mask}
    np.savez(folder / name / "samples.npz", **arrays)


def assert_sound(folder, calls, both_results):
    """Compare with the clear module and with `cost`; return errors by proxy."""
    from jaxsel.proxy import cost
    from mpc_bridge import load

    assert both_results[0] == both_results[1]
    for (name, n, batch, lanes), (found, steps) in zip(
        calls, both_results[0], strict=True
    ):
        for place in ("weights", "inputs"):  # CrypTen's parties share by common seeds
            assert steps.pop((place, "share")) == (0, 0)
        module = load(folder / name)
        with np.load(folder / name / "samples.npz") as file:
            mask = file.get("mask")
            x, mask = file["x"][:n], None if mask is None else mask[:n]
        expected = module.scores(x, mask).numpy()
        bound = error_bound(module.manifest.score, expected)
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound, err_msg=name)
        counted = cost(module.manifest, n, batch_size=batch, lanes=lanes)
        assert steps == {
            (row.operation.place, row.operation.name): (
                row.all.rounds,
                row.all.bytes,
            )
            for row in counted.rows
        }
        assert sum(rounds for rounds, _ in steps.values()) == counted.rounds
        assert sum(size for _, size in steps.values()) == counted.bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import dataclasses

    from proxy.random_proxies import random_proxy, small_manifests

    from jaxsel.proxy import Emulator

    folder, exact = tmp_path_factory.mktemp("proxies"), 0
    for i, m in enumerate(small_manifests()):
        if m.plan == "plain" and i % 3:  # the folded ones are run, all of them
            continue
        if m.score.secure.family == "exact" and m.score.kind != "margin":
            exact += 1
            if exact % 5 != 1:  # it takes most of the time
                emulated = Emulator("mlp", width=4)
                score = dataclasses.replace(m.score, secure=emulated)
                m = dataclasses.replace(m, score=score)
        polynomial = any(layer.attention.family == "polynomial" for layer in m.layers)
        bound = 8.0 if polynomial else 2.0 ** (3 + i % 2)  # 16 is refused there
        write(folder, f"{i:02}", random_proxy(m, seed=i, bound=bound))
    assert exact > 10
    return folder


@pytest.mark.slow
def test_every_family_scores_as_in_the_clear(folder):
    calls = [(path.name, 3, 2, 2) for path in sorted(folder.iterdir())]
    assert len(calls) > 45
    assert_sound(folder, calls, both(run, str(folder), calls))


@pytest.mark.slow
def test_scores_do_not_depend_on_batches_and_lanes(tmp_path):
    from proxy.random_proxies import SMALL, random_proxy

    from jaxsel.proxy import Spec, manifest, probe_manifest

    n, settings = 7, [(7, 1), (2, 1), (2, 3), (1, 9), (9, 4)]
    spec = Spec(1, 2, read="mean", norm="polynomial", embed="onehot")
    uniform = Spec(1, 1, attention="uniform", norm="linear", ffn="quad")
    made = {
        "quadratic": manifest(spec, **SMALL),
        # 700 · 8 numbers a sample are too many to go through together.
        "uniform": manifest(
            uniform, **SMALL | {"kind": "patches", "vocab": None, "length": 700}
        ),
        "probe": probe_manifest(width=6, n_classes=2),
    }
    for name, m in made.items():
        write(tmp_path, name, random_proxy(m, seed=1, n=n, bound=8.0))
    calls = [(name, n, *each) for name in made for each in settings]
    results = both(run, str(tmp_path), calls)
    assert_sound(tmp_path, calls, results)
    scores = np.array([found for found, _ in results[0]])
    for group in np.split(scores, len(made)):
        bound = EMULATED / 4 * max(1, np.abs(group).max())
        np.testing.assert_allclose(
            group, np.broadcast_to(group[0], group.shape), atol=bound
        )


@pytest.mark.slow
def test_sums_of_weights_keep_their_digits(tmp_path):
    from proxy.random_proxies import SMALL, random_proxy

    from jaxsel.proxy import Spec, manifest
    from mpc_bridge import load

    # Of one token in 128 as of half of them, where weights are near 25 as near 1.
    sizes, n = SMALL | {"length": 128, "score": "margin"}, 8
    for attention in ("2quad", "polynomial"):
        spec = Spec(1, 2, attention=attention, norm="polynomial", read="mean")
        target, x, _ = random_proxy(manifest(spec, **sizes), n=n, bound=8.0)
        mask = np.arange(128) < np.resize([1, 2, 4, 64], n)[:, None]
        write(tmp_path, attention, (target, x, mask))
    calls = [(attention, n, n, 1) for attention in ("2quad", "polynomial")]
    results = both(run, str(tmp_path), calls)
    assert_sound(tmp_path, calls, results)
    for (name, *_), (found, _) in zip(calls, results[0], strict=True):
        with np.load(tmp_path / name / "samples.npz") as file:
            expected = load(tmp_path / name).scores(file["x"], file["mask"]).numpy()
        largest = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * largest)


@st.composite
def shapes(draw):
    from jaxsel.proxy import Emulator, Spec, manifest
    from jaxsel.proxy.families import ATTENTIONS, NORMS

    size = lambda least, most: draw(st.integers(least, most))
    choose = lambda *values: draw(st.sampled_from(values))
    # The exact ones take long, and of polynomials not every bound fits.
    family = choose(*(n for n in ATTENTIONS if n not in ("exact", "polynomial")))
    flags = {}
    if "centre" in ATTENTIONS[family].parameters:
        flags = {"centre": draw(st.booleans()), "bias": draw(st.booleans())}
    m = manifest(
        Spec(
            size(1, 2),
            size(1, 3),
            size(1, 4),
            attention=Emulator(family, width=2 if family == "mlp" else None, **flags),
            norm=choose(*(name for name in NORMS if name not in ("exact", "none"))),
            ffn=choose(False, "relu", "quad"),
            read=choose("cls", "mean"),
        ),
        layers=2,
        heads=3,
        head_width=size(1, 4),
        hidden=size(2, 9),
        length=size(1, 6),
        n_classes=size(2, 4),
        intermediate=size(1, 5),
        pre_norm=draw(st.booleans()),
        masked=draw(st.booleans()),
        head=size(0, 3),
        plan=choose("plain", "folded"),
    )
    return m, (size(1, 5), size(1, 4), size(1, 3))


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(shapes(), st.integers(0, 9))
def test_every_shape_scores_as_in_the_clear(tmp_path_factory, drawn, seed):
    from proxy.random_proxies import random_proxy

    folder, (m, sizes) = tmp_path_factory.mktemp("shapes"), drawn
    try:
        write(folder, "one", random_proxy(m, seed, bound=16.0))
    except ValueError as error:
        assume("drown" not in str(error))  # of one random number, say
        raise
    calls = [("one", *sizes)]
    assert_sound(folder, calls, both(run, str(folder), calls))


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


WRONG = {
    "tokens": [
        (lambda x: x[:, :4], None, r"x must have shape \('n', 5, 8\), got \(3, 4, 8\)"),
        (lambda x: x[..., :7], None, r"x must have shape .*, got \(3, 5, 7\)"),
        (lambda x: x[0], None, r"x must have shape .*, got \(5, 8\)"),
        (lambda x: x[:0], None, r"x must have shape .*, got \(0, 5, 8\)"),
        (lambda x: changed(x, (0, 0, 0), np.nan), None, "x must be finite"),
        (lambda x: changed(x, (2, 4, 7), -np.inf), None, "x must be finite"),
        (lambda x: changed(x, (1, 1, 1), 1e30), None, "x must be at most 8 in size"),
        (lambda x: changed(x, (2, 4, 0), -16.1), None, "x must be at most 8 in size"),
        (lambda x: x.astype(str), None, "x must be finite numbers, got <U"),
        (lambda x: x + 0j, None, "x must be finite numbers, got complex"),
        (None, lambda m: m[:, :4], r"mask must hold zeros .* \(3, 5\), got \(3, 4\)"),
        (None, lambda m: m[:2], r"mask must hold zeros .* \(3, 5\), got \(2, 5\)"),
        (None, lambda m: m * 0.5, "mask must hold zeros and ones"),
        (None, lambda m: changed(m, (1, 0), np.nan), "mask must hold zeros and ones"),
        (None, lambda m: changed(m, 1, 0), "mask must have a one .* got none in 1"),
    ],
    "onehot": [
        (lambda x: x[:, :4], None, r"x must have shape \('n', 5\), got \(3, 4\)"),
        (lambda x: changed(x, (2, 1), 7), None, r"token ids in \[0, 7\), got int64"),
        (lambda x: changed(x, (0, 0), -1), None, r"token ids in \[0, 7\)"),
        (lambda x: x.astype(float), None, r"token ids in \[0, 7\), got float64"),
        (lambda x: np.eye(7)[x], None, r"x must have shape \('n', 5\)"),
        (None, lambda m: changed(m, 2, 0), "mask must have a one .* got none in 2"),
    ],
    "patches": [
        (lambda x: changed(x, (0, 0, 0), np.nan), None, "x must be finite"),
        (None, lambda _: np.eye(3, 5), "mask must be None or all ones"),
    ],
    "features": [
        (lambda x: x[:, :5], None, r"x must have shape \('n', 6\), got \(3, 5\)"),
        (lambda x: x[..., None], None, r"x must have shape .*, got \(3, 6, 1\)"),
        (lambda x: changed(x, (2, 5), np.inf), None, "x must be finite"),
        (lambda x: x > 0, None, "x must be finite numbers, got bool"),
    ],
}


def run_wrong(rank, folder):
    """Have the data owner share what does not fit; then both score what does."""
    import mpc_bridge
    from mpc_bridge import read_manifest, score_pool, to_crypten

    generators = mpc_bridge.import_crypten().generators

    def states():
        found = [
            g.get_state().tolist()
            for each in generators.values()
            for g in each.values()
        ]
        assert found
        return found

    results = []
    for name, wrong in WRONG.items():
        at = f"{folder}/{name}"
        module = to_crypten(at if rank == 0 else read_manifest(at))
        if rank == 1:
            with np.load(f"{at}/samples.npz") as file:
                x, mask = file["x"], file.get("mask")
            mask = None if mask is None else mask.astype(float)
            before = states()
            for change, change_mask, message in wrong:
                given = x if change is None else change(x)
                shown = mask if change_mask is None else change_mask(mask)
                with pytest.raises(ValueError, match=message):
                    module.share_inputs(given, shown)
                with pytest.raises(ValueError, match=f"{message}|must return 3"):
                    score_pool(module, 3, lambda _, g=given, s=shown: (g, s))
            for rows in (x[:2], np.concatenate([x, x])):
                shown = None if mask is None else np.ones(rows.shape[:2])
                with pytest.raises(ValueError, match="must return 3 samples"):
                    score_pool(module, 3, lambda _, g=rows, s=shown: (g, s))
            # A share of a secret takes a step of the common generators.
            assert states() == before
        read = None if rank == 0 else reader(f"{at}/samples.npz", 3)
        results.append(score_pool(module, 3, read).get_plain_text().tolist())
    return results


@pytest.mark.left_out
def test_wrong_samples_are_refused_before_anything_is_shared(tmp_path):
    from proxy.random_proxies import SMALL, random_proxy

    from jaxsel.proxy import Spec, manifest, probe_manifest
    from mpc_bridge import load

    spec = Spec(1, 1, norm="linear")
    onehot = Spec(1, 1, norm="linear", embed="onehot")
    made = {
        "tokens": random_proxy(manifest(spec, **SMALL), n=3, bound=8.0),
        "onehot": random_proxy(manifest(onehot, **SMALL), n=3, bound=8.0),
        "patches": random_proxy(
            manifest(spec, **SMALL | {"kind": "patches", "vocab": None}), n=3, bound=8.0
        ),
        "features": random_proxy(probe_manifest(width=6, n_classes=2), n=3, bound=8.0),
    }
    for name, each in made.items():
        write(tmp_path, name, each)
    _, results = both(run_wrong, str(tmp_path))
    for (name, (_, x, mask)), found in zip(made.items(), results, strict=True):
        expected = load(tmp_path / name).scores(x, mask).numpy()
        bound = EMULATED * max(1, np.abs(expected).max())
        np.testing.assert_allclose(found, expected, atol=bound)


def run_calls(rank, folder):
    """Return what wrong calls say, and what a run opens by itself."""
    import contextlib
    import io

    import mpc_bridge
    from mpc_bridge import read_manifest, score_pool, to_crypten

    crypten = mpc_bridge.import_crypten()
    manifest = read_manifest(folder)
    source = folder if rank == 0 else manifest
    said = []

    def refused(function, *args, **kwargs):
        with pytest.raises((TypeError, ValueError, FileNotFoundError)) as caught:
            function(*args, **kwargs)
        said.append(f"{caught.type.__name__}: {caught.value}")

    refused(to_crypten, manifest if rank == 0 else f"{folder}/nowhere")
    module = to_crypten(source)
    read = None if rank == 0 else reader(f"{folder}/samples.npz", 3)
    for wrong in ({"batch_size": 0}, {"lanes": 0}, {"memory": 0}, {"batch_size": 1.5}):
        refused(score_pool, module, 3, read, **wrong)
    refused(score_pool, module, 0, read)
    with pytest.MonkeyPatch.context() as patch:
        opened = []
        for name in ("get_plain_text", "reveal"):
            show = getattr(crypten.mpc.MPCTensor, name)
            patch.setattr(
                crypten.mpc.MPCTensor,
                name,
                lambda *args, show=show: opened.append(1) or show(*args),
            )
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            scores = score_pool(module, 3, read, progress=True)
        assert scores.size() == (3,)
    return said, len(opened), stream.getvalue()


@pytest.mark.left_out
def test_calls_are_checked_and_open_nothing(tmp_path):
    from proxy.random_proxies import SMALL, random_proxy

    from jaxsel.proxy import Spec, manifest

    spec = Spec(1, 1, attention="exact", norm="exact", secure="exact")
    write(tmp_path, "proxy", random_proxy(manifest(spec, **SMALL), n=3, bound=8.0))
    results = both(run_calls, str(tmp_path / "proxy"))
    for rank, (said, opened, shown) in enumerate(results):
        assert said[0].startswith(
            "FileNotFoundError: there is no manifest"
            if rank
            else "ValueError: source must be a folder with weights"
        )
        for text, name in zip(
            said[1:], ("batch_size", "lanes", "memory", "batch_size", "n"), strict=True
        ):
            assert f": {name} must be" in text
        assert opened == 0
        assert "Scores" in shown


def test_batches_follow_from_the_memory():
    from proxy.random_proxies import SMALL

    from jaxsel.proxy import Spec, manifest, probe_manifest, schedule
    from mpc_bridge.engines import engine_of

    engine = engine_of("crypten")
    spec = Spec(1, 2, embed="onehot")
    for m in (manifest(spec, **SMALL), probe_manifest(width=384, n_classes=2)):
        operations = schedule(m)
        sizes = [
            engine.batch_for(operations, memory)
            for memory in (1, 1 << 20, 1 << 24, 1 << 30)
        ]
        assert sizes[0] == 1
        assert sizes == sorted(sizes)
        assert sizes[3] == pytest.approx(64 * sizes[2], rel=0.1)
