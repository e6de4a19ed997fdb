"""Filtering across clients: the central solver's choice, whoever drops out."""

import dataclasses
import functools
import re

import numpy as np
import pytest
from federated_cases import NAMES, answers, check, draw, spoil

from jaxsel.filter import (
    Counted,
    Question,
    Verdict,
    count_losses,
    federated_threshold,
    filter_server,
    loss_threshold,
    secure_sum,
)


@pytest.mark.parametrize("secure", [None, secure_sum], ids=["clear", "secure"])
@pytest.mark.every(2)
def test_same_as_central(secure):
    for seed in range(25 if secure else 300):
        v, own = draw(seed)
        server = federated_threshold(v, own, secure=secure)
        assert not server.left_out
        check(server, v, own)


@pytest.mark.left_out
def test_float64():
    rng = np.random.default_rng(0)
    v, p = rng.gamma(1, 0.5, 50), rng.gamma(1, 1, 400)
    server = federated_threshold(v, {"a": p[:100], "b": p[100:]}, dtype=np.float64)
    check(server, v, {"a": p[:100], "b": p[100:]})
    assert server.verdict.value.dtype == np.float64


def test_value_lies_between_losses():
    v, own = draw(0, n=200)
    p = np.concatenate([*own.values()])
    server, central = federated_threshold(v, own), loss_threshold(v, p)
    following = p[p > central.value].min()
    assert central.value <= server.threshold.value < following
    with pytest.raises(ValueError, match="with the clients"):
        server.threshold.band(None)


def test_messages_are_small():
    rng = np.random.default_rng(0)
    v = rng.gamma(1, 0.5, 1000)
    own = {str(i): rng.gamma(1, 1, 1000) for i in range(20)}
    server = filter_server(v, [*own])
    while (question := server.question) is not None:
        sent = answers(question, own, server.clients)
        assert max(one.nbytes for one in sent) < 10_000
        assert question.nbytes < 10_000
        server = server.receive(sent)
    assert server.round <= 4


def test_dropout_in_every_round():
    for seed in range(40):
        v, own = draw(seed, n=30)
        server, lost = filter_server(v, NAMES), []
        while (question := server.question) is not None:
            there = list(server.clients)
            if len(there) > 1:
                lost.append(there.pop())
            server = server.receive(answers(question, own, there))
        assert set(server.left_out) == set(lost)
        assert all("no answer" in why for why in server.left_out.values())
        check(server, v, own)


def test_dropout_in_every_round_under_secure_aggregation():
    names = [f"c{i}" for i in range(12)]
    for seed in (0, 2, 4, 6):
        v, own = draw(seed, n=20, clients=names)
        server = filter_server(v, names)
        while (question := server.question) is not None:
            sent = answers(question, own, server.clients)
            silent = server.clients[-1:] if len(server.clients) > 6 else ()
            server = server.receive_sum(*secure_sum(sent, silent=silent), again=True)
        assert len(server.left_out) >= 2
        check(server, v, own)


def test_dropping_out_later_shows_the_counts():
    """Two sums at the same edges differ by what the one who left had answered."""
    v, own = draw(2, n=30)
    server = filter_server(v, NAMES)
    first = answers(server.question, own, NAMES)
    server = server.receive_sum(*secure_sum(first))
    second = secure_sum(answers(server.question, own, NAMES), silent=["di"])
    with pytest.raises(ValueError, match=r"\['di'\] have dropped out .* again=True"):
        server.receive_sum(*second)
    server = server.receive_sum(*second, again=True)
    total, _ = secure_sum(first)
    rest, _ = secure_sum(answers(server.question, own, server.clients))
    np.testing.assert_array_equal(total - rest, first[-1].counts)
    drops = iter([(), ("di",)])
    secure = lambda sent: secure_sum(sent, silent=next(drops))
    with pytest.raises(ValueError, match="have dropped out"):
        federated_threshold(v, own, secure=secure)


def test_losses_beyond_the_edges_type():
    """Finite in float64, but not where they are counted."""
    with pytest.raises(ValueError, match=r"entry 0 is 1e\+39, too large for float32"):
        federated_threshold([1.0, 2.0], {"a": [1e39, 1e39]})
    with pytest.raises(ValueError, match=r"entry 1 is 1e\+39, too large for float32"):
        filter_server([1.0, 1e39], ["a"])
    found = federated_threshold([1.0, 2.0], {"a": [1e39, 1e39]}, dtype="float64")
    assert found.threshold.n_kept == 2
    with pytest.raises(ValueError, match="too large for float32"):
        federated_threshold([1.0], {"a": [1.0]}).verdict.keeps([1e39])
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got 'foo'"):
        filter_server([1.0], ["a"], dtype="foo")


def test_losses_between_neighbouring_floats():
    """A client that claims losses where no float lies is left out in the end."""
    v, own = [0.2, 0.5, 1.0], {"ada": np.float32([1.3])}
    server = filter_server(v, ["ada", "eve"])
    for _ in range(9):
        if (question := server.question) is None:
            break
        honest = count_losses(question, own["ada"], client="ada")
        below = 2 * (question.edges > np.float32(1.2))
        lies = np.append(np.repeat(below, 2), 2).astype(np.uint32)
        false = dataclasses.replace(honest, client="eve", counts=lies)
        server = server.receive([honest, false])
    assert server.question is None
    assert list(server.left_out) == ["eve"]
    assert "neighbouring floats" in server.left_out["eve"]
    check(server, v, own)


@pytest.mark.parametrize("counts", [[1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
def test_losses_beyond_all_floats(counts):
    most = np.finfo(np.float32).max
    server = filter_server([-most, most], ["ada", "eve"])
    honest = count_losses(server.question, [0.0], client="ada")
    false = np.array(counts, np.uint32)
    server = server.receive([honest, spoil(honest, client="eve", counts=false)])
    assert "counts must be of finite losses" in server.left_out["eve"]


def counts_at(counted, place, value, dtype=np.int64):
    counts = counted.counts.astype(dtype)
    counts[place] = value
    return spoil(counted, counts=counts)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: counts_at(c, 0, -1), "between 0 and .* got -1"),
        (lambda c: counts_at(c, -1, 2**40), "between 0 and .* got 1099511627776"),
        (lambda c: counts_at(c, 1, 29), "must not fall"),
        (lambda c: counts_at(c, 1, c.counts[0] - 1), "must not fall"),
        (lambda c: spoil(c, counts=c.counts[:-1]), "counts must be"),
        (lambda c: spoil(c, round=2), "another question"),
        (lambda c: spoil(c, task="0" * 32), "another question"),
    ],
)
def test_impossible_counts_are_named_and_left_out(change, why):
    v, own = [0.2, 0.5, 1.0], draw(2, n=30)[1]
    server = filter_server(v, NAMES)
    sent = answers(server.question, own, NAMES)
    sent[1] = change(sent[1])
    server = server.receive(sent)
    assert server.clients == ("ada", "cy", "di")
    assert [*server.left_out] == ["bo"]
    assert re.search(why, server.left_out["bo"]), server.left_out
    while (question := server.question) is not None:
        server = server.receive(answers(question, own, server.clients))
    check(server, v, own)


def test_contradictions_between_rounds():
    v, own = [0.2, 0.5, 1.0], draw(2, n=30)[1]
    server = filter_server(v, NAMES)
    server = server.receive(answers(server.question, own, NAMES))
    assert server.question is not None
    sent = answers(server.question, own, NAMES)
    sent[0] = counts_at(sent[0], -1, len(own["ada"]) + 1)
    n = len(own["bo"])
    none = np.full_like(sent[1].counts, n if server.question.edges[0] < 0.2 else 0)
    sent[1] = counts_at(spoil(sent[1], counts=none), -1, n)
    server = server.receive(sent)
    assert "same number" in server.left_out["ada"]
    assert "must not fall" in server.left_out["bo"]
    while (question := server.question) is not None:
        server = server.receive(answers(question, own, server.clients))
    check(server, v, own)


def test_strangers_and_repetitions():
    v, own = draw(2, n=30)
    server = filter_server(v, NAMES[:3])
    sent = answers(server.question, own, [*NAMES, "ada"])
    server = server.receive(sent)
    assert server.clients == ("bo", "cy")
    assert "not asked" in server.left_out["di"]
    why = dict(server.left_out)
    late = answers(server.question, own, ["ada", *server.clients])
    assert server.receive(late).left_out == why
    assert "twice" in server.left_out["ada"]


def test_nobody_left():
    v, _ = draw(2)
    with pytest.raises(ValueError, match="none is left: 'ada', round 1: no answer"):
        filter_server(v, ["ada"]).receive([])


def test_sum_must_be_possible():
    v, own = [0.2, 0.5, 1.0], draw(2, n=30)[1]
    server = filter_server(v, NAMES)
    total = sum(c.counts.astype(int) for c in answers(server.question, own, NAMES))
    for place, value in ((0, -1), (1, total[-1] - 1), (-1, 2**32)):
        wrong = total.copy()
        wrong[place] = value
        with pytest.raises(ValueError, match="counts must"):
            server.receive_sum(wrong, NAMES)
    with pytest.raises(ValueError, match="among those asked"):
        server.receive_sum(total, ["eve"])
    after = server.receive_sum(total, NAMES)
    assert (server.round, after.round) == (0, 1)


def test_sum_must_agree_with_those_before():
    v, own = [0.2, 0.5, 1.0], draw(2, n=3000)[1]
    server = filter_server(v, NAMES)
    summed = lambda question: sum(
        c.counts.astype(int) for c in answers(question, own, NAMES)
    )
    server = server.receive_sum(summed(server.question), NAMES)
    assert server.question is not None
    wrong = summed(server.question)
    wrong += 1  # possible by itself: one loss more of the smallest
    with pytest.raises(ValueError, match="counts must end with the same number"):
        server.receive_sum(wrong, NAMES)


def test_server_in_the_end():
    v, own = draw(1)
    server = federated_threshold(v, own)
    with pytest.raises(ValueError, match="there is no question"):
        server.receive([])
    with pytest.raises(ValueError, match="threshold is not known yet"):
        _ = filter_server(v, NAMES).verdict


@pytest.mark.parametrize("names", [[], ["a", "a"], ["\x1b[2J"], [""]])
def test_names(names):
    with pytest.raises(ValueError, match="name"):
        filter_server([1.0], names)


def test_files(tmp_path):
    v, own = draw(2, n=30)
    server = filter_server(v, NAMES)
    while (question := server.question) is not None:
        asked = Question.load(question.save(tmp_path / "question"))
        paths = [
            one.save(tmp_path / one.client)
            for one in answers(asked, own, server.clients)
        ]
        server = server.receive([Counted.load(path) for path in paths])
        for path in paths:
            assert path.stat().st_size < 12_000
    check(server, v, own)
    verdict = Verdict.load(server.verdict.save(tmp_path / "verdict"))
    assert verdict.value == server.verdict.value
    with pytest.raises(ValueError, match="it is no counts but holds 'question'"):
        Counted.load(tmp_path / "question.npz")


def test_bytes(tmp_path):
    """All that server and clients exchange passes through bytes, as files hold them."""
    v, own = draw(2, n=30)
    server = filter_server(v, NAMES)
    while (question := server.question) is not None:
        asked = Question.from_bytes(question.to_bytes())
        sent = [one.to_bytes() for one in answers(asked, own, server.clients)]
        server = server.receive([Counted.from_bytes(data) for data in sent])
    check(server, v, own)
    sent = server.verdict.to_bytes()
    assert sent == server.verdict.save(tmp_path / "verdict").read_bytes()
    assert Verdict.from_bytes(bytearray(sent)).value == server.verdict.value


def test_bytes_that_are_refused():
    question = filter_server([1.0], ["a"]).question
    data = question.to_bytes()
    with pytest.raises(
        ValueError, match="the message in bytes is refused: it is no counts"
    ):
        Counted.from_bytes(data)
    with pytest.raises(ValueError, match="more than max_bytes = 100"):
        Question.from_bytes(data, max_bytes=100)
    with pytest.raises(TypeError, match="data must be bytes, got str"):
        Question.from_bytes("question")
    for at in range(0, len(data), 7):
        spoilt = bytearray(data)
        spoilt[at] ^= 4
        with pytest.raises(ValueError, match="the message in bytes is refused"):
            Question.from_bytes(spoilt)


def test_client_refuses():
    question = filter_server([1.0], ["a"]).question
    small = dataclasses.replace(question, limit=1)
    with pytest.raises(ValueError, match="at most 1"):
        count_losses(small, [1.0, 2.0], client="a")
    with pytest.raises(ValueError, match="entry 0 is nan"):
        count_losses(question, [np.nan], client="a")
    assert count_losses(question, [], client="a").counts.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "edges",
    [np.zeros(2), np.array([1.0, 0.0]), np.array([np.inf]), np.array([1]), np.empty(0)],
)
def test_questions_must_ascend(edges):
    with pytest.raises(ValueError, match="edges must be finite, ascending"):
        Question(task="0" * 32, round=1, limit=5, edges=edges)


def test_a_limit_is_below_two_to_the_32():
    edges = np.array([0.0, 1.0])
    with pytest.raises(ValueError, match=r"limit must be below 2\^32, got 4294967296"):
        Question(task="0" * 32, round=1, limit=2**32, edges=edges)


@pytest.mark.parametrize(
    "value", [np.array([1]), np.array([1.0, 2.0]), np.array([np.nan]), [1.0]]
)
def test_a_verdict_is_one_finite_float(value):
    with pytest.raises(ValueError, match="value must be one finite float32 or float64"):
        Verdict(task="0" * 32, value=value)


def test_no_more_than_two_thirds_need_to_stay():
    v, own = draw(2, n=10)
    server = filter_server(v, NAMES)
    sent = answers(server.question, own, NAMES)
    total, left = secure_sum(sent, silent=["ada"])
    assert left == ["bo", "cy", "di"]
    np.testing.assert_array_equal(total, sum(c.counts.astype(int) for c in sent[1:]))
    with pytest.raises(ValueError, match="survivors must be 3 clients or more"):
        secure_sum(sent, silent=["ada", "bo"])
    secure = functools.partial(secure_sum, needed=2)
    with pytest.raises(ValueError, match="more than half"):
        secure(sent)
