"""What a party brings is checked before the session: files, shapes, values."""

import contextlib
import dataclasses
import os
import re

import numpy as np
import pytest

from jaxsel import proxy
from jaxsel.proxy._manifest import FixedPoint, Inputs as ProxyInputs
from mpc_bridge._arrays import ArrayFile
from mpc_bridge._config import Config, DataOwner, Inputs, PhaseConfig, Session
from mpc_bridge._handshake import Refused, SessionError
from mpc_bridge._holdings import open_samples, read_public

N, L, H, V = 5, 4, 6, 9
SPEC = proxy.Spec(1, 1, attention="linear", norm="polynomial")
EMBEDDED = proxy.manifest(
    SPEC, layers=1, heads=1, head_width=H, hidden=H, length=L, n_classes=2
)
ONEHOT = dataclasses.replace(
    EMBEDDED,
    inputs=ProxyInputs(
        kind="tokens",
        length=L,
        width=H,
        embed="onehot",
        vocab=V,
        norm=proxy.Emulator("linear"),
        masked=True,
    ),
)
PLAIN = dataclasses.replace(
    EMBEDDED, inputs=ProxyInputs(kind="tokens", length=L, width=H)
)
MASKED = dataclasses.replace(
    EMBEDDED, inputs=ProxyInputs(kind="tokens", length=L, width=H, masked=True)
)


@pytest.fixture
def bring(tmp_path):
    """Write a manifest and arrays; return what a data owner reads of them."""

    def write(manifest, x, mask=None, exclude=()):
        (tmp_path / "manifest.json").write_text(manifest.to_json())
        np.save(tmp_path / "x.npy", x)
        if mask is not None:
            np.save(tmp_path / "mask.npy", mask)
        if not isinstance(exclude, tuple):
            np.save(tmp_path / "exclude.npy", exclude)
            exclude = tmp_path / "exclude.npy"
        inputs = Inputs(
            x=tmp_path / "x.npy", mask=None if mask is None else tmp_path / "mask.npy"
        )
        config = Config(
            session=Session(
                name="s", seed=0, rendezvous="tcp://h:1", samples=N, exclude=exclude
            ),
            phases=(PhaseConfig(manifest=tmp_path / "manifest.json", keep=2),),
            data_owner=DataOwner(inputs=(inputs,), output=tmp_path),
        )
        public = read_public(config)
        return public.pool, open_samples(config, public)[0]

    return write


ROWS = np.random.default_rng(0).normal(size=(N, L, H)).astype(np.float32)
IDS = np.arange(N * L).reshape(N, L) % V
MASK = np.tri(N, L, dtype=bool)


def test_a_reader_reads_slices_of_the_rows_that_are_left(bring):
    pool, reader = bring(MASKED, ROWS, MASK, exclude=np.array([3]))
    assert pool.tolist() == [0, 1, 2, 4]
    x, mask = reader(pool[[1, 3]])(slice(1, 2))
    np.testing.assert_array_equal(x, ROWS[[4]])
    np.testing.assert_array_equal(mask, MASK[[4]])
    pool, reader = bring(ONEHOT, IDS.astype(np.uint16))
    x, mask = reader(pool)(slice(0, 5))
    np.testing.assert_array_equal(x, IDS)
    assert mask is None


def changed(array, value):
    array = array.copy()
    array[2, 1] = value
    return array


@pytest.mark.parametrize(
    ("manifest", "x", "mask", "message"),
    [
        (PLAIN, ROWS.astype(float), None, "x must hold numbers of float32 of shape"),
        (PLAIN, ROWS[:, :2], None, f"of shape {(N, L, H)}"),
        (PLAIN, changed(ROWS, np.inf), None, "finite numbers of at most 32768 in size"),
        (PLAIN, changed(ROWS, np.nan), None, "finite numbers of at most 32768 in size"),
        (PLAIN, changed(ROWS, -40_000), None, "finite numbers of at most 32768 in"),
        (PLAIN, ROWS, MASK, "mask must not be given: the manifest has no mask"),
        (MASKED, ROWS, MASK[1:], f"mask must hold zeros and ones of shape {(N, L)}"),
        (MASKED, ROWS, changed(MASK * 1, 2), "mask must hold zeros and ones, a one in"),
        (MASKED, ROWS, np.eye(N, L), "mask must hold zeros and ones, a one in each"),
        (ONEHOT, IDS.astype(np.float32), None, "x must hold token ids of shape"),
        (ONEHOT, changed(IDS, V), None, f"x must hold token ids in [0, {V})"),
        (ONEHOT, changed(IDS, -1), None, f"x must hold token ids in [0, {V})"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(bring, manifest, x, mask, message):
    with pytest.raises(Refused, match=re.escape(message)) as raised:
        bring(manifest, x, mask)
    assert raised.value.rule.startswith("data_owner.inputs[0].")


def test_what_the_other_is_told_holds_no_data(bring, tmp_path):
    with pytest.raises(Refused) as raised:
        bring(PLAIN, ROWS[1:])
    assert "(4, 4, 6)" in str(raised.value)
    assert "(4, 4, 6)" not in raised.value.rule
    bring(PLAIN, ROWS)
    (tmp_path / "x.npy").unlink()
    (tmp_path / "x.npy").write_text("text")
    with pytest.raises(Refused, match="x must be an .npy file") as raised:
        bring_again(tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert str(tmp_path) not in raised.value.rule


def bring_again(folder):
    return ArrayFile("data_owner.inputs[0].x", folder / "x.npy")


def test_bounds_of_the_manifest_hold(bring):
    fixed = FixedPoint(bounds={"inputs": 2.0})
    manifest = dataclasses.replace(PLAIN, fixed_point=fixed)
    bring(manifest, changed(ROWS, 0).clip(-2, 2))
    with pytest.raises(Refused, match="finite numbers of at most 2 in size"):
        bring(manifest, changed(ROWS, 2.01))


def test_how_many_rows_leave_the_bounds_is_told_to_the_data_owner_alone(bring):
    fixed = FixedPoint(bounds={"inputs": 2.0})
    manifest = dataclasses.replace(PLAIN, fixed_point=fixed)
    x = np.clip(ROWS, -2, 2)
    x[[1, 3], 0, 0] = 5.0, -7.0
    with pytest.raises(Refused) as raised:
        bring(manifest, x)
    assert "2 of 5 rows (40.00%) have values beyond" in str(raised.value)
    assert "bound of 2, up to 7" in str(raised.value)
    assert raised.value.rule.endswith(
        "at most 2 in size, the manifest's bound of the inputs"
    )
    assert "40" not in raised.value.rule
    # Excluded rows are not scored, and need not fit.
    bring(manifest, x, exclude=np.array([1, 3]))
    with pytest.raises(Refused, match=re.escape("1 of 4 row (25.00%)")):
        bring(manifest, x, exclude=np.array([1]))


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (np.array([1.0]), "session.exclude must hold whole numbers [m]"),
        (np.array([[1]]), "session.exclude must hold whole numbers [m]"),
        (np.array([1, 1]), "session.exclude must hold each row once"),
        (np.array([N]), f"session.exclude must hold rows in [0, {N})"),
        (np.array([0, 1, 2]), "phases[0].keep must be below the 2 rows"),
        ((7,), f"session.exclude must hold rows in [0, {N})"),
    ],
)
def test_excluded_rows_are_checked(bring, exclude, message):
    with pytest.raises(Refused, match=re.escape(message)):
        bring(PLAIN, ROWS, exclude=exclude)


@pytest.mark.parametrize("how", ["cut", "saved", "replaced", "gone"])
def test_a_file_that_changes_during_a_run_is_named(bring, tmp_path, how):
    """A mapped file that is cut would end the process without a word."""
    pool, reader = bring(PLAIN, ROWS)
    read, path = reader(pool), tmp_path / "x.npy"
    read(slice(0, 2))
    if how == "cut":
        os.truncate(path, 200)
    elif how == "saved":
        np.save(path, ROWS + 1)
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    elif how == "replaced":
        np.save(tmp_path / "new.npy", ROWS)
        os.replace(tmp_path / "new.npy", path)
    else:
        path.unlink()
    with pytest.raises(SessionError, match=r"x.npy was changed during the run"):
        read(slice(2, 4))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [[], [4], [0, 1, 2, 3, 4], [0, 2, 3], [4, 1, 1, 2]])
def test_any_rows_are_read_as_they_are(tmp_path, order, rows):
    for dtype in (np.float32, np.float16, bool, ">i8"):
        x = np.asarray(8 * ROWS, order=order).astype(dtype)
        np.save(tmp_path / "x.npy", x)
        file = ArrayFile("x", tmp_path / "x.npy")
        assert (file.shape, file.dtype, len(file), file.ndim) == (
            x.shape,
            x.dtype,
            N,
            3,
        )
        np.testing.assert_array_equal(file[np.array(rows, int)], x[rows])
        np.testing.assert_array_equal(file[1:4], x[1:4])
        with pytest.raises(IndexError, match="from 0 to 4"):
            file[np.array([5])]


def test_damaged_headers_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, ROWS)
    content = path.read_bytes()
    for place in range(8, 100):
        for byte in (0, 0x27, 0x28, 0xFF):
            path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            with contextlib.suppress(Refused):  # or it is read, as what it says
                ArrayFile("x", path)
    path.write_bytes(content[:-1])
    with pytest.raises(Refused, match=r"x must be an .npy file, got .*x.npy"):
        ArrayFile("x", path)
