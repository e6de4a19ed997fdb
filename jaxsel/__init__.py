"""jaxsel: find, value and buy training data.

Subpackages load on first use as attributes: `jaxsel.data.load("digits")` needs no
import but `import jaxsel`.
"""

import logging as _logging
from importlib import import_module
from typing import TYPE_CHECKING

from ._interrupt import quiet_interrupts as _quiet_interrupts

_quiet_interrupts()  # before imports that take seconds

# ruff: noqa: E402
from ._devices.mesh import init_multihost as init_multihost, make_mesh as make_mesh
from ._results.types import Selection as Selection, Values as Values
from ._version import __version__ as __version__
from .filter import LossThreshold as LossThreshold, loss_threshold as loss_threshold
from .labels import (
    LabelErrors as LabelErrors,
    find_label_errors as find_label_errors,
)
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
    retrieve_nearest as retrieve_nearest,
    retrieve_targeted as retrieve_targeted,
    select_for_finetuning as select_for_finetuning,
)
from .value import (
    adjusted_semivalue as adjusted_semivalue,
    banzhaf as banzhaf,
    beta_shapley as beta_shapley,
    data_oob as data_oob,
    estimate_semivalue as estimate_semivalue,
    exact_semivalue as exact_semivalue,
    exact_shapley as exact_shapley,
    g_shapley as g_shapley,
    group_testing_shapley as group_testing_shapley,
    influence as influence,
    knn_banzhaf as knn_banzhaf,
    knn_beta_shapley as knn_beta_shapley,
    knn_loo as knn_loo,
    knn_regression_shapley as knn_regression_shapley,
    knn_semivalue as knn_semivalue,
    knn_shapley as knn_shapley,
    loo as loo,
    max_shapley as max_shapley,
    mmd_values as mmd_values,
    soft_knn_shapley as soft_knn_shapley,
    streamed_values as streamed_values,
    threshold_knn_shapley as threshold_knn_shapley,
    tmc_shapley as tmc_shapley,
    weighted_knn_shapley as weighted_knn_shapley,
)

_logging.getLogger(__name__).addHandler(_logging.NullHandler())

_ROOMS = (
    "attribute",
    "data",
    "demo",
    "estimators",
    "filter",
    "gradients",
    "labels",
    "market",
    "match",
    "models",
    "neighbors",
    "proxy",
    "report",
    "retrieve",
    "tables",
    "tasks",
    "value",
)

if TYPE_CHECKING:
    from . import (
        attribute as attribute,
        data as data,
        demo as demo,
        estimators as estimators,
        filter as filter,
        gradients as gradients,
        labels as labels,
        market as market,
        match as match,
        models as models,
        neighbors as neighbors,
        proxy as proxy,
        report as report,
        retrieve as retrieve,
        tables as tables,
        tasks as tasks,
        value as value,
    )
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name):
        if name in _ROOMS:
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
