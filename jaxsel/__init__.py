"""jaxsel: find, value and buy training data."""

from ._mesh import init_multihost as init_multihost, make_mesh as make_mesh
from ._types import Selection as Selection, Values as Values
from ._version import __version__ as __version__
from .match import (
    Match as Match,
    facility_location as facility_location,
    func_feat as func_feat,
    grad_match as grad_match,
    herding as herding,
    influence_topk as influence_topk,
    log_det as log_det,
    omp as omp,
)
from .retrieve import (
    binning_distance as binning_distance,
    pseudo_labels as pseudo_labels,
    retrieve_binned as retrieve_binned,
)
from .value import (
    knn_banzhaf as knn_banzhaf,
    knn_beta_shapley as knn_beta_shapley,
    knn_loo as knn_loo,
    knn_regression_shapley as knn_regression_shapley,
    knn_semivalue as knn_semivalue,
    knn_shapley as knn_shapley,
    soft_knn_shapley as soft_knn_shapley,
    threshold_knn_shapley as threshold_knn_shapley,
)
