"""A file of each format that the project writes, and how it is read."""

import functools
import types

import jax
import numpy as np
import pandas as pd
import pytest

from jaxsel import Selection, Values, gradients, market, proxy
from jaxsel._runs.checkpoints import Checkpoints
from jaxsel.filter import (
    Counted,
    Question,
    SecureClient,
    Verdict,
    count_losses,
)
from jaxsel.tables import TableEncoder
from mpc_bridge import Result
from mpc_bridge._pools import Pools
from mpc_bridge._read_config import read_config
from mpc_bridge._result import PhaseResult, Step

TASK = "0123456789abcdef" * 2
X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.arange(6) % 2
OWNERS = ("ada", "bo", "cy", "di")

RUN = """
[session]
name = "reviews"
seed = 7
samples = 42000
exclude = [1, 2]
timeout = 60
[parties.model_owner]
name = "Trainer"
address = "10.0.0.5:29500"
[parties.data_owner]
name = "Clinic"
address = "10.0.0.6:29500"
[network]
bandwidth = 12.5
latency = 20
[[phases]]
manifest = "probe/manifest.json"
keep = 12600
[appraisal]
mode = "threshold"
threshold = 0.4
[model_owner]
weights = ["probe"]
output = "out"
memory = "2 GiB"
certificates = "certs"
"""


@functools.cache
def secure_messages():
    clients = [
        SecureClient(
            Counted(task=TASK, round=1, client=name, counts=np.arange(5, dtype="u4")), 3
        )
        for name in OWNERS
    ]
    keys = [client.keys() for client in clients]
    shares = [client.share(keys) for client in clients]
    masked = [client.masked(shares) for client in clients]
    state = clients[0].to_bytes()
    revealed = clients[0].reveal(OWNERS)
    edges = np.arange(4, dtype=np.float32)
    question = Question(task=TASK, round=1, limit=9, edges=edges)
    return {
        "keys": keys[0],
        "shares": shares[0],
        "masked": masked[0],
        "revealed": revealed,
        "question": question,
        "counts": count_losses(question, [0.5, 1.5], client="ada"),
        "verdict": Verdict(task=TASK, value=np.ones(1, np.float32)),
        "client": state,
    }


@functools.cache
def valued():
    asked = market.ask_values(X, Y, radius=1.0, owners=OWNERS)
    owners = [
        market.ValueOwner(asked, X, Y, owner=name, max_epsilon=None) for name in OWNERS
    ]
    keys = [owner.keys() for owner in owners]
    shares = [owner.share(keys) for owner in owners]
    masked = [owner.masked(shares) for owner in owners]
    left = asked.survivors(masked)
    opened = [owner.reveal(left) for owner in owners[1:]]
    sums = market.sum_counts(asked, keys, shares, masked, opened)
    return asked, owners[0], left, sums


def of_message(name):
    def make(folder):
        message = secure_messages()[name]
        return message.save(folder / name), type(message).load

    return make


def secure_state(folder):
    path = folder / "client"
    path.write_bytes(secure_messages()["client"])
    return path, lambda path: SecureClient.from_bytes(path.read_bytes()).to_bytes()


def owner_state(folder):
    asked, owner = valued()[:2]

    def read(path):
        again = market.ValueOwner.load(path, asked)
        facts = (again.owner, again._told, again._counts, again._sent, again._data)
        return *facts, again._client and again._client.to_bytes()

    return owner.save(folder / "owner"), read


def of_valuation(at):
    def make(folder):
        asked, message = valued()[0], valued()[at]
        load = type(message).load
        read = load if at == 0 else lambda path: load(path, asked)
        return message.save(folder / "sent"), read

    return make


def values(folder):
    made = Values(
        values=jax.numpy.arange(6.0),
        count=jax.numpy.int32(3),
        method="knn_shapley(k=5)",
        index=tuple("abcdef"),
    )
    return made.save(folder / "values"), Values.load


def selection(folder):
    made = Selection(
        indices=jax.numpy.arange(4),
        weights=jax.numpy.ones(4),
        n_valid=jax.numpy.int32(3),
    )
    return made.save(folder / "selection"), Selection.load


def asked_and_sent():
    asked = market.make_request(X, Y, budget=2, key=jax.random.key(0))
    return asked, market.answer(asked, X + 1, Y, owner="north")


def request(folder):
    return asked_and_sent()[0].save(folder / "request"), market.Request.load


def answer(folder):
    asked, sent = asked_and_sent()
    return sent.save(folder / "answer"), lambda path: market.Answer.load(path, asked)


def budget(folder):
    pytest.importorskip("dp_accounting")
    path = folder / "budget.json"
    made = market.PrivacyBudget(path)
    options = {
        "task": TASK,
        "variance": 3,
        "epsilon": 0.1234567,
        "delta": np.ones(1) / 9**9,
    }
    for _ in range(3):
        made.spend(types.SimpleNamespace(**options))
    return path, lambda path: market.PrivacyBudget(path).spent


def a_result(folder):
    cost = dict.fromkeys(
        ("rounds", "bytes", "dealer_rounds", "dealer_bytes", "sent"), 7
    )
    step = Step(phase="phase 1", place="choice", name="sum", seconds=0.5, **cost)
    made = Result(
        role="data owner",
        session="reviews",
        engine="spu-cheetah",
        rows=(1, 5, 9),
        phases=(PhaseResult(samples=9, kept=3, batch_size=4, passes=2, comparisons=9),),
        appraisal=0.25,
        steps=(step, step),
        openings=(),
        fraction_bits=18,
        terms={"protocol": "cheetah"},
        versions={"jaxsel": "0.1"},
        warnings=("told",),
    )
    path = folder / "result.json"
    path.write_text(made.to_json())
    return path, lambda path: Result.read(path.parent)


@functools.cache
def probe():
    manifest = proxy.probe_manifest(width=2, n_classes=2)
    rng = np.random.default_rng(0)
    shapes = proxy.array_shapes(manifest)
    arrays = {name: rng.normal(size=s).astype("f4") for name, s in shapes.items()}
    return proxy.Proxy.from_arrays(manifest, arrays)


def weights(folder):
    made = probe()
    path = proxy.save_proxy(made, folder / "proxy") / "weights.safetensors"

    def read(path):
        found = proxy.load_proxy(path.parent).arrays()
        return {name: np.asarray(array) for name, array in found.items()}

    return path, read


def manifest(folder):
    path = folder / "manifest.json"
    path.write_text(probe().manifest.to_json())
    return path, proxy.read_manifest


def published(folder):
    path = folder / "published.json"
    made = proxy.Published(
        n=50, bootstrap=(3, 4), keeps=(10,), manifests=(probe().manifest,)
    )
    path.write_text(made.to_json())
    return path, lambda path: proxy.Published.from_json(path.read_text("utf-8"))


def opening(folder):
    """An opening of a joint key, judged by the commitment to it."""
    path, theirs = folder / "opening.json", proxy.KeyShare("data owner")
    ours = proxy.KeyShare("model owner")
    ours.open(theirs.commitment)
    path.write_text(theirs.open(ours.commitment).to_json())
    message = lambda path: proxy.KeyOpening.from_json(path.read_text("utf-8"))
    return path, lambda path: jax.random.key_data(ours.key(message(path)))


def encoder(folder):
    path = folder / "encoder.json"
    table = pd.DataFrame({"a": [1.5, 2.0, None], "b": ["x", "y", "x"]})
    path.write_text(TableEncoder().fit(table).to_json())
    return path, lambda path: TableEncoder.from_json(path.read_text("utf-8")).to_json()


def config(folder):
    path = folder / "run.toml"
    path.write_text(RUN)
    return path, read_config


def pools(folder):
    made = Pools(folder / "pools")
    digests = made.digests(lambda part: (X[part], None), len(X))
    made.remember(digests, name="first", session="sha256:one")
    warn = lambda path: made.warnings(digests[1:], few=9, session="two", resumed=False)
    return next((folder / "pools").glob("*.npz")), warn


def checkpoint(folder):
    saved = Checkpoints(folder / "run", "a run")
    saved.save(3, {"values": X, "rows": np.arange(40)})
    return folder / "run", lambda path: Checkpoints(path, "a run").load_arrays()


def _loss(weights, example):
    return jax.numpy.sum((example @ weights) ** 2)


def store(folder):
    made = gradients.write_store(
        folder / "store", _loss, np.eye(2), X, key=jax.random.key(0), shard_size=4
    )

    def read(path):
        rows = gradients.open_store(path).take(slice(None))
        return [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]

    return made.folder, read


FORMATS = {
    "values": values,
    "selection": selection,
    "request": request,
    "answer": answer,
    "valuation": of_valuation(0),
    "survivors": of_valuation(2),
    "sums": of_valuation(3),
    "owner": owner_state,
    **{n: of_message(n) for n in secure_messages() if n != "client"},
    "client": secure_state,
    "budget": budget,
    "result": a_result,
    "weights": weights,
    "manifest": manifest,
    "published": published,
    "opening": opening,
    "encoder": encoder,
    "run.toml": config,
    "pools": pools,
    "checkpoint": checkpoint,
    "store": store,
}
