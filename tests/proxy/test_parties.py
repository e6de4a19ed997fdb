"""Steps of one party each: together they are `select`, and what crosses is public."""

import dataclasses
import json
import pickle

import jax
import numpy as np
import pytest
from test_build import TEXT, target
from test_phases import BUDGET, CLASSES, KEY, OTHERS, POOL, SCHEDULE, N, run

from jaxsel.models import Tokens
from jaxsel.proxy import (
    Bootstrap,
    DataOwner,
    ModelOwner,
    Offer,
    Phase,
    Plan,
    ProbeSpec,
    Published,
    Samples,
    Training,
)

SECRET = jax.random.key(5)  # that of `run`
PROBE = {
    "schedule": (Phase(ProbeSpec()),),
    "target": None,
    "n_classes": 3,
    "kind": "margin",
}
WHOLE = {"schedule": SCHEDULE, "target": target(TEXT)}


def model_owner(**options):
    given = {"budget": BUDGET, "secret": SECRET, "bootstrap": 0.1, "distil": OTHERS}
    return ModelOwner(**given | {"tuning": Training(1, 8, 1e-3)} | options)


def labels(rows):
    return CLASSES[rows]


def sent(message):
    """Return a message as the other party gets it: a copy that shares nothing."""
    return pickle.loads(pickle.dumps(message))


def play(owner, seller, key=KEY):
    """Return the messages of a purchase, and what the model owner has prepared."""
    offer = sent(seller.offer())
    plan = sent(owner.plan(offer))
    sold = sent(seller.sell(plan, labels, key=key))
    prepared = owner.learn(plan, sold, key=key).prepare()
    published = Published.from_json(prepared.published.to_json())
    assert published == prepared.published
    return (offer, plan, sold, published), prepared


@pytest.mark.parametrize(
    "options",
    [PROBE, pytest.param(WHOLE, marks=pytest.mark.slow)],
    ids=["probe", "all"],
)
@pytest.mark.left_out
def test_select_is_the_steps_of_both(options):
    found = run(**options)
    seller = DataOwner(pool=POOL, base=options["target"])
    messages, prepared = play(model_owner(**options), seller)
    left = np.setdiff1d(np.arange(N), messages[2].rows)
    for i, (proxy, keep) in enumerate(
        zip(prepared.proxies, messages[3].keeps, strict=True)
    ):
        assert proxy.manifest == found.proxies[i].manifest
        arrays = found.proxies[i].arrays()
        assert proxy.arrays().keys() == arrays.keys()
        for name, array in proxy.arrays().items():
            np.testing.assert_array_equal(array, arrays[name])
        left = seller.choose(proxy, left, keep)
        np.testing.assert_array_equal(left, found.survivors[i])
    np.testing.assert_array_equal(messages[2].rows, found.bootstrap)
    np.testing.assert_array_equal(messages[2].labels, found.labels)
    assert found.prepared.published == prepared.published


def test_an_offer_shows_shapes_only():
    other = Samples(jax.tree.map(np.zeros_like, POOL.inputs), 0 * POOL.features)
    offer = DataOwner(pool=POOL, base=target(TEXT)).offer()
    assert offer == DataOwner(pool=other).offer()
    expected = Offer(n=N, tokens=True, inputs=((8,), (8,)), features=(5,))
    assert offer == expected


def test_a_plan_shows_nothing_of_a_models_parameters():
    """It is the same with other parameters, other samples and another secret key."""
    offer = DataOwner(pool=POOL).offer()
    plan = model_owner(**WHOLE).plan(offer)
    moved = dataclasses.replace(
        target(TEXT), params=jax.tree.map(lambda p: p + 1, target(TEXT).params)
    )
    own = Samples(
        Tokens(np.zeros_like(OTHERS.inputs.ids), OTHERS.inputs.mask),
        np.zeros_like(OTHERS.features),
    )
    other = model_owner(
        schedule=SCHEDULE, target=moved, distil=own, secret=jax.random.key(6)
    )
    assert other.plan(offer) == plan
    assert plan.keeps == (100, 60, 20)
    assert {manifest.fixed_point.bounds == {} for manifest in plan.manifests} == {True}


def test_a_bootstrap_set_shows_nothing_of_other_samples():
    plan = model_owner(**PROBE).plan(DataOwner(pool=POOL).offer())
    sold = DataOwner(pool=POOL).sell(plan, labels, key=KEY)
    kept = np.isin(np.arange(N), sold.rows)

    def hide(array):
        keep = kept.reshape(-1, *[1] * (array.ndim - 1))
        return np.where(keep, array, np.zeros_like(array))

    other = jax.tree.map(hide, (POOL.inputs, POOL.features))
    changed = np.where(kept, CLASSES, 0)
    again = DataOwner(pool=Samples(*other)).sell(
        plan, lambda rows: changed[rows], key=KEY
    )
    assert pickle.dumps(again) == pickle.dumps(sold)


def test_what_is_published_shows_architecture_and_bounds():
    """With other parameters only the bounds differ, which are powers of two."""
    seller = DataOwner(pool=POOL)
    published = []
    for l2 in (1e-3, 1.0):
        probe = Phase(ProbeSpec(l2=l2))
        owner = model_owner(**PROBE | {"schedule": (probe,)})
        published.append(play(owner, seller)[0][3])
    bounds = [one.manifests[0].fixed_point.bounds for one in published]
    assert bounds[0] != bounds[1]
    for values in bounds:
        assert all(np.log2(value) % 1 == 0 for value in values.values())
    plain = [json.loads(one.to_json()) for one in published]
    for document in plain:
        for manifest in document["manifests"]:
            del manifest["fixed_point"]["bounds"]
    assert plain[0] == plain[1]


def test_nothing_secret_is_shown_by_a_repr():
    owner = model_owner(**WHOLE)
    seller = DataOwner(pool=POOL, base=target(TEXT))
    plan = owner.plan(seller.offer())
    sold = seller.sell(plan, labels, key=KEY)
    for thing, hidden in ((owner, ("secret", "target", "distil")), (seller, ("pool",))):
        assert not [name for name in hidden if f"{name}=" in repr(thing)]
    assert "samples=" not in repr(sold)


def test_steps_refuse_what_does_not_fit():
    owner, seller = model_owner(**PROBE), DataOwner(pool=POOL)
    plan = owner.plan(seller.offer())
    sold = seller.sell(plan, labels, key=KEY)
    with pytest.raises(ValueError, match="rows that the joint key draws"):
        owner.learn(plan, sold, key=jax.random.key(4))
    wrong = dataclasses.replace(sold, labels=sold.labels + 1)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 3\)"):
        owner.learn(plan, wrong, key=KEY)
    with pytest.raises(ValueError, match="labels must lie"):
        seller.sell(plan, lambda rows: CLASSES[rows] + 1, key=KEY)
    with pytest.raises(ValueError, match="for the pool's 60 samples, got 200"):
        DataOwner(pool=OTHERS).sell(plan, labels, key=KEY)
    flat = Samples(features=np.zeros(N, np.float32))
    with pytest.raises(ValueError, match=r"pool.features must have shape \[n, d\]"):
        DataOwner(pool=flat).offer()
    with pytest.raises(ValueError, match="pool.inputs|inputs must be tokens"):
        DataOwner(pool=Samples(np.zeros((3, 99), np.int32)), base=target(TEXT))
    ids = Samples(np.asarray(POOL.inputs.ids))
    with pytest.raises(TypeError, match="pool.inputs must be Tokens, got ndarray"):
        DataOwner(pool=ids, base=target(TEXT))
    (manifest,) = plan.manifests
    with pytest.raises(ValueError, match="samples must have features for a probe"):
        DataOwner(pool=Samples(POOL.inputs)).proxy_inputs(manifest)
    whole = model_owner(**WHOLE).plan(seller.offer())
    with pytest.raises(ValueError, match="base be given"):
        seller.proxy_inputs(whole.manifests[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"bootstrap": (3, 3)}, r"bootstrap must hold distinct rows in \[0, 200\)"),
        ({"bootstrap": (3, 200)}, "got 2 rows up to 200"),
        ({"keeps": ()}, "manifests must be one for each of keeps"),
        ({"keeps": (9, 5)}, "got 1 for 2"),
        ({"keeps": (180,)}, r"keeps\[0\] must be below the 180 rows before it"),
    ],
)
def test_published_phases_are_checked(change, message):
    offer = DataOwner(pool=POOL).offer()
    manifests = model_owner(**PROBE).plan(offer).manifests
    fields = {"n": N, "bootstrap": tuple(range(20)), "keeps": (20,)}
    published = Published(manifests=manifests, **fields)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(published, **change)
    for name in ("n", "keeps"):
        document = json.loads(published.to_json())
        del document[name]
        with pytest.raises(ValueError, match=f"^{name} is missing"):
            Published.from_json(json.dumps(document))
    with pytest.raises(ValueError, match="format must be 'jaxsel phases'"):
        Published.from_json(manifests[0].to_json())
    with pytest.raises(ValueError, match="the phases' text is no JSON"):
        Published.from_json("n: 3")


def test_messages_name_themselves():
    kinds = (Offer, Plan, Bootstrap, Published)
    assert all(kind.__dataclass_params__.frozen for kind in kinds)
    assert all("Reveals" in kind.__doc__ for kind in kinds)
