"""What one client can claim, and how many losses it may have."""

import dataclasses

import numpy as np
import pytest
from federated_cases import NAMES, answers, check, draw, spoil

from jaxsel.filter import (
    Counted,
    Question,
    count_losses,
    federated_threshold,
    filter_server,
    secure_sum,
)


def crowd(n=50, clean=360, noise=240):
    """Draw benchmark losses and those of clients that all have as much noise."""
    rng = np.random.default_rng(0)
    own = {
        f"c{i}": np.append(rng.gamma(1, 0.3, clean), rng.gamma(4, 1, noise))
        for i in range(n)
    }
    return rng.gamma(1, 0.3, 200).astype(np.float32), own


def noise_kept(v, own, claim=None, *, at_zero=False, **options):
    """Return the share of others' noise that is kept if c0 claims losses, and who left.

    It claims them to be distributed like the benchmark's, or all to be 0.
    """
    server = filter_server(v, [*own], **options)
    ordered = np.sort(v)
    while (question := server.question) is not None:
        sent = answers(question, own, server.clients)
        if claim is not None and "c0" in server.clients:
            share = np.searchsorted(ordered, question.edges, "right") / len(v)
            counts = np.floor(claim * np.where(at_zero, 1.0, share)).astype(np.uint32)
            counts = np.append(np.repeat(counts, 2), np.uint32(claim))
            sent[0] = spoil(sent[0], counts=counts)
        server = server.receive(sent)
    kept = [server.verdict.keeps(own[name])[360:] for name in own if name != "c0"]
    return np.mean(kept), server.left_out


def test_a_client_that_claims_the_limit_is_left_out():
    """Without a cap all noise is kept, and nobody is named."""
    v, own = crowd()
    limit = filter_server(v, [*own]).question.limit
    whole, left_out = noise_kept(v, own, limit, max_losses=limit)
    assert whole == 1
    assert not left_out
    kept, left_out = noise_kept(v, own, limit)
    assert kept < 0.03
    assert [*left_out] == ["c0"]
    assert f"claims {limit} losses, more than 20 times the 600" in left_out["c0"]


def test_what_one_client_can_move():
    v, own = crowd()
    kept, left_out = noise_kept(v, own, 20 * 600)
    assert not left_out
    assert kept < 0.04
    assert [*noise_kept(v, own, 20 * 600 + 1)[1]] == ["c0"]
    # What moves the threshold furthest: many losses that nobody has a smaller one than.
    kept, left_out = noise_kept(v, own, 600, at_zero=True, max_losses=600)
    assert not left_out
    assert kept < 0.06
    kept, left_out = noise_kept(v, own, 601, at_zero=True, max_losses=600)
    assert "between 0 and 600, the limit, got 601" in left_out["c0"]


def test_the_cap_under_secure_aggregation():
    """Nobody sees a client's counts: the sum is held to what all may have together."""
    v, own = draw(2, n=30)  # and one more of the first client
    server = filter_server(v, NAMES, max_losses=31)
    sent = answers(server.question, own, NAMES)
    total = sum(one.counts.astype(int) for one in sent)
    with pytest.raises(ValueError, match="between 0 and 124, the limit, got 125"):
        server.receive_sum(total + 4, NAMES)
    with pytest.raises(ValueError, match="at most 30, the question's limit, got 31"):
        federated_threshold(v, own, secure=secure_sum, max_losses=30)
    check(federated_threshold(v, own, secure=secure_sum, max_losses=31), v, own)


def test_most_clients_may_have_no_losses():
    own = {"ada": np.float32([0.5, 1]), **{name: [] for name in NAMES[1:]}}
    server = federated_threshold([0.7], own)
    assert not server.left_out
    assert server.threshold.n == 2


@pytest.mark.parametrize("cap", [0, -1])
def test_max_losses(cap):
    with pytest.raises(ValueError, match="max_losses must be at least 1"):
        filter_server([1.0], ["a"], max_losses=cap)
    with pytest.raises(TypeError, match="max_losses must be a whole number"):
        filter_server([1.0], ["a"], max_losses=1.5)


def test_clients_without_losses_are_refused_at_once():
    server = filter_server([1.0], NAMES[:3])
    none = answers(server.question, dict.fromkeys(NAMES, []), NAMES[:2])
    with pytest.raises(ValueError, match="'ada', 'bo' have none, and others .* 'cy'"):
        server.receive(none)
    with pytest.raises(ValueError, match="clients must have losses, but 'ada'"):
        server.receive_sum(np.zeros(3, int), ["ada"])
    with pytest.raises(ValueError, match="clients must have losses"):
        federated_threshold([1.0], {"a": []})


def test_the_same_counts_where_an_edge_is_asked_for_again():
    """Counts that rise with the edges may still contradict each other."""
    server = filter_server([1.0, 2.0], ["ada", "eve"])
    before = np.float32([0.5, 1.0]), np.array([0, 0, 0, 1, 3])
    server = dataclasses.replace(server, answers={"ada": (before,), "eve": (before,)})
    honest = Counted(
        task=server.task, round=1, client="ada", counts=np.array([0, 1, 2, 2, 3])
    )
    false = spoil(honest, client="eve", counts=np.array([0, 2, 2, 2, 3]))
    server = server.receive([honest, false])
    assert server.clients == ("ada",)
    assert "same at an edge that is asked for again" in server.left_out["eve"]


def test_a_client_limits_rounds_and_edges():
    edges = np.arange(5, dtype=np.float32)
    question = Question(task="0" * 32, round=20, limit=9, edges=edges)
    losses = [0.5, 1.5]
    expected = [0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    assert count_losses(question, losses, client="a").counts.tolist() == expected
    late = dataclasses.replace(question, round=21)
    with pytest.raises(ValueError, match="max_rounds is 20, but .* is of round 21"):
        count_losses(late, losses, client="a")
    count_losses(late, losses, client="a", max_rounds=21)
    with pytest.raises(ValueError, match="max_edges is 4, but .* counts at 5 edges"):
        count_losses(question, losses, client="a", max_edges=4)
    many = dataclasses.replace(question, edges=np.arange(100_001, dtype=np.float32))
    with pytest.raises(ValueError, match="max_edges is 100000, but .* at 100001"):
        count_losses(many, losses, client="a")
    server = federated_threshold(np.arange(100_001), {"a": losses})
    assert server.threshold.n == 2
