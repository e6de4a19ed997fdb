"""Is it any good? Evaluations on real data, with curves."""

from ._buying import appraise as appraise, choose as choose
from ._demo import run_demo as run_demo
from ._detection import Detection as Detection, detection_curve as detection_curve
from ._purchase import (
    Gallery as Gallery,
    Purchase as Purchase,
    run_purchase as run_purchase,
)
from ._purchase_chapter import purchase_chapter as purchase_chapter
from ._scenario import OWNERS as OWNERS, Market as Market, draw_market as draw_market
