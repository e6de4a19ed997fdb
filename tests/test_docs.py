"""README and docs: their code runs, links lead somewhere, and lists are whole."""

import ast
import inspect
import logging
import re
import runpy
import shlex
from importlib import import_module
from pathlib import Path

import pytest

import experiments.__main__
import jaxsel
import mpc_bridge
from jaxsel import cli, data, models
from tests.printed import shows

ROOT = Path(__file__).parents[1]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    ),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
ROOMS = (
    "value",
    "attribute",
    "neighbors",
    "gradients",
    "match",
    "retrieve",
    "filter",
    "labels",
    "estimators",
    "market",
    "data",
    "tables",
    "models",
    "proxy",
    "tasks",
    "demo",
    "report",
)

# A page, and the model that its code needs.
NEEDS = {
    "docs/targets.md": "minilm",
    "docs/finetuning.md": "minilm",
    "docs/image-features.md": "efficientnet_lite0",
}

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r'^--8<-- "([^":]+)(?::(\w+))?"$', re.MULTILINE)
_SECTION = re.compile(r'^--8<-- "([^":]+):(\w+)"$', re.MULTILINE)
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page_id(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path):
    """Return language, line number and text of each fenced block, included ones too."""
    text = _SECTION.sub(section, path.read_text(encoding="utf-8"))
    return [(m[1], text[: m.start(2)].count("\n"), m[2]) for m in _FENCE.finditer(text)]


def section(include):
    """Return the section of a file that a line of a page includes."""
    text = (ROOT / include[1]).read_text(encoding="utf-8")
    name = re.escape(include[2])
    found = re.search(
        rf"^[^\n]*\[start:{name}\][^\n]*\n(.*?)^[^\n]*\[end:{name}\]",
        text,
        re.MULTILINE | re.DOTALL,
    )
    return found[1] if found else include[0]


def languages(path):
    return {*languages_of(blocks(path))}


def languages_of(some):
    return [language for language, _, _ in some]


def anchors(path):
    """Return the anchors of a page's headings, made as mkdocs and most others do."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\s-]", "", t).strip().lower().replace(" ", "-") for t in titles
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning:(pydvl|deprecate)")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if "python" in languages(p)], ids=page_id
)
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch, capsys):
    """Blocks of Python share one namespace, and run in turn with those of jaxsel.

    A block of text shows all that the block of code before it prints.
    """
    import matplotlib.pyplot as plt

    for known in models.available_models():
        if known.name == NEEDS.get(page_id(page)) and known.path is None:
            pytest.skip(f"needs `jaxsel models prepare {known.name}`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.root, "handlers", [])  # pages may set up their own
    namespace = {"__name__": "docs"}
    of_page = blocks(page)
    wrong = []
    for at, (language, line, text) in enumerate(of_page):
        if language == "text" and at and is_run(of_page[at - 1]):
            printed = "".join(capsys.readouterr())
            if not shows(text, printed):
                wrong.append(f"line {line} shows\n{text}\nbut prints\n{printed}")
        capsys.readouterr()
        include = _INCLUDE.search(text)
        if language == "python" and not include:
            # Blank lines before it, so that a traceback has the page's line numbers.
            code = compile("\n" * line + text, str(page), "exec")
            exec(code, namespace)  # noqa: S102
        elif language == "python" and languages_of(of_page[at + 1 :])[:1] == ["text"]:
            runpy.run_path(str(ROOT / include[1]), run_name="__main__")
        elif language == "sh":
            for command in commands(text):
                if command[0] == "jaxsel" and runs_here(command):
                    assert run(command[1:]) == 0, capsys.readouterr().err
    plt.close("all")
    assert not wrong, "\n".join(wrong)


def is_run(block):
    """Whether the test above runs a block: Python, or a command of ours."""
    language, _, text = block
    return language == "python" or (
        language == "sh"
        and any(c[0] == "jaxsel" and runs_here(c) for c in commands(text))
    )


ELSEWHERE = {"docs/notebooks.md": 5, "docs/demo.md": 1}
"""Results that other tests compare: of the notebooks, and of the demo."""


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_results_follow_the_code_that_prints_them(page):
    """So that the test above compares them."""
    of_page = blocks(page)
    loose = [
        line
        for at, (language, line, _) in enumerate(of_page)
        if language == "text" and not (at and is_run(of_page[at - 1]))
    ]
    assert len(loose) == ELSEWHERE.get(page_id(page), 0), loose


@pytest.mark.slow
@pytest.mark.left_out  # `make demo` runs it, too
def test_demo_prints_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    page = blocks(ROOT / "docs" / "demo.md")
    (shown,) = [text for language, _, text in page if language == "text"]
    assert shows(shown, capsys.readouterr().out, whole=False)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("mean 0.512, 3 of 4", "mean 0.513,  3 of 4", True),
        ("mean 0.512, 3 of 4", "mean 0.514, 3 of 4", False),
        ("mean 0.512, 3 of 4", "mean 0.512, 2 of 4", False),
        ("mean 0.512", "mean -0.512", False),
        ("mean 0.512", "mean 0.512\nmore", False),
        ("mean 0.512\n...", "mean 0.512\nmore", True),
        ("mean 0.512\n...\nend", "mean 0.512\nmore\nend", True),
        ("mean 0.512\n...\nend", "mean 0.512\nmore\nend\nmore", False),
        ("0.1 0.0", "0.1 0.1", False),
        ("-2.80e-05", "-2.81e-05", True),
        ("-2.80e-05", "-2.80e-04", False),
        ("95% of 144", "94% of 144", True),
        ("95% of 144", "95 of 144", False),
        ("2.4 s, wrote", "13.1 s, wrote", True),
        ("Request(a2e7381c, 31)", "Request(2b7b7a73, 31)", True),
        ("Request(a2e7381c, 31)", "Request(2b7b7a73, 32)", False),
        ("data", "date", False),
    ],
)
def test_what_counts_as_shown(shown, printed, same):
    assert shows(shown, printed) is same
    assert shows(shown, f"before\n{printed}\nafter", whole=False) >= same
    assert not shows(shown, f"before\n{printed}")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "sh" in languages(p)], ids=page_id
)
def test_commands_exist(page):
    """Options of jaxsel and of experiments, and targets of make: our own programs."""
    makefile = (ROOT / "Makefile").read_text()
    for language, _, text in blocks(page):
        for program, *arguments in commands(text) if language == "sh" else ():
            if program == "jaxsel" and "--help" not in arguments:
                cli._parser().parse_args(arguments)
            elif [program, *arguments[:2]] == ["python", "-m", "experiments"]:
                experiments.__main__.make_parser().parse_args(arguments[2:])
            elif program == "make":
                for target in arguments:
                    variable, given, _ = target.partition("=")
                    if given:
                        assert f"$(if $({variable})" in makefile, variable
                    else:
                        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} in {page_id(page)}"
        assert not anchor or anchor in anchors(path), f"{link} in {page_id(page)}"
    for target, section in _INCLUDE.findall(page.read_text(encoding="utf-8")):
        included = (ROOT / target).read_text(encoding="utf-8")
        assert not section or included.count(f"--8<-- [start:{section}]") == 1


# Lists of names, and pages that are included from the root.
SHOW_NOTHING = ("changelog", "contributing", "functions", "kernels")
GUIDES = [p for p in sorted((ROOT / "docs").glob("*.md")) if p.stem not in SHOW_NOTHING]


@pytest.mark.parametrize("page", GUIDES, ids=page_id)
def test_every_guide_shows_something(page):
    """A picture or a printed result."""
    assert "text" in languages(page) or _IMAGE.search(page.read_text(encoding="utf-8"))


def test_pictures_are_small_described_and_used():
    images = ROOT / "docs" / "images"
    shown = set()
    for page in PAGES:
        for alt, target in _IMAGE.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            assert path.is_file(), f"{target} in {page_id(page)}"
            assert len(alt) > 30, f"{target} in {page_id(page)}"
            shown.add(path)
    drawn = set(images.iterdir())
    assert drawn <= shown
    assert max(path.stat().st_size for path in drawn) <= 150_000
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    assert {path.name for path in drawn} == set(re.findall(r"\(images/(.+)\)", gallery))


def test_examples_in_docs_are_tested():
    """Blocks that include a file hold nothing else, and name an example."""
    for page in PAGES:
        for language, _, text in blocks(page):
            for target, _ in _INCLUDE.findall(text):
                assert language == "python"
                assert re.fullmatch(r"examples/\w+\.py", target)
                assert len(text.splitlines()) == 1


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_formulas_on_lines_stand_alone(page):
    """An indented formula is not set: lists need four spaces, and formulas none."""
    assert not re.findall(r"^[ \t]+\$\$.*", page.read_text("utf-8"), re.MULTILINE)


def test_names_of_the_api_exist():
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            room, _, attribute = name.rpartition(".")
            assert hasattr(import_module(room), attribute), f"{name} in {page_id(page)}"


@pytest.mark.parametrize("room", ROOMS)
def test_api_is_whole(room):
    listed = " ".join(p.read_text() for p in (ROOT / "docs" / "api").glob("*.md"))
    module = import_module(f"jaxsel.{room}")
    for name, thing in vars(module).items():
        is_public = inspect.isfunction(thing) or inspect.isclass(thing)
        if is_public and not name.startswith("_") and not is_alias(thing):
            is_top = getattr(jaxsel, name, None) is thing
            where = "jaxsel" if is_top else f"jaxsel.{room}"
            assert f"::: {where}.{name}\n" in listed + "\n", name


def test_api_of_the_bridge_is_whole():
    page = (ROOT / "docs" / "api" / "mpc_bridge.md").read_text()
    listed = re.findall(r"^::: mpc_bridge\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(mpc_bridge.__all__)


def test_api_of_the_package_is_whole():
    index = (ROOT / "docs" / "api" / "index.md").read_text()
    listed = set(re.findall(r"^::: jaxsel\.(\w+)$", index, re.MULTILINE))
    tree = ast.parse(Path(jaxsel.__file__).read_text())
    imported = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
        if alias.asname and not alias.asname.startswith("_")
    }
    assert listed == imported


DEVICES = {"make_mesh", "init_multihost"}
"""Functions of no paper."""


def test_every_corruption_and_function_is_explained():
    corruptions = (ROOT / "docs" / "data.md").read_text()
    values = (ROOT / "docs" / "functions.md").read_text()
    for name in dir(data):
        module = getattr(getattr(data, name), "__module__", "")
        if "_corrupt" in module or "_watermark" in module:
            assert f"`{name}`" in corruptions, name
    for name, thing in vars(jaxsel).items():
        is_public = not name.startswith("_") and not is_alias(thing)
        if is_public and inspect.isfunction(thing) and name not in DEVICES:
            assert re.search(rf"`{name}[`(]", values), name
    for name in jaxsel.value.VALUES:
        assert re.search(rf"^\| `{name}[`(]", values, re.M), name


def test_data_sets_are_listed_as_they_are():
    page = (ROOT / "docs" / "data.md").read_text()
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in page.splitlines()]
    for info in data.available():
        splits = ", ".join(f"{split} {n}" for split, n in info.splits.items())
        source = info.source if info.download_size else "–"
        assert [f"`{info.name}`", info.task, splits, source] in rows
        assert [f"`{info.name}`", info.license] in rows


def test_models_are_listed_as_they_are():
    page = (ROOT / "docs" / "targets.md").read_text()
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in page.splitlines()]
    for known in models.available_models():
        assert [f"`{known.name}`", known.task, known.source, known.license] in rows


def test_versions_agree():
    changes = (ROOT / "CHANGELOG.md").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    latest = re.search(r"^## \[?([\d.]+)", changes, re.MULTILINE)
    assert latest is not None
    assert latest[1] == jaxsel.__version__
    assert f"\nversion: {jaxsel.__version__}\n" in citation


def test_every_page_is_in_the_site():
    listed = re.findall(r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert sorted(listed) == sorted(pages)


def test_first_page_begins_with_what_people_want():
    """For whom, the installation, and cards of tasks with a picture and a guide."""
    page = (ROOT / "docs" / "index.md").read_text()
    before, cards, after = re.split(r"<div class=.grid cards. markdown>|</div>", page)
    assert "For everyone who" in before
    assert "pip install" in before
    assert "README.md:example" in after
    for card in cards.split("\n-   ")[1:]:
        assert re.match(r"\*\*\[.+\?\]\([\w-]+\.md\)\*\*\n", card), card
        assert len(_IMAGE.findall(card)) == 1
    assert cards.count("\n-   ") == 4


def test_menus_are_short():
    """A section lists at most eight pages; that of the API has one for each room."""
    menus, name = {}, None
    for line in (ROOT / "mkdocs.yml").read_text().splitlines():
        if heading := re.match(r" +- ([\w ]+):$", line):
            name = heading[1]
        elif re.match(r" +- [\w/-]+\.md$", line):
            menus.setdefault(name, []).append(line)
    assert len(menus.pop("API")) == len(ROOMS) + 2  # and its index, and mpc_bridge
    assert max(map(len, menus.values())) <= 8, menus


def commands(text):
    """Return the command lines of a block, split into words, comments dropped."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def runs_here(command):
    """Whether a command needs neither the network nor half a minute."""
    return command[2:3] != ["prepare"] and command[1] not in ("demo", "proxy")


def run(arguments):
    try:
        return cli.main(arguments)
    except SystemExit as done:  # --help
        return done.code


def is_alias(thing):
    """Whether this is a name for a type, such as `Params = Any`."""
    return getattr(thing, "__module__", "").partition(".")[0] != "jaxsel"
