"""Estimators in scikit-learn's conventions; this room needs scikit-learn."""

from ._label_filter import LabelErrorFilter as LabelErrorFilter
from ._selector import Selector as Selector
from ._valuer import KNNShapleyValuer as KNNShapleyValuer
