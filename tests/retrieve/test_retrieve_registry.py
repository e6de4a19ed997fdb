"""Choosers of `retrieve.RETRIEVERS` against their definitions."""

import numpy as np
import pytest
import selector_cases as cases
import slow_finetuning
import slow_retrieval as slow
from test_targeted import cosines, facilities, greedy

from jaxsel import retrieve
from jaxsel.retrieve import RETRIEVERS


def binned(pool, hard, budget):
    near = slow.binning_distance(pool.tolist(), hard.tolist(), mode="hamming")
    return np.argsort(near, kind="stable")[:budget]


DEFINITIONS = {
    "retrieve_nearest": cases.listed(lambda x, h, k: slow.retrieve(x, h, k, "cosine")),
    "retrieve_targeted": cases.listed(
        lambda x, h, k: greedy(facilities(cosines(x, h), 1.0), len(x), k)
    ),
    "select_for_finetuning": cases.listed(slow_finetuning.round_robin),
    "retrieve_binned": cases.listed(binned),
}
each_selector = pytest.mark.parametrize("name", RETRIEVERS)


def test_every_chooser_is_registered_and_defined():
    assert cases.unregistered(retrieve, RETRIEVERS) == []
    assert set(DEFINITIONS) == set(RETRIEVERS)
    assert all(getattr(retrieve, name) is s.function for name, s in RETRIEVERS.items())


@each_selector
@pytest.mark.every(2)
def test_choosers_choose_by_their_definition(name):
    cases.check_definition(name, RETRIEVERS[name], DEFINITIONS[name])


@each_selector
@pytest.mark.every(2)
def test_choosers_pass_the_checks_of_all(name):
    cases.check_types(name, RETRIEVERS[name])
    cases.check_not_a_number(name, RETRIEVERS[name])
    cases.check_all(name, RETRIEVERS[name])
