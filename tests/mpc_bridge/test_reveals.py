"""What a party's result says that the answer gave away, of what that party has."""

import dataclasses

import numpy as np
import pytest
from sessions import command, config_of

from jaxsel.proxy import (
    Manifest,
    Proxy,
    array_shapes,
    declare,
    leakage,
    probe_manifest,
)
from mpc_bridge import _reveals
from mpc_bridge._result import PhaseResult
from mpc_bridge._reveals import Answer, of_data_owner, of_model_owner

D, N, KEEP = 6, 700, 140
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N + 20, D)).astype(np.float32)
LEFT = np.sort(RNG.permutation(N + 20)[:N])


def probe(head=0):
    manifest = probe_manifest(width=D, n_classes=2, head=head)
    arrays = {
        name: 0.7 * RNG.normal(size=shape)
        for name, shape in array_shapes(manifest).items()
    }
    arrays["offset"] = np.zeros(2)
    return Proxy.from_arrays(manifest, arrays)


PROXY = probe()


def reader(rows):
    return lambda part: (X[rows[part]], None)


def answer(leak="rank", rows=LEFT, keep=KEEP):
    """A choice among rows of X, as any party has seen it."""
    scores = np.asarray(PROXY.scores(PROXY.logits(X[rows])), np.float64)
    declared = declare(scores, keep, seed=0)
    return Answer(
        left=rows,
        kept=np.flatnonzero(declared.chosen),
        levels=declared.levels if leak == "rank" else None,
        phase=PhaseResult(
            samples=len(rows),
            kept=keep,
            batch_size=64,
            passes=declared.passes,
            comparisons=9,
        ),
    )


@pytest.mark.parametrize("leak", ["rank", "set"])
@pytest.mark.left_out
def test_a_data_owner_attacks_with_its_rows_and_the_answer(leak):
    (found,) = of_data_owner([answer(leak)], [PROXY.manifest], [reader], memory=1 << 30)
    assert (found.phase, found.basis, found.rows) == ("phase 1", "own rows", 560)
    assert (found.outcomes is None) == (leak == "set")
    assert found.recovered > 0.95
    assert found.chosen > 0.9
    assert found.overlap > 0.85
    assert found.chance == 0.2
    assert "recovered (rank correlation" in found.verdict
    assert found.opened.startswith("the 140 rows that are left")
    assert ("pivots" in found.opened) == (leak == "rank")


@pytest.mark.left_out
def test_rows_of_the_pool_are_told_apart():
    """Rows that belong to others tell nothing: the answer is by rows of the pool."""
    wrong = lambda rows: reader(np.roll(rows, 7))
    (found,) = of_data_owner([answer()], [PROXY.manifest], [wrong], memory=1 << 30)
    assert found.recovered < 0.5


@pytest.mark.left_out
def test_fewer_rows_are_attacked_where_there_are_many(monkeypatch):
    monkeypatch.setattr(_reveals, "_FEWEST", 100)
    asked = []

    def seen(rows):
        asked.append(rows)
        return reader(rows)

    made = answer()
    (found,) = of_data_owner([made], [PROXY.manifest], [seen], memory=1 << 30)
    (rows,) = asked
    assert len(rows) == 100  # 16 a weight, and _FEWEST at least
    assert len(np.intersect1d(rows, LEFT[made.kept])) == 50  # up to 200 of the chosen
    assert found.rows == 80
    assert _reveals.attacked_rows(PROXY.manifest, 10**6, 1 << 40) == 100
    wide = probe_manifest(width=384, n_classes=3)
    assert _reveals.attacked_rows(wide, 10**6, 1 << 40) == 16 * 384 * 2
    assert _reveals.attacked_rows(wide, 50, 1 << 40) == 50
    assert _reveals.attacked_rows(wide, 10**6, 4 * 384 * 4 * 30) == 30


def of_model(manifest, weights, samples, leak="rank"):
    options = {"leak": leak, "memory": 1 << 30}
    made = answer(leak)
    return of_model_owner([made], [manifest], [weights], samples, **options)[0]


@pytest.mark.left_out
def test_a_model_owner_attacks_on_samples_of_its_own():
    own = RNG.normal(size=(500, D)).astype(np.float32)
    found = of_model(PROXY.manifest, PROXY.arrays(), [(own, None)])
    told = leakage(PROXY, own, KEEP / N, steps=60, enough=0.99)
    assert (found.basis, found.rows) == ("own samples", 400)
    assert found.outcomes == round(told.outcomes.rank_correlation, 4)
    assert found.chosen == round(told.chosen.rank_correlation, 4)
    assert found.verdict == told.verdict
    assert (
        of_model(PROXY.manifest, PROXY.arrays(), [(own, None)], "set").outcomes is None
    )


@pytest.mark.slow
def test_phases_of_own_samples_follow_each_other(monkeypatch):
    own = RNG.normal(size=(500, D)).astype(np.float32)
    seen = []

    def spied(proxy, x, keep, mask, **options):
        seen.append((x, keep))
        return leakage(proxy, x, keep, mask, **options)

    monkeypatch.setattr(_reveals, "leakage", spied)
    first = answer()
    second = answer(rows=LEFT[first.kept], keep=35)
    of_model_owner(
        [first, second],
        [PROXY.manifest] * 2,
        [PROXY.arrays()] * 2,
        [(own, None)] * 2,
        leak="rank",
        memory=1 << 30,
    )
    scores = np.asarray(PROXY.scores(PROXY.logits(own)))
    best = np.sort(np.argsort(-scores, kind="stable")[:100])
    np.testing.assert_array_equal(seen[0][0], own)
    np.testing.assert_array_equal(seen[1][0], own[best])
    assert [keep for _, keep in seen] == [0.2, 0.25]


@pytest.mark.left_out
def test_a_model_owner_without_samples_knows_sizes():
    found = of_model(PROXY.manifest, PROXY.arrays(), [])
    assert (found.basis, found.rows) == ("random probe", N)
    assert found.recovered > 0.95
    other = probe(head=3)
    found = of_model(other.manifest, other.arrays(), [])
    assert (found.basis, found.recovered, found.rows) == ("nothing", None, 0)
    assert found.verdict.startswith("not attacked: give model_owner.samples")


def test_what_can_not_be_attacked_is_said():
    made = answer(keep=3)
    (found,) = of_data_owner([made], [PROXY.manifest], [reader], memory=1 << 30)
    assert found.basis == "nothing"
    assert "not attacked: x must hold 2 chosen rows" in found.verdict
    (found,) = _reveals.of_nobody([made], "this party has neither")
    assert (found.recovered, found.verdict) == (
        None,
        "not attacked: this party has neither",
    )


@pytest.mark.slow
def test_an_estimate_says_what_answers_give_away(files, capsys, tmp_path):
    wide = probe_manifest(width=60, n_classes=2)
    path = tmp_path / "manifest.json"
    path.write_text(wide.to_json())
    hidden = tmp_path / "hidden.json"
    hidden.write_text(probe_manifest(width=6, n_classes=2, head=4).to_json())
    text = (files / "probe1" / "manifest.json").read_text()
    narrow = tmp_path / "narrow.json"
    narrow.write_text(text)
    assert Manifest.from_json(text).inputs.width == 5
    made = config_of(files, "answers", model_owner=None, data_owner=None, samples=400)
    phases = [
        dataclasses.replace(made.phases[0], manifest=at, keep=keep)
        for at, keep in ((narrow, 100), (hidden, 60), (path, 12))
    ]
    config = dataclasses.replace(made, phases=tuple(phases))
    config.write(tmp_path / "run.toml")
    assert command("estimate", "--config", tmp_path / "run.toml") == 0
    shown = capsys.readouterr().out
    assert shown.count('leak = "set"') == 1
    rows = [
        line
        for line in shown.splitlines()
        if line.startswith("phase") and " of " in line
    ]
    assert [line.split(":")[0] for line in rows] == ["phase 1", "phase 2", "phase 3"]
    rank, alone = map(float, rows[0].split()[-2:])
    assert rank > 0.95
    assert alone > 0.9
    assert rows[1].split()[-2:] == ["-", "-"]
    # 60 rows of 60 features: nearly nothing.
    assert max(map(float, rows[2].split()[-2:])) < 0.6
    assert 'This session has leak = "rank".' in shown
    assert command("estimate", "--config", tmp_path / "run.toml", "--no-attack") == 0
    assert "give away" not in capsys.readouterr().out
