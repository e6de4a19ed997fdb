"""Is it any good? Evaluations on real data, with curves."""

from ._acquisition import Acquisition as Acquisition, acquisition as acquisition
from ._adaptation import domain_adaptation as domain_adaptation
from ._agreement import (
    Agreement as Agreement,
    Smoothed as Smoothed,
    percentile_smoothing as percentile_smoothing,
    rank_agreement as rank_agreement,
)
from ._application import ValueFunction as ValueFunction, random_values as random_values
from ._buying import appraise as appraise, choose as choose
from ._curves import Curves as Curves
from ._demo import run_demo as run_demo
from ._detection import Detection as Detection, detection_curve as detection_curve
from ._embedding import Embedding as Embedding, train_embedding as train_embedding
from ._filter_chapter import filter_chapter as filter_chapter
from ._filter_demo import (
    Clients as Clients,
    clients_chapter as clients_chapter,
    run_clients as run_clients,
)
from ._filter_scene import FilterSizes as FilterSizes
from ._filtering import Filtering as Filtering, run_filtering as run_filtering
from ._learners import (
    Retrain as Retrain,
    cnn as cnn,
    logistic as logistic,
    mlp as mlp,
)
from ._mycroft import Mycroft as Mycroft, run_mycroft as run_mycroft
from ._mycroft_cases import Cases as Cases
from ._mycroft_chapter import (
    mycroft_chapter as mycroft_chapter,
    mycroft_chapters as mycroft_chapters,
)
from ._mycroft_demo import (
    Requests as Requests,
    requests_chapter as requests_chapter,
    run_requests as run_requests,
)
from ._mycroft_ranking import Owners as Owners
from ._mycroft_spurious import Spurious as Spurious
from ._mycroft_starved import Starved as Starved
from ._noisy import noisy_labels as noisy_labels
from ._proxies import (
    Proxies as Proxies,
    ProxyPool as ProxyPool,
    run_proxies as run_proxies,
)
from ._proxy_chapter import proxies_chapter as proxies_chapter
from ._proxy_demo import (
    TextPurchase as TextPurchase,
    run_texts as run_texts,
    texts_chapter as texts_chapter,
)
from ._purchase import (
    Gallery as Gallery,
    Purchase as Purchase,
    run_purchase as run_purchase,
)
from ._purchase_chapter import purchase_chapter as purchase_chapter
from ._removal import point_addition as point_addition, point_removal as point_removal
from ._scenario import OWNERS as OWNERS, Market as Market, draw_market as draw_market
from ._study import Study as Study, run_study as run_study
from ._study_chapter import study_chapter as study_chapter, study_tally as study_tally
from ._study_claims import study_claims as study_claims
from ._study_demo import (
    Worth as Worth,
    run_worth as run_worth,
    worth_chapter as worth_chapter,
)
from ._study_judge import Claim as Claim
from ._summary import summarisation as summarisation
from ._tabular import Tabular as Tabular, run_tabular as run_tabular
from ._tabular_chapter import tabular_blocks as tabular_blocks
from ._watermarks import (
    instance_watermark as instance_watermark,
    pattern_watermark as pattern_watermark,
)
