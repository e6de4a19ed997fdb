"""Data values: KNN semivalues, values that retrain models, and their kernels."""

from ._adjusted import adjusted_semivalue as adjusted_semivalue
from ._choice import estimate_semivalue as estimate_semivalue
from ._exact import (
    exact_semivalue as exact_semivalue,
    exact_shapley as exact_shapley,
)
from ._examples import Examples as Examples, Learner as Learner
from ._g_shapley import g_shapley as g_shapley
from ._group_testing import group_testing_shapley as group_testing_shapley
from ._hard_label import weighted_knn_shapley as weighted_knn_shapley
from ._influence import influence as influence
from ._knn import (
    knn_banzhaf as knn_banzhaf,
    knn_beta_shapley as knn_beta_shapley,
    knn_loo as knn_loo,
    knn_semivalue as knn_semivalue,
    knn_shapley as knn_shapley,
    soft_knn_shapley as soft_knn_shapley,
)
from ._knn_utility import knn_utility as knn_utility
from ._learners import (
    KNN as KNN,
    FlaxLearner as FlaxLearner,
    GaussianNB as GaussianNB,
    LogisticRegression as LogisticRegression,
    NearestCentroid as NearestCentroid,
    RidgeRegression as RidgeRegression,
    SklearnLearner as SklearnLearner,
    curvature as curvature,
    fit_softmax as fit_softmax,
)
from ._loo import loo as loo
from ._max_shapley import max_shapley as max_shapley
from ._mixture import mixture_response as mixture_response
from ._mixture_design import mixture_design as mixture_design
from ._mixture_runs import (
    MixtureRecipe as MixtureRecipe,
    mixture_runs as mixture_runs,
)
from ._mmd import mmd_values as mmd_values
from ._model_inputs import as_learner as as_learner
from ._msr import banzhaf as banzhaf
from ._oob import data_oob as data_oob
from ._owner_utility import by_owner as by_owner
from ._permutation import (
    beta_shapley as beta_shapley,
    tmc_shapley as tmc_shapley,
)
from ._pydvl import from_pydvl as from_pydvl, to_pydvl as to_pydvl
from ._ray import RayExecutor as RayExecutor
from ._registry import VALUES as VALUES
from ._regression import knn_regression_shapley as knn_regression_shapley
from ._retrained import ESTIMATORS as ESTIMATORS
from ._semivalue import semivalue as semivalue
from ._size_weights import size_restricted_weights as size_restricted_weights
from ._stopping import (
    MaxSamples as MaxSamples,
    MaxTime as MaxTime,
    RankStability as RankStability,
    StandardError as StandardError,
)
from ._streamed_values import streamed_values as streamed_values
from ._threshold import (
    threshold_counts as threshold_counts,
    threshold_knn_shapley as threshold_knn_shapley,
)
from ._utility import (
    ModelUtility as ModelUtility,
    as_utility as as_utility,
)
from ._weights import (
    rank_table as rank_table,
    shapley_weights as shapley_weights,
)
