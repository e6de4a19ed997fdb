"""Attributions: the effect of training samples on a network, by derivatives.

optimizer = Sgd(0.1, momentum=0.9)
trained = in_run_shapley(
    loss, params, examples, targets, key=key, optimizer=optimizer, epochs=30
)
trained.values.bottom(20)
"""

from ._in_run import in_run_shapley as in_run_shapley
from ._in_run_kernel import in_run_step as in_run_step
from ._in_run_recorder import InRun as InRun
from ._in_run_rules import Adam as Adam, Sgd as Sgd
from ._influence import network_influence as network_influence
from ._metagradient import metagradient as metagradient
from ._recipe import Output as Output, Recipe as Recipe, TrainingPlan as TrainingPlan
from ._registry import ATTRIBUTIONS as ATTRIBUTIONS
from ._source import source as source
from ._tracin import network_tracin as network_tracin
from ._trak import trak as trak
from ._tunix import TunixHooks as TunixHooks
