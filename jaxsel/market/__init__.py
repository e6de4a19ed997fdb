"""Requests of a trainer, answers of data owners, and the ranking of owners by gain."""

from ._answer import Answer as Answer
from ._datasets._check_vector import check_vector as check_vector
from ._datasets._datasets import value_datasets as value_datasets
from ._datasets._values import DatasetValues as DatasetValues
from ._design._design import optimal_design as optimal_design
from ._hard import HardSet as HardSet, hard_set as hard_set
from ._methods import METHODS as METHODS
from ._owner import answer as answer, refuse as refuse
from ._private._limits import PrivacyBudget as PrivacyBudget
from ._private._valuation import (
    CountSums as CountSums,
    Survivors as Survivors,
    Valuation as Valuation,
)
from ._private._value_owner import ValueOwner as ValueOwner
from ._private._values import (
    ask_values as ask_values,
    private_values as private_values,
    sum_counts as sum_counts,
)
from ._ranking import (
    Ranking as Ranking,
    rank as rank,
    ranking_agreement as ranking_agreement,
)
from ._request import Request as Request, make_request as make_request
from ._screen import screen as screen
from ._small_model import (
    network_model as network_model,
    standardized_model as standardized_model,
)
from ._trainer import Trainer as Trainer
from ._view import OwnerModel as OwnerModel
