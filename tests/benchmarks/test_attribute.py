"""The table of attributions: its set-up, its lines, and its targets."""

import dataclasses

import numpy as np
import pytest

from benchmarks import _setups, _torch_runs, attribute as bench, recipes
from jaxsel.tasks._lds import Lds


def score(mean):
    return Lds(
        mean=mean,
        stderr_targets=0.01,
        stderr_subsets=0.02,
        by_target=np.full(3, mean),
        ceiling=0.9,
        agreement=0.65,
    )


def row(half, drop, again=1.0):
    return bench.Row([*map(score, half)], [*map(score, drop)], 9.0, again)


def test_set_up_is_that_of_the_peers_script():
    pytest.importorskip("sklearn")
    data = _setups.digits()
    assert [a.shape for a in data] == [(1000, 64), (1000,), (200, 64), (200,)]
    assert data.x.max() == 1
    masks = _setups.subsets(500)
    rows = np.random.default_rng(10_007).choice(1000, 500, replace=False)
    assert masks.shape == (100, 1000)
    assert (masks.sum(1) == 500).all()
    assert masks[7][rows].all()
    recipe = _setups.recipe_of("A")
    assert recipe.steps(1000) == 600
    assert _setups.recipe_of("B").steps(1000) == 120
    assert recipe.check(*data).x.shape == (1000, 64)


def test_lines_have_both_errors_and_all_runs():
    line = bench._line("method", row([0.5, 0.7], [0.1, 0.3], 0.25))
    assert line == (
        "| method | 0.500 ± 0.010 ± 0.020 | 0.600 (0.500 to 0.700) "
        "| 0.100 ± 0.010 ± 0.020 | 0.200 (0.100 to 0.300) | 9.00, 0.25 |"
    )


def test_targets_that_are_missed_say_so():
    rows = {
        "`network_influence`": row([0.56], [0.5], 3.5),
        '`network_influence(seeds=5, output="log_odds")`': row([0.61], [0.5]),
        "`metagradient`": row([0.4], [0.63]),
        "`metagradient(drops=8)`": row([0.4], [0.61]),
    }
    table = "\n".join(bench._line(name, cells) for name, cells in rows.items())
    torch = _torch_runs.torch_line([score(0.6)], score(0.7))
    text = f"## Set-up A\n\n{table}\n\n{torch}\n\n- old: missed\n\n"
    text += f"## Set-up B\n\n{table}\n\n## Removal\n\n- kept"
    lines = bench.with_targets(text).splitlines()
    words = [line.rpartition(": ")[2] for line in lines if line.startswith("- ")]
    assert words[:4] == ["missed", "reached", "reached", "missed"]
    assert words[4:7] == ["missed", "reached", "missed"]
    assert [line.rpartition(", ")[2] for line in lines if "0.97" in line] == [
        "must be ≥ 0.97: missed"
    ] * 2
    assert lines[-3:] == ["## Removal", "", "- kept"]
    assert bench.with_targets("\n".join(lines)).splitlines() == lines


def test_the_run_of_dattris_figures_is_trained_and_scored():
    pytest.importorskip("torch")
    data = _setups.digits()
    few = _setups.Data(data.x[:100], data.y[:100], data.x_val[:5], data.y_val[:5])
    recipe = dataclasses.replace(_setups.recipe_of("A"), epochs=4)
    masks = _setups.subsets(95, n=100)
    assert _torch_runs.dropped(recipe, few, masks, 0, weight=0.95).mean > 0.9
    line = _torch_runs.torch_line([score(0.4), score(0.6)], score(0.3))
    assert "0.300 with `drop_share=0`" in line
    assert "seeds 0 to 1 0.500 (0.400 to 0.600)" in line


def test_rows_and_sections_are_put_in_place_of_old_ones():
    table = "| method | half |\n|---|---|\n| `a` | 1 |\n| `b` | 2 |"
    text = f"# Head\n\nMade.\n\n## A\n\nWords.\n\n{table}\n\n- line\n\n## B\n\nLast.\n"
    new = "## A\n\nOthers.\n\n| method | half |\n|---|---|\n| `b` | 3 |\n| `c` | 4 |"
    rows = "| `a` | 1 |\n| `b` | 3 |\n| `c` | 4 |"
    assert bench.merged(text, new, rows=True) == (
        "## A\n\nWords.\n\n| method | half |\n|---|---|\n"
        f"{rows}\n\n- line\n\n## B\n\nLast.\n"
    )
    torch = "With torch's initial weights"
    line = f"{new}\n\n{torch}: 2."
    assert f"\n\n{torch}: 2.\n\n- line" in bench.merged(
        text.replace("- line", f"{torch}: 1.\n\n- line"), line, rows=True
    )
    assert bench.merged(text, new, rows=False) == f"{new}\n\n## B\n\nLast.\n"
    page = "## C\n\nNew."
    assert bench.merged(text, page, rows=True).endswith("\n\n## C\n\nNew.\n")
    assert bench.merged("", page, rows=False) == "## C\n\nNew.\n"


def test_the_page_of_recipes_has_all_of_them():
    lines = recipes.PAGE.read_text().splitlines()
    table = [line.split(" | ")[0] for line in lines if line.startswith("| ")][1:]
    assert table == [f"| {name}" for name in recipes.RECIPES]
