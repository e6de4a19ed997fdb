"""Is it any good? Evaluations on real data, with curves."""

from ._buying import appraise as appraise, choose as choose
from ._demo import run_demo as run_demo
from ._detection import Detection as Detection, detection_curve as detection_curve
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
from ._scenario import OWNERS as OWNERS, Market as Market, draw_market as draw_market
from ._tabular import Tabular as Tabular, run_tabular as run_tabular
from ._tabular_chapter import tabular_blocks as tabular_blocks
