"""The choosers of this room by name, for the command line and for tests."""

from jaxsel._results.selector import Selector

from ._binning import retrieve_binned
from ._finetuning import select_for_finetuning
from ._retrieve import retrieve_nearest
from ._targeted import retrieve_targeted

RETRIEVERS: dict[str, Selector] = {
    "retrieve_nearest": Selector(retrieve_nearest, "each"),
    "retrieve_targeted": Selector(retrieve_targeted, "each"),
    "retrieve_binned": Selector(retrieve_binned, "each"),
    "select_for_finetuning": Selector(select_for_finetuning, "each", command=False),
}
