"""The choosers of this room by name, for the command line and for tests."""

from jaxsel._results.selector import Selector

from ._facility import facility_location
from ._func_feat import func_feat
from ._grad_match import grad_match
from ._herding import herding
from ._influence import influence_topk
from ._log_det import log_det
from ._omp import omp

SELECTORS: dict[str, Selector] = {
    "omp": Selector(omp, "mean"),
    "grad_match": Selector(grad_match, "each"),
    "func_feat": Selector(func_feat, "each", features=True, command=False),
    "herding": Selector(herding, "mean"),
    "influence_topk": Selector(influence_topk, "mean"),
    "facility_location": Selector(facility_location),
    "log_det": Selector(log_det),
}
