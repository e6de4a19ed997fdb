"""What cells show in a real Jupyter kernel: figures, and bars without warnings."""

import pytest

pytestmark = pytest.mark.slow
nbformat = pytest.importorskip("nbformat", reason="comes with the dev extra")
nbclient = pytest.importorskip("nbclient", reason="comes with the dev extra")


@pytest.fixture
def outputs(monkeypatch):
    """Return a function that runs cells in turn, and returns the outputs of each."""
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel chooses its own

    def run(*sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        notebook = nbformat.v4.new_notebook(cells=cells)
        client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
        client.execute()
        return [cell.outputs for cell in notebook.cells]

    return run


def images(outputs):
    return sum("image/png" in output.get("data", {}) for output in outputs)


def text(outputs, name):
    return "".join(output.text for output in outputs if output.get("name") == name)


def test_figures_show_from_the_first_on(outputs):
    each = outputs(
        """
        import jax.numpy as jnp
        from jaxsel import Values
        values = Values(values=jnp.arange(9.0), count=3, method="example")
        values.plot();
        """,
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        """
        from jaxsel import report
        report.plot_curves([1, 2], {"a": [[3, 4]]}, xlabel="", ylabel="");
        """,
        "plt.plot([3, 4]);",
    )
    assert [images(one) for one in each] == [1] * len(each)


def test_bars_need_no_widgets_and_do_not_warn(outputs):
    (shown,) = outputs(
        """
        import sys
        sys.modules["ipywidgets"] = None  # as where it is not installed
        from jaxsel._runs.progress import track
        for _ in track(range(3), progress=True, label="Rounds"):
            pass
        """
    )
    assert "Rounds:   0%" in text(shown, "stderr")
    assert "Warning" not in text(shown, "stderr")
