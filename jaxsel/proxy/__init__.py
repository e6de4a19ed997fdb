"""A cheap stand-in for a target transformer: manifest, cost, emulators."""

from ._bounds import with_bounds as with_bounds
from ._choose import choose as choose, diverse as diverse
from ._cost._choice import choice_cost as choice_cost
from ._cost._cost import (
    Cost as Cost,
    Network as Network,
    compare_costs as compare_costs,
    cost as cost,
)
from ._cost._models import MODELS as MODELS
from ._cost._owned import public_factors as public_factors
from ._cost._schedule import (
    Operation as Operation,
    operand_shapes as operand_shapes,
    owned_schedule as owned_schedule,
    schedule as schedule,
)
from ._cost._traffic import (
    EngineName as EngineName,
    Traffic as Traffic,
    check_engine as check_engine,
)
from ._enlarge import fix_head as fix_head, scale_head as scale_head
from ._files import (
    load_proxy as load_proxy,
    read_manifest as read_manifest,
    read_weights as read_weights,
    save_proxy as save_proxy,
)
from ._fold import fold as fold
from ._leakage._answer import leakage_of_answer as leakage_of_answer
from ._leakage._disclosures import (
    OutOfBounds as OutOfBounds,
    choice_warnings as choice_warnings,
    compare_pools as compare_pools,
    out_of_bounds as out_of_bounds,
    row_digests as row_digests,
)
from ._leakage._leakage import (
    expected_leakage as expected_leakage,
    is_linear_probe as is_linear_probe,
    leakage as leakage,
    leakage_by_phase as leakage_by_phase,
)
from ._leakage._quickselect import (
    declare as declare,
    places as places,
    quickselect as quickselect,
)
from ._leakage._recovery import Leakage as Leakage
from ._manifest import (
    Emulator as Emulator,
    Manifest as Manifest,
)
from ._mlp import mlp as mlp
from ._monotonicity import (
    check_monotonicity as check_monotonicity,
    monotonicity as monotonicity,
)
from ._parties._bootstrap import (
    KeyCommitment as KeyCommitment,
    KeyOpening as KeyOpening,
    KeyShare as KeyShare,
    draw_bootstrap as draw_bootstrap,
    joint_key as joint_key,
)
from ._parties._data_owner import DataOwner as DataOwner, proxy_ranks as proxy_ranks
from ._parties._messages import (
    Bootstrap as Bootstrap,
    Offer as Offer,
    Plan as Plan,
    Published as Published,
)
from ._parties._model_owner import ModelOwner as ModelOwner
from ._parties._phases import Phased as Phased, select as select
from ._parties._plan import (
    Phase as Phase,
    ProbeSpec as ProbeSpec,
    Samples as Samples,
    Training as Training,
)
from ._parties._proxy_maker import Prepared as Prepared
from ._probe import fit_probe as fit_probe
from ._proxy import Proxy as Proxy
from ._ring import check_ring as check_ring
from ._scores import (
    entropy_of_square as entropy_of_square,
    log_prior as log_prior,
    score as score,
)
from ._search._candidates import (
    PAPER_SCHEDULES as PAPER_SCHEDULES,
    default_candidates as default_candidates,
)
from ._search._front import Front as Front, Schedule as Schedule
from ._search._rehearsal import Rehearsal as Rehearsal, rehearse as rehearse
from ._search._search import search_schedule as search_schedule
from ._shapes import array_shapes as array_shapes
from ._spec import (
    Spec as Spec,
    ablation as ablation,
    manifest as manifest,
    paper_spec as paper_spec,
    probe_manifest as probe_manifest,
)
from ._steps import run_steps as run_steps, secure_steps as secure_steps
from ._training._build import (
    embed as embed,
    emulate as emulate,
    prune as prune,
    target_manifest as target_manifest,
)
from ._training._invivo import (
    refit_score as refit_score,
    tune as tune,
)
from .families._place import Call as Call, SharedInputs as SharedInputs, Steps as Steps
from .families._score_exact import entropy as entropy
