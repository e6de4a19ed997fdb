"""Gradient matching: matching pursuit and related choosers."""

from ._checkpoint import choose_checkpoint as choose_checkpoint
from ._facility import facility_location as facility_location
from ._func_feat import (
    func_feat as func_feat,
    median_distance as median_distance,
)
from ._grad_match import class_budgets as class_budgets, grad_match as grad_match
from ._herding import herding as herding
from ._influence import (
    influence_scores as influence_scores,
    influence_topk as influence_topk,
)
from ._log_det import log_det as log_det
from ._omp import omp as omp
from ._pursue import pursue as pursue
from ._registry import SELECTORS as SELECTORS
from ._submodularity import submodularity as submodularity
from ._types import Match as Match
