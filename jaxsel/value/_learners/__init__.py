"""Models that are trained on many subsets of one data set at once."""

from ._bayes import (
    ClassMoments as ClassMoments,
    GaussianNB as GaussianNB,
    NearestCentroid as NearestCentroid,
)
from ._curvature import Curvature as Curvature, curvature as curvature
from ._flax import FlaxLearner as FlaxLearner
from ._logistic import (
    LinearParams as LinearParams,
    LogisticRegression as LogisticRegression,
)
from ._nearest import KNN as KNN
from ._newton import fit_two_classes as fit_two_classes
from ._newton_classes import fit_few_classes as fit_few_classes
from ._ridge import RidgeRegression as RidgeRegression
from ._sklearn import SklearnLearner as SklearnLearner
from ._softmax import fit_softmax as fit_softmax
