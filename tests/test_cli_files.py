"""Tables as people have them: read right, told, or refused by name."""

import contextlib
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import OUT, refuse, run

from jaxsel import Values
from jaxsel._cli._errors import _check_scales
from jaxsel._cli._read import read_table
from jaxsel._cli._tables import read_frame

NAN = np.nan
AB = {"a": [1, 2], "label": ["x", "y"]}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@contextlib.contextmanager
def told(part):
    """Expect one warning with a text in it, or none at all."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == bool(part), messages
    if part:
        assert part in messages[0]


READ = {
    "trailing separators": ("a,label\n1,x,\n2,y,\n", AB, ""),
    "several of them": ("a,label\n1,x,,\n2,y\n", AB, ""),
    "header with more": ("a,label,,\n1,x\n2,y,,\n", AB, ""),
    "empty rows at the end": ("a,label\n1,x\n2,y\n,\n,\n", AB, "2 rows at the end"),
    "blank lines at the end": ("a,label\n1,x\n2,y\n\n \n\n", AB, ""),
    "blank lines above": ("\n\na,label\n1,x\n2,y\n", AB, ""),
    "one column": ("a\n1\n\n3\n \n5\n\n\n", {"a": [1, NAN, 3, NAN, 5]}, ""),
    "short rows": (
        "a,label,c\n1,x\n2,y,3\n",
        {**AB, "c": [NAN, 3]},
        "1 of 2 rows of t.csv have fewer entries than the header names columns, the "
        "first in line 2",
    ),
    "old line ends": ("a,label\r1,x\r2,y\r", AB, ""),
    "line ends of Windows": ("a,label\r\n1,x\r\n2,y\r\n", AB, ""),
    "BOM": ("\ufeffa,label\n1,x\n2,y\n", AB, ""),
    "BOM before quotes": ('\ufeff"a","label"\n1,x\n2,y\n', AB, ""),
    "spaces in the header": ("a,label \n1,x\n2,y\n", AB, "'label '"),
    "invisible": ("a,\xa0label\u200b\n1,x\n2,y\n", AB, r"'\xa0label\u200b'"),
    "spaces after commas": ("a, label\n1, x\n2, y\n", AB, ""),
    "comments": ("# of 2024\n#\na,label\n1,x\n2,y\n", AB, "comments (#)"),
    "numpy.savetxt": ("# a,b\n1,0\n2,1\n", {"a": [1, 2], "b": [0, 1]}, "comments (#)"),
    "sep=": ("sep=;\na;label\n1;x\n2;y\n", AB, ""),
    "tabs": ("a\tlabel\n1\tx\n2\ty\n", AB, ""),
    "bars": ("a|label\n1|x\n2|y\n", AB, ""),
    "commas in names": ("a,m;label\n1;x\n2;y\n", {"a,m": [1, 2], **AB}, ""),
    "decimal commas": ("a;b\n1,5;1.5\n2;2.5\n", {"a": [1.5, 2], "b": [1.5, 2.5]}, ""),
    "decimal commas alone": ("a\n1,5\n2\n", {"a": [1.5, 2]}, "decimal commas"),
    "thousands": (
        "a;b\n1.234;0,5\n20.000;2\n",
        {"a": [1234, 20000], "b": [0.5, 2]},
        "'1.234' as 1234, which is a guess",
    ),
    "points of thousands": (
        "a,b\n950,0.5\n1.200,0.25\n4.253,2\n",
        {"a": [950, 1.2, 4.253], "b": [0.5, 0.25, 2]},
        "'a' of t.csv is read as numbers, '1.200' as 1.2, but others have no mark",
    ),
    "points without doubt": (
        "a,b,c\n950,5,0.500\n1.2,0.25,950\n4.253,2,1.250\n",
        {"a": [950, 1.2, 4.253], "b": [5, 0.25, 2], "c": [0.5, 950, 1.25]},
        "",
    ),
    "quoted lines": ('a,label\n"1\n2,3",x\n4,y\n', {**AB, "a": ["1\n2,3", "4"]}, ""),
    "long texts": (f"a,label\n{'t' * 200_000},x\nu,y\n", None, ""),
    "names of classes": (
        "a,label\n1,NA\n2,None\n3,null\n4,\nNA,n/a\n",
        {"a": [1, 2, 3, 4, NAN], "label": ["NA", "None", "null", NAN, "n/a"]},
        "",
    ),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_csv_files_are_read_right_or_it_is_told(name, encoding):
    content, expected, part = READ[name]
    if name.startswith("BOM") and encoding != "utf-8":
        content = content.lstrip("\ufeff")
    Path("t.csv").write_bytes(content.encode(encoding))
    with told(part):
        frame = read_frame("t.csv", ["label"])
    if expected is None:
        assert len(frame.a[0]) == 200_000
        return
    expected = pd.DataFrame({c: expected[c] for c in frame}, columns=frame.columns)
    pd.testing.assert_frame_equal(frame, expected, check_dtype=False)


REFUSED = {
    "twice": ("a,label,label\n1,x,x\n", "'label' twice"),
    "twice but for spaces": ("a,label, label\n1,x,x\n", "'label' twice"),
    "names of rows": ("a,label\nr1,1,x\nr2,2,y\n", "line 2 has 3 entries, but the hea"),
    "unquoted comma": ("a,label\n1,x\n2,y\n3,x,y\n", "line 4 has 3 entries"),
    "empty": ("", "it is empty"),
    "blank": ("\n \n", "it is empty"),
    "header only": ("a,label\n", "has no rows"),
    "no entries": ("a,label\n,\n", "has no rows"),
    "NUL": ("a,label\n1,x\0\n", "NUL"),
    "NUL far below": ("a,label\n" + "1,x\n" * 2000 + "1,\0\n", "line 2002 has NUL"),
    "header again": ("a,label\n1,x\n a,label\n2,y\n", "line 3 repeats the header"),
    "open quote": ('a,label\n1,x\n2,"y\n3,x\n', "line 3 holds whole lines"),
    "quote at the end": ('a,label\n1,x\n2,"y\n', "quotes .* one in row 1 is open"),
    "quotes around rows": (
        'a,b,c\n1,"x,n\n2,y,m\n3,"z,n\n',
        "line 2 holds whole lines",
    ),
    "latin-1": (
        "größe,label\n1,x\n".encode("cp1252"),
        "not in UTF-8: .* cp1252 ",
    ),
    "gzip": (b"\x1f\x8b\x08\0", "compressed by gzip"),
    "workbook": (b"PK\x03\x04\0\0", "a zip file or a workbook: export it as CSV"),
    "parquet": (b"PAR1\0\0", r"a parquet file: .* ends in \.parquet"),
    "array": (b"\x93NUMPY\x01\0", r"ends in \.npy"),
    "page": ("<!doctype html><html>", "a web page"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:names of columns", "ignore:. rows at the end")
@pytest.mark.filterwarnings("ignore:.* have fewer entries")
def test_csv_files_without_one_meaning_are_refused(name):
    content, message = REFUSED[name]
    content = content if isinstance(content, bytes) else content.encode()
    Path("t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=f"^t.csv .*{message}"):
        read_frame("t.csv", ["label"])


def test_names_that_differ_in_case_are_taken_and_told():
    Path("t.csv").write_text("Age,LABEL\n1,NA\n2,y\n")
    with pytest.warns(UserWarning, match="'LABEL' of t.csv is taken for 'label'"):
        table = read_table("t.csv", label_column="label")
    assert table.y.tolist() == ["NA", "y"]
    Path("t.csv").write_text("a,Label,LABEL\n1,x,y\n")
    with pytest.raises(ValueError, match="no column 'label'; it has 'a', 'Label'"):
        read_table("t.csv", label_column="label")


def test_names_of_rows_are_no_features():
    frame = pd.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}, index=[7, 9])
    frame.to_csv("t.csv")
    with pytest.warns(UserWarning, match="'Unnamed: 0' of t.csv is an index"):
        assert read_table("t.csv", label_column="label").names == ("a",)
    table = read_table("t.csv", label_column="label", id_column="Unnamed: 0")
    assert table.ids.tolist() == [7, 9]
    frame.to_parquet("plain.parquet")
    assert read_table("plain.parquet", label_column="label").names == ("a",)
    frame.rename_axis("customer").to_parquet("named.parquet")
    with pytest.warns(UserWarning, match="'customer' of named.parquet is an index"):
        assert read_table("named.parquet", label_column="label").names == ("a",)
    table = read_table("named.parquet", label_column="label", id_column="customer")
    assert table.ids.tolist() == [7, 9]
    group = pd.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}, index=[3, 3])
    group.rename_axis("group").to_parquet("group.parquet")
    with pytest.warns(UserWarning, match="'group', names several rows alike"):
        table = read_table("group.parquet", label_column="label")
    assert table.names == ("group", "a")
    assert table.x.tolist() == [[3, 1], [3, 2]]
    frame.set_index("label").to_parquet("labels.parquet")
    assert read_table("labels.parquet", label_column="label").y.tolist() == [0, 1]


def test_columns_without_a_name_are_told():
    Path("t.csv").write_text("a,,label\n1,2,x\n3,4,y\n")
    with pytest.warns(UserWarning, match="'Unnamed: 1' of t.csv has no name"):
        table = read_table("t.csv", label_column="label")
    assert table.x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("kind", ["list", "fixed"])
def test_lists_of_numbers_are_columns(kind):
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.arange(6.0).reshape(3, 2)
    column = (
        pa.array(x.tolist())
        if kind == "list"
        else pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 2)
    )
    pq.write_table(pa.table({"emb": column, "label": list("xyx")}), "t.parquet")
    table = read_table("t.parquet", label_column="label")
    np.testing.assert_array_equal(table.x, x)
    assert table.names == ("emb[0]", "emb[1]")
    ragged = pa.table({"emb": [[1.0, 2.0], [3.0], [4.0, 5.0]], "label": list("xyx")})
    pq.write_table(ragged, "ragged.parquet")
    message = "ragged.parquet cannot be read: column 'emb' .* row 1 has 1 numbers"
    with pytest.raises(ValueError, match=message):
        read_table("ragged.parquet", label_column="label")


LABELS = {
    "text": ("a,label\n1,x\n2,\n3,y\n", "'label' is empty in row 1 (1 of 3 rows)"),
    "number": ("a,label\n1,0\n2,NA\n3,1\n", "'label' is 'NA' in row 1 (1 of 3 rows)"),
    "blank": ("a,label\n1,x\n2,  \n3,y\n", "'label' is empty in row 1 (1 of 3 rows)"),
}


@pytest.mark.parametrize("name", LABELS)
def test_rows_without_a_label_are_counted_and_may_be_dropped(name):
    content, message = LABELS[name]
    Path("t.csv").write_text(content)
    with pytest.raises(ValueError, match="--drop-unlabelled") as error:
        read_table("t.csv", label_column="label", drop_unlabelled=False)
    assert message in str(error.value)
    with pytest.warns(UserWarning, match="1 of 3 rows of t.csv have no label"):
        table = read_table("t.csv", label_column="label", drop_unlabelled=True)
    assert table.rows.tolist() == [0, 2]
    assert table.x.tolist() == [[1], [3]]
    assert table.y.tolist() == ([0, 1] if name == "number" else ["x", "y"])
    assert table.y.dtype.kind == ("i" if name == "number" else "O")
    with pytest.raises(ValueError, match="leave the rows out$"):  # without the option
        read_table("t.csv", label_column="label")
    shown = read_table("t.csv", label_column="label", keep_unlabelled=True).y
    assert pd.isna(shown).tolist() == [False, True, False]


def people(n=60, gaps=()):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    frame = pd.DataFrame(
        {"a": rng.normal(size=n) + 4 * y, "label": np.array(["no", "yes"])[y]}
    )
    frame.loc[30, "label"] = "yes"  # wrong
    frame.loc[list(gaps), "label"] = None
    return frame


@pytest.mark.left_out
def test_row_numbers_are_those_of_the_file(capsys):
    people(gaps=[3, 7]).to_csv("t.csv", index=False)
    given = ["errors", "t.csv", "--label", "label", "--no-report"]
    message = refuse(capsys, *given)
    assert "'label' is empty in row 3 (2 of 60 rows)" in message
    run(*given, "--drop-unlabelled")
    printed = capsys.readouterr()
    assert "Check: 2 of 60 rows of t.csv have no label, and are left out" in printed.err
    assert pd.read_csv("errors/errors.csv").row[0] == 30
    assert any(line.split()[:1] == ["30"] for line in printed.out.splitlines())
    run("value", "t.csv", "--label", "label", "--split", "0.25", "--drop-unlabelled",
        "--csv", "o.csv", *OUT)  # fmt: skip
    rest = pd.read_csv("o.csv", index_col=0).index
    val = json.loads(Path("o.json").read_text())["config"]["split_rows"]["val_rows"]
    assert sorted([*rest, *val]) == [i for i in range(60) if i not in (3, 7)]
    assert Values.load("o.npz").index == tuple(rest)
    run("value", "t.csv", "t.csv", "--label", "label", "--drop-unlabelled",
        "--out", "p.npz")  # fmt: skip
    assert Values.load("p.npz").index == tuple(i for i in range(60) if i not in (3, 7))


def test_arrays_have_the_rows_of_the_table_or_those_with_a_label(capsys):
    """Those of another length were cut to it, or ended in a traceback."""
    people(gaps=[3, 7]).to_csv("t.csv", index=False)
    probs = np.random.default_rng(1).dirichlet(np.ones(2), 120)
    given = ["errors", "t.csv", "--label", "label", "--no-report", "--drop-unlabelled"]
    tables = []
    kept = np.delete(np.arange(60), [3, 7])
    for name, array in ("all", probs[:60]), ("kept", probs[kept]):
        np.save(f"{name}.npy", array)
        run(*given, "--pred-probs", f"{name}.npy", "--out", name)
        tables.append(Path(name, "errors.csv").read_text())
    assert tables[0] == tables[1]
    for option, count in ("--pred-probs", 59), ("--features", 120):
        np.save("other.npy", probs[:count])
        message = refuse(capsys, *given, option, "other.npy", "--out", "o")
        expected = "the 60 rows of t.csv, or of the 58 with a label, got"
        assert f"{option} must have a row for each of {expected} {count}" in message


@pytest.mark.parametrize("split", [[], ["--split", "0.5"]], ids=str)
def test_infinity_is_named_by_column_and_row_of_the_file(split, capsys):
    frame = people()
    frame.loc[41, "a"] = np.inf
    command = ["value", *split, *OUT] if split else ["errors", "--no-report"]
    frame.to_csv("t.csv", index=False)
    message = refuse(capsys, *command, "t.csv", "--label", "label")
    assert "column 'a' has infinity in row 41 (1 of 60 rows do)" in message
    frame.assign(c=["u", "v"] * 30).to_csv("t.csv", index=False)  # encoded
    message = refuse(capsys, *command, "t.csv", "--label", "label")
    assert "column 'a' must not hold infinity, but does in row 41" in message
    assert "Warning" not in message


@pytest.mark.left_out
def test_labels_that_differ_in_case_or_spaces_are_told(capsys):
    frame = people()
    frame.loc[::4, "label"] = frame.label[::4].str.upper()
    frame.to_csv("t.csv", index=False)
    run("errors", "t.csv", "--label", "label", "--no-report")
    assert "Check: y has the labels 'NO', 'no', which differ" in capsys.readouterr().err
    run("value", "t.csv", "--label", "label", "--split", "0.2", *OUT)
    assert "Check: y has the labels 'NO', 'no', which differ" in capsys.readouterr().err


def test_a_loss_that_is_missing_is_named(capsys):
    losses = np.random.default_rng(0).gamma(1, 0.3, 400)
    np.save("b.npy", losses[:200])
    entries = ["" if i == 5 else str(loss) for i, loss in enumerate(losses)]
    Path("l.csv").write_text("loss\n" + "\n".join(entries))
    message = refuse(
        capsys, "filter", "l.csv", "--column", "loss", "--benchmark", "b.npy", *OUT
    )
    assert (
        "l.csv must have a loss in every row, but 'loss' is empty in row 5" in message
    )
    assert "(1 of 400 rows)" in message


def test_numbers_in_texts_are_read_and_told(capsys):
    frame = people().assign(
        b=[f"{i},5" for i in range(60)], c=["?", *"12345" * 11, *"1234"]
    )
    frame.to_csv("t.csv", index=False)
    run("errors", "t.csv", "--label", "label", "--no-report")
    found = capsys.readouterr().err.splitlines()
    assert found[:2] == [
        "Check: column 'b' is read as numbers, '0,5' as 0.5",
        "Check: column 'c' has gaps for '?' (1 of 60 rows)",
    ]
    manifest = json.loads(Path("errors/manifest.json").read_text())
    assert manifest["config"]["encoded"] == {
        "a": "number",
        "b": "number",
        "c": "number, 1 gaps",
    }
    assert manifest["checks"][:2] == [
        line.removeprefix("Check: ") for line in found[:2]
    ]


def test_all_columns_that_are_no_features_are_named_at_once(capsys):
    ids = [f"i{i}" for i in range(60)]
    frame = people().assign(id=ids, text=[f"it is {i}" for i in ids])
    frame.to_csv("t.csv", index=False)
    message = refuse(capsys, "errors", "t.csv", "--label", "label")
    assert "column 'id' has 60 different texts in 60 rows" in message
    assert "column 'text' has 60 different texts" in message
    assert "--drop" in message


def test_categories_of_other_names_are_refused_and_some_are_told(capsys):
    train = people().assign(c=["yes", "no", "no"] * 20)
    train.to_csv("t.csv", index=False)
    people().assign(c=[1, 0] * 30).to_csv("v.csv", index=False)
    given = ["value", "t.csv", "v.csv", "--label", "label", *OUT]
    message = refuse(capsys, *given)
    assert "v.csv: none of the values of column 'c' ('0', '1') is in t.csv" in message
    assert "('no', 'yes')" in message
    people().assign(c=["yes", "NO"] * 30).to_csv("v.csv", index=False)
    run(*given)
    message = capsys.readouterr().err
    assert "Check: column 'c' has categories in 50% of 60 rows" in message
    assert "such as 'NO'" in message
    people().assign(c=[1.0, 2.0] * 30).to_csv("v.csv", index=False)
    people().assign(c=["1", "2", "A"] * 20).to_csv("t.csv", index=False)
    run(*given, "--force")
    assert "categories" not in capsys.readouterr().err


def test_dead_dimensions_are_of_no_scale():
    x = np.random.default_rng(0).normal(size=(200, 40))
    x[:, 3] *= 1e-32
    assert _check_scales(x) == []
    x[:, 2] *= 1e-6
    assert "differ in scale by 1e+06" in _check_scales(x)[0]
    assert _check_scales(x[:, :4]) == []  # of a table, whose columns are scaled


def test_a_loss_that_is_no_number_is_named(capsys):
    Path("l.csv").write_text("loss\n1\nx\n3\n")
    given = ["--column", "loss", "--benchmark", "l.csv"]
    message = refuse(capsys, "filter", "l.csv", *given, *OUT)
    assert "numbers in column 'loss', but row 1 has 'x' (1 of 3 rows" in message
    assert "--drop" not in message
