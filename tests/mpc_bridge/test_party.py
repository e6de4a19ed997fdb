"""What parties agree on, offer, open and write, on an engine in the clear."""

import contextlib
import dataclasses
import shutil

import numpy as np
import pytest
from sessions import EXCLUDED, KEEPS, N, config_of, in_the_clear
from threads import ClearEngine, together

from mpc_bridge import _party
from mpc_bridge._config import Appraisal, PhaseConfig, ThirdParty
from mpc_bridge._handshake import Refused, SessionError, agree
from mpc_bridge._ledger import Ledger
from mpc_bridge._party import Party

pytestmark = pytest.mark.mpc

ROLES = ("model-owner", "data-owner", "third-party")


class Run:
    """What a run left behind.

    Attributes:
        results: Of the parties by rank: a `Result`, or what it raised.
        engines, ledgers: Of the parties by rank, as far as they came.
    """

    def __init__(self, *configs, engine=ClearEngine):
        self.configs, self.engine = configs, engine
        self.engines, self.ledgers = {}, {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_party, "Ledger", self.ledger)
            self.results = together(len(configs), self.play)

    def ledger(self, engine, **options):
        self.ledgers[engine.rank] = Ledger(engine, **options)
        return self.ledgers[engine.rank]

    def play(self, rank, room):
        config, role = self.configs[rank], ROLES[rank]
        party = Party(role, rank, self.engine, config, force=False, progress=False)
        with contextlib.closing(party), self.engine.connect(rank, room) as engine:
            party.prepare()
            self.engines[rank] = engine
            return party.play(
                engine, agree(engine, party.terms(engine), party.offers(engine))
            )

    def opened(self, rank=0):
        return [(kind, size) for kind, _, size in self.ledgers[rank].opened]


@pytest.fixture
def config(files, tmp_path):
    """Make a configuration whose results lie in a folder of this test."""

    def make(at="", **changes):
        found = config_of(files, "", **changes)
        parts = {}
        for name in ("model_owner", "data_owner"):
            part, output = getattr(found, name), tmp_path / at / name
            parts[name] = dataclasses.replace(part, output=output)
        return dataclasses.replace(found, **parts)

    return make


def test_parties_choose_what_is_chosen_in_the_clear(files, config):
    run = Run(config(), config())
    expected, logits = in_the_clear(files)
    for result in run.results:
        assert list(result.rows) == expected.tolist()
        assert (result.engine, result.fraction_bits) == ("crypten", 16)
        assert result.terms == {"kind": "clear"}
        assert set(result.versions) == {"jaxsel", "clear"}
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    entropy = -(p * np.log(p)).sum(1).mean()
    assert run.results[0].appraisal == pytest.approx(entropy, abs=0.004)


def test_three_parties_choose_by_set(files, config, tmp_path):
    class Three(ClearEngine):
        roles, parties = (0, 1, 2), 3

    changed = config(leak="set", third_party=ThirdParty(output=tmp_path / "third"))
    run = Run(changed, changed, changed, engine=Three)
    expected, _ = in_the_clear(files)
    for rank, result in enumerate(run.results):
        assert list(result.rows) == expected.tolist()
        assert result.role == ROLES[rank]
        assert run.opened(rank) == [("rows", KEEPS[0]), ("rows", KEEPS[1]), ("mean", 1)]


def test_nothing_goes_between_steps_and_nothing_opens_but_by_the_ledger(config):
    run = Run(config(), config())
    left = (N - len(EXCLUDED), KEEPS[0])
    for rank, engine in run.engines.items():
        # After the terms: numbers, shares, openings, what the result shows as a hash,
        # and that it is written.
        ends = [message for kind, message in engine.log[-2:] if kind == "exchange"]
        assert [len(message) for message in ends] == [71, 7]
        assert run.ledgers[rank].uncounted == 78
        done = [kind for kind, _ in engine.log]
        assert done[:2] == ["exchange", "start"]
        assert done.count("exchange") == 3
        revealed = [
            int(np.prod(shape)) for kind, shape in engine.log if kind == "reveal"
        ]
        assert revealed == [size for _, size in run.opened(rank)]
        kinds = [kind for kind, _ in run.opened(rank)]
        assert set(kinds) == {"pivot", "mean"}
        assert kinds.count("mean") == 1
        assert max(revealed) < left[0]  # never a number for each score


def test_pivots_follow_the_seed(config, monkeypatch):
    seeds, choose = [], _party.choose

    def noted(*args, **options):
        seeds.append(options["seed"])
        return choose(*args, **options)

    monkeypatch.setattr(_party, "choose", noted)
    found = {5: [], 6: [], 7: []}
    for i, seed in enumerate((5, 6, 7, 5)):
        seeds.clear()
        each = config(at=str(i), seed=seed, appraisal=Appraisal())
        run = Run(each, each)
        assert run.results[0].rows == run.results[1].rows
        assert run.opened(0) == run.opened(1)
        assert len(set(seeds)) == 2  # of two phases, the same for both parties
        assert len(seeds) == 4
        found[seed].append((sorted(seeds), run.opened()))
    assert found[5][0] == found[5][1]
    assert len({str(drawn) for (drawn, _), *_ in found.values()}) == 3
    assert len({str(opened) for (_, opened), *_ in found.values()}) == 3


def test_a_margin_is_appraised_as_it_is(files, config):
    """Two classes by margin have the same secure scores as by entropy."""
    from jaxsel.proxy import Proxy, probe_manifest, with_bounds
    from mpc_bridge._export import export, read_manifest, read_weights

    folder = files / "margin"
    weights = read_weights(files / "probe1", read_manifest(files / "probe1"))
    manifest = probe_manifest(width=5, n_classes=2, score="margin", secure="square")
    x = np.load(files / "x1.npy")
    proxy = with_bounds(Proxy.from_arrays(manifest, weights), x)
    export(proxy, folder)
    changed = config()
    phase = PhaseConfig(manifest=folder / "manifest.json", keep=KEEPS[1])
    changed = dataclasses.replace(
        changed,
        phases=(changed.phases[0], phase),
        model_owner=dataclasses.replace(
            changed.model_owner, weights=(files / "probe0", folder)
        ),
    )
    model, data = Run(changed, changed).results
    logits = proxy.logits(x[list(model.rows)])
    mean = -((logits[:, 1] - logits[:, 0]) ** 2).mean()
    assert mean < 0  # an entropy is positive
    assert model.appraisal == data.appraisal == pytest.approx(mean, rel=1e-5)


def test_samples_that_leave_the_bounds_are_told_before_the_choice(files, config):
    """An encoder on an engine that watches: one outlier is warned of, three stop."""
    from proxy.random_proxies import encoder

    from mpc_bridge._config import Inputs
    from mpc_bridge._export import export

    class Watching(ClearEngine):
        watches, exact_cut = True, True

    made, x = encoder(1, "quadratic", "exact")
    folder = export(made, files / "encoder")
    bound = made.manifest.fixed_point.bounds["inputs"]
    left = np.setdiff1d(np.arange(N), EXCLUDED)
    for wild, at in ((1, "one"), (len(left) // 10, "many")):
        rows = np.concatenate([x] * -(-N // len(x)))[:N].copy()
        rows[left[:wild]] = np.sign(rows[left[:wild]]) * bound
        np.save(files / f"{at}.npy", rows)
        changed = config(at=at)
        manifest = folder / "manifest.json"
        changed = dataclasses.replace(
            changed,
            phases=(PhaseConfig(manifest=manifest, keep=5),),
            appraisal=Appraisal(mode="none"),
            model_owner=dataclasses.replace(changed.model_owner, weights=(folder,)),
            data_owner=dataclasses.replace(
                changed.data_owner, inputs=(Inputs(x=files / f"{at}.npy"),)
            ),
        )
        run = Run(changed, changed, engine=Watching)
        said = f"phase 1: {wild} of {len(left)} samples make the proxy leave its bounds"
        for rank, result in enumerate(run.results):
            assert run.opened(rank)[0] == ("outside", 1)
            if at == "many":
                assert type(result) is SessionError, result
                assert said in str(result)
                assert len(run.opened(rank)) == 1
                continue
            assert any(each.startswith(said) for each in result.warnings)
            assert [phase.outside for phase in result.phases] == [1]
            assert left[0] not in result.rows


def threshold(config, value):
    appraisal = Appraisal(mode="threshold", threshold=value)
    return dataclasses.replace(config, appraisal=appraisal)


def session(config, **changes):
    changed = dataclasses.replace(config.session, **changes)
    return dataclasses.replace(config, session=changed)


def phases(config, **changes):
    first = dataclasses.replace(config.phases[0], **changes)
    return dataclasses.replace(config, phases=(first, *config.phases[1:]))


def refused(run, name):
    """Check that both parties name the only term that differs, and share nothing."""
    for result in run.results:
        assert type(result) is SessionError, result
        assert str(result).startswith(f"the parties do not agree: {name}"), result
        assert ";" not in str(result)
    for engine in run.engines.values():
        assert [kind for kind, _ in engine.log] == ["exchange"]
    for rank, config in enumerate(run.configs):
        assert not (config.part(rank).output / "result.json").exists()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("session.name", lambda c: session(c, name="others")),
        ("session.seed", lambda c: session(c, seed=6)),
        ("session.leak", lambda c: session(c, leak="set")),
        ("session.engine", lambda c: session(c, engine="spu-aby3")),
        ("session.exclude", lambda c: session(c, exclude=(*EXCLUDED[:2], 51))),
        ("phases[0].keep", lambda c: phases(c, keep=24)),
        ("phases[0].batch_size", lambda c: phases(c, batch_size=15)),
        ("appraisal.mode", lambda c: dataclasses.replace(c, appraisal=Appraisal())),
        ("appraisal.threshold", lambda c: threshold(c, 0.5)),
    ],
)
def test_each_term_must_be_the_same(config, name, change):
    first = config()
    if name == "appraisal.threshold":
        first = threshold(first, 0.25)
    refused(Run(first, change(config())), name)


def test_the_number_of_samples_must_be_the_same(config, tmp_path):
    longer = config(samples=N + 1)
    inputs = []
    for i, given in enumerate(longer.data_owner.inputs):
        x, path = np.load(given.x), tmp_path / f"x{i}.npy"
        np.save(path, np.r_[x, x[:1]])
        inputs.append(dataclasses.replace(given, x=path))
    part = dataclasses.replace(longer.data_owner, inputs=tuple(inputs))
    run = Run(config(), dataclasses.replace(longer, data_owner=part))
    for result in run.results:
        assert "session.samples: the model owner has 60, the data own" in str(result)
        assert "session.exclude differs" in str(result)  # the rows that are left


@pytest.mark.parametrize(
    ("method", "name"), [("terms", "kind"), ("versions", "version of clear")]
)
def test_the_engine_must_be_the_same(config, method, name, monkeypatch):
    own = getattr(ClearEngine if method == "terms" else Party, method)

    def other(self):
        found = own(self)
        key = name.rpartition(" ")[-1]
        return found if self.rank else {**found, key: "another"}

    monkeypatch.setattr(ClearEngine if method == "terms" else Party, method, other)
    refused(Run(config(), config()), name)


def test_the_smallest_offer_counts(config):
    class Few(ClearEngine):
        most_bits = 17

    large, small = config(), config()
    part = dataclasses.replace(small.data_owner, memory=5 * 1024)
    run = Run(large, dataclasses.replace(small, data_owner=part), engine=Few)
    for rank, result in enumerate(run.results):
        assert [phase.batch_size for phase in result.phases] == [16, 5]
        assert result.fraction_bits == 17
        assert ("start", 17) in run.engines[rank].log


def test_weights_that_need_room_lower_the_fraction_bits(files, config):
    from jaxsel.proxy import check_ring
    from mpc_bridge._export import read_manifest, read_weights

    class Many(ClearEngine):
        most_bits = 30

    model, data = Run(config(), config(), engine=Many).results
    bits = model.fraction_bits
    assert bits == data.fraction_bits
    manifests = [read_manifest(files / f"probe{i}") for i in range(2)]
    weights = [read_weights(files / f"probe{i}", m) for i, m in enumerate(manifests)]
    for manifest, arrays in zip(manifests, weights, strict=True):
        check_ring(manifest, arrays, fraction_bits=bits)
    said = []
    for manifest, arrays in zip(manifests, weights, strict=True):
        try:
            check_ring(manifest, arrays, fraction_bits=bits + 1)
        except ValueError as error:
            said.append(str(error))
    assert f"with {bits + 1} fraction bits" in " ".join(said)


def test_choices_that_need_room_lower_the_fraction_bits(files, config):
    """By "set" rows go below the scores, and an appraisal sums those of the chosen."""
    from mpc_bridge._holdings import check_choices, read_public

    by_rank, by_set = config(), config(leak="set")
    public = read_public(by_rank)
    largest = [m.fixed_point.bounds["score"] for m in public.manifests]

    def most(of, **changes):
        of = dataclasses.replace(of, **changes)
        bits = 62
        while True:
            try:
                check_choices(of, public, ClearEngine, bits)
            except ValueError:
                bits -= 1
            else:
                return bits

    none = Appraisal(mode="none")
    # The rows that are left have 6 bits; two scores differ by twice the largest.
    assert most(by_rank, appraisal=none) == 61 - 1 - np.log2(max(largest))
    assert most(by_set, appraisal=none) == 61 - max(
        6 + np.log2(largest[0]), (KEEPS[0] - 1).bit_length() + np.log2(largest[1])
    )
    summed = np.log2(KEEPS[1] * largest[1])
    assert most(by_rank) == 61 - np.floor(max(1 + np.log2(max(largest)), summed))
    with pytest.raises(ValueError, match="score: a score with its row below may"):
        check_choices(by_set, public, ClearEngine, 61)


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        ({"batches": [1], "fraction bits": 16}, "batches must be one for each phase"),
        ({"batches": "12", "fraction bits": 16}, "batches must be one for each phase"),
        ({"batches": [1, 0], "fraction bits": 16}, "batches must be whole numbers"),
        ({"batches": [1, True], "fraction bits": 16}, "batches must be whole numbers"),
        (
            {"batches": [1, 2], "fraction bits": 7},
            "fraction bits must be",
        ),
        ({"batches": [1, 2], "fraction bits": 31}, "fraction bits must be"),
        ({"batches": [1, 2], "fraction bits": "\x1b" * 999}, "fraction bits must be"),
        ({"batches": [1, 2]}, "fraction bits must be"),
    ],
)
def test_wrong_offers_are_refused(config, offers, message, monkeypatch):
    own = Party.offers
    monkeypatch.setattr(
        Party, "offers", lambda self, engine: offers if self.rank else own(self, engine)
    )
    run = Run(config(), config())
    for result in run.results:
        assert type(result) is SessionError
        assert message in str(result)
        assert str(result).isprintable()
        assert len(str(result)) < 200
    assert not any(kind == "share" for kind, _ in run.engines[0].log)


def test_a_result_is_written_by_all_or_by_none(config, monkeypatch):
    class Unwritten(ClearEngine):
        def exchange(self, message):
            if self.rank and ("start", 16) in self.log:  # the run is over
                raise OSError("no room")
            return super().exchange(message)

    run = Run(config(), config(), engine=Unwritten)
    assert str(run.results[0]) == "party 1 is gone"
    assert str(run.results[1]) == "no room"
    for rank, each in enumerate(run.configs):
        assert not list(each.part(rank).output.glob("*result*"))
    whole = Run(config(at="again"), config(at="again"))
    for rank, result in enumerate(whole.results):
        path = whole.configs[rank].part(rank).output / "result.json"
        assert path.read_text() == result.to_json()


def test_weights_that_leave_the_ring_are_refused_before_anybody_hears(
    files, config, tmp_path
):
    from jaxsel.proxy import Proxy, save_proxy
    from mpc_bridge._export import read_manifest, read_weights

    manifest = read_manifest(files / "probe1")
    weights = read_weights(files / "probe1", manifest)
    weights["head.0.weight"] = weights["head.0.weight"] + 2.0**15
    save_proxy(Proxy.from_arrays(manifest, weights), tmp_path / "large")
    changed = config()
    part = dataclasses.replace(
        changed.model_owner, weights=(files / "probe0", tmp_path / "large")
    )
    changed = dataclasses.replace(changed, model_owner=part)
    party = Party("model-owner", 0, ClearEngine, changed, force=False, progress=False)
    with pytest.raises(Refused, match=r"head.logits.weight: a weight") as raised:
        party.prepare()
    assert raised.value.rule == (
        "model_owner.weights[1] must hold the manifest's weights"
    )


def test_weights_that_are_replaced_during_a_run_are_not_read(files, config, tmp_path):
    """What was checked and hashed is what is shared."""
    changed = config()
    own = [tmp_path / f"probe{i}" for i in range(2)]
    for i, folder in enumerate(own):
        shutil.copytree(files / f"probe{i}", folder)
    part = dataclasses.replace(changed.model_owner, weights=tuple(own))
    changed = dataclasses.replace(changed, model_owner=part)
    expected, _ = in_the_clear(files)

    class Replaced(ClearEngine):
        def start(self, fraction_bits):
            super().start(fraction_bits)
            for folder in own:
                folder.joinpath("weights.safetensors").write_bytes(b"another proxy")

    model, data = Run(changed, changed, engine=Replaced).results
    assert list(model.rows) == list(data.rows) == expected.tolist()


def test_a_flipped_bit_of_the_weights_is_refused_before_anything_is_shared(
    files, config, tmp_path
):
    folder = tmp_path / "probe1"
    shutil.copytree(files / "probe1", folder)
    path = folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1  # the last place of a mantissa: still a finite weight
    path.write_bytes(content)
    changed = config()
    part = dataclasses.replace(changed.model_owner, weights=(files / "probe0", folder))
    changed = dataclasses.replace(changed, model_owner=part)
    party = Party("model-owner", 0, ClearEngine, changed, force=False, progress=False)
    with pytest.raises(Refused, match="were changed since") as raised:
        party.prepare()
    assert raised.value.rule == (
        "model_owner.weights[1] must hold the manifest's weights"
    )


def test_a_proxy_that_does_not_fit_the_engine_is_not_shared(files):
    from mpc_bridge._scoring import share_proxy

    def share(rank, room):
        engine = ClearEngine(rank, room)
        engine.start(30)
        source = files / "probe1"
        with pytest.raises(ValueError, match="with 30 fraction bits in a ring of 64"):
            share_proxy(source, ledger=Ledger(engine))
        return engine.log

    assert together(1, share) == [[("start", 30)]]
