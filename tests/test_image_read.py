"""Readers of hyperspectral images: every layout is read correctly, and a broken file gives a clear error."""

import io
import os
import pickle
import subprocess
import sys
import threading
import urllib.request
import warnings
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
import spectral.io.envi as envi
import xarray
from scipy.io import savemat

from onmf.datasets import read_documents, read_scene
from onmf.image import Cube, cluster, read, read_truth
from onmf.image.cube import Lines
from onmf.image.figures import bands_to_show

TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "u2": 12, "u4": 13, "i8": 14, "u8": 15}
WAVES = [450.0, 550.0, 650.0, 850.0]
UTM = rasterio.CRS.from_epsg(32610)


def values(dtype="f4", shape=(3, 5, 4)):
    return np.random.default_rng(0).integers(1, 120, shape).astype(dtype)


def read_all(cube):
    return cube.read(0, cube.shape[0])


READERS = (read, lambda path: read(values(), mask=path), lambda path: read_truth(path, (3, 5, 4)))
"""All that reads a file: an image, a mask, or a truth, here for an image of these values."""


def save(path, data, **header):
    options = {key: header.pop(key) for key in ("interleave", "byteorder", "ext") if key in header}
    envi.save_image(str(path), data, metadata=header, force=True, **options)
    return path


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", [0, 1])
def test_every_envi_layout_reads_back_equal(tmp_path, interleave, dtype, order):
    X = values(dtype)
    cube = read(save(tmp_path / "x.hdr", X, interleave=interleave, byteorder=order))
    assert np.array_equal(read_all(cube), X)
    assert read_all(cube).dtype == X.dtype
    assert read_all(cube).dtype.isnative
    assert np.array_equal(cube.read(1, 3), X[1:3])
    assert isinstance(cube.data, Lines), "the data stay on disk"


def test_both_namings_and_either_file(tmp_path):
    X = values()
    save(tmp_path / "a.hdr", X)
    save(tmp_path / "b.img.hdr", X, ext="")
    save(tmp_path / "c.hdr", X, ext=".dat")
    for name in ("a.hdr", "a.img", "b.img.hdr", "b.img", "c.hdr", "c.dat"):
        cube = read(tmp_path / name)
        assert np.array_equal(read_all(cube), X)
        assert cube.name == name[0]


def test_header_fields(tmp_path):
    path = save(
        tmp_path / "x.hdr",
        values(),
        **{
            "wavelength": WAVES,
            "wavelength units": "Nanometers",
            "band names": ["blue", "green", "red", "near"],
            "bbl": [1, 0, 1, 1],
            "data ignore value": -9999,
            "reflectance scale factor": 10000,
            "map info": "{UTM, 2, 3, 1000, 2000, 10, 20, 10, North, WGS-84, units=Meters}",
        },
    )
    cube = read(path)
    assert cube.wavelengths.tolist() == WAVES
    assert cube.nanometres.tolist() == [450, 650, 850]
    assert cube.band_names == ["blue", "green", "red", "near"]
    assert cube.good_bands.tolist() == [True, False, True, True]
    assert (cube.ignore_value, cube.scale) == (-9999, 1e-4)
    assert cube.transform == (10, 0, 990, 0, -20, 2040)
    assert rasterio.CRS.from_wkt(cube.crs) == UTM
    assert cube.coordinates(2, 1) == (1005, 1990), "the corner of the reference pixel, counted from 1, is (1000, 2000)"
    with rasterio.open(path.with_suffix(".img")) as file:  # GDAL's interpretation of the same header
        assert tuple(file.transform)[:6] == pytest.approx(cube.transform)
    assert np.array_equal(read_all(cube), values()[:, :, [0, 2, 3]])
    assert repr(cube) == "<Cube x: 3 lines × 5 samples × 4 bands (1 of them bad), float32>"
    assert read(path, keep_bad_bands=True).good_bands.all()
    assert read(path, drop_bands=[0, 3]).good_bands.tolist() == [False, False, True, False]
    assert read(path, ignore_value=7).ignore_value == 7
    assert cube.pixel(1, 2) == pytest.approx(values()[1, 2, [0, 2, 3]] * 1e-4)


def test_a_rotated_image_has_the_transform_of_gdal(tmp_path):
    info = "{UTM, 1, 1, 1000, 2000, 10, 10, 10, North, WGS-84, units=Meters, rotation=30}"
    path = save(tmp_path / "x.hdr", values(), **{"map info": info})
    with rasterio.open(path.with_suffix(".img")) as file:
        assert tuple(file.transform)[:6] == pytest.approx(read(path).transform)


def test_map_info_replaces_a_damaged_coordinate_string(original):
    cube = read(original("samson_1.img.hdr"))
    assert rasterio.CRS.from_wkt(cube.crs) == UTM
    assert cube.transform == (1, 0, 612730.910, 0, -1, 4074488.708)
    assert cube.shape == (95, 95, 156)
    assert cube.nanometres[[0, -1]] == pytest.approx([400.938721, 899.074585])


def test_header_offset(tmp_path):
    X = values("i2")
    save(tmp_path / "x.hdr", X, interleave="bip")
    data = tmp_path / "x.img"
    data.write_bytes(b"seven!!" + data.read_bytes())
    header = tmp_path / "x.hdr"
    header.write_text(header.read_text().replace("header offset = 0", "header offset = 7"))
    assert np.array_equal(read_all(read(header)), X)


CHANGED = [  # what stands in the header, what replaces it, and what the error says
    ("lines = 3\n", "", '"lines" missing from header'),
    ("ENVI", "ENVY", "cannot be read as an ENVI header"),
    ("lines = 3", "lines = 30", r"makes 2,400 bytes, but the file has 240"),
    ("lines = 3", "lines = many", "lines = many: expected a number"),
    ("samples = 5", "samples = 0", "samples = 0: expected an integer of at least 1"),
    ("bands = 4", "bands = -4", "bands = -4: expected an integer of at least 1"),
    ("offset = 0", "offset = -8", "offset = -8: expected an integer of at least 0"),
    ("lines = 3", "lines = 2000000000", "160,000,000,000 bytes, but the file has 240"),
    ("lines = 3", "lines = 1" + "0" * 40, "bytes, but the file has 240"),
    ("data type = 4", "data type = 7", "data type = 7: it must be one of 1, 2, 3, 4, 5, 12"),
    ("data type = 4", "data type = 6", "data type = 6: it must be one of 1, 2, 3, 4, 5, 12"),
    ("= bip", "= bib", "interleave = bib: it must be one of bsq, bil, bip"),
    ("byte order = 0", "byte order = 2", "byte order = 2: it must be one of 0, 1"),
    ("ENVI Standard", "ENVI Spectral Library", "is a spectral library"),
]
ADDED = {
    "wavelength = {1, 2": "cannot be read as an ENVI header",
    "wavelength = {1, 2, 3}": "wavelength with 3 entries: expected 4",
    "wavelength = {1, 2, 3, x}": "wavelength = 1, 2, 3, x: expected numbers",
    "bbl = {1, 1}": "bbl with 2 entries: expected 4",
    "bbl = {0, 0, 0, 0}": "all bands are marked as bad",
    "data ignore value = none": "data ignore value = none: expected a number",
    "major frame offsets = {8}": "frame offsets are not supported",
    "reflectance scale factor = 0": "it must be greater than 0",
    "reflectance scale factor = inf": "it must be greater than 0",
}


@pytest.mark.parametrize(("old", "new", "sentence"), CHANGED + [("", line, ADDED[line]) for line in ADDED])
def test_a_broken_header_gives_a_clear_error(tmp_path, old, new, sentence):
    header = save(tmp_path / "x.hdr", values(), interleave="bip")
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new, 1) if old else f"{text}{new}\n")
    with pytest.raises(ValueError, match=sentence):
        read(header)


def test_files_that_are_missing_or_cut_off(tmp_path):
    header = save(tmp_path / "x.hdr", values(), interleave="bsq")
    data = tmp_path / "x.img"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"x\.img is too short.*240 bytes, but the file has 239"):
        read(header)
    data.unlink()
    with pytest.raises(FileNotFoundError, match="has no data file beside it"):
        read(header)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read(tmp_path)
    header.write_bytes(b"ENVI\n\xff\xfe\x00 = \x80")
    with pytest.raises(ValueError, match="cannot be read as an ENVI header"):
        read(header)
    (tmp_path / "y.xyz").write_text("hello")
    with pytest.raises(ValueError, match=r"y\.xyz cannot be read\. Supported are ENVI \(with its header\), GeoTIFF"):
        read(tmp_path / "y.xyz")
    for name in ("a.mat", "a.npy", "a.npz", "a.tif"):
        start = {"npy": b"\x93NUMPY", "npz": b"PK\x03\x04", "tif": b"II*\0", "mat": b"MATLAB 5.0"}[name[2:]]
        (tmp_path / name).write_bytes(start + b"nonsense" * 40)
        with pytest.raises(ValueError, match=rf"a\.{name[2:]}"):
            read(tmp_path / name)


def write_tif(path, X, **options):
    options = {"crs": UTM, "transform": rasterio.Affine(10, 0, 1000, 0, -20, 2000)} | options
    with rasterio.open(
        path, "w", driver="GTiff", height=X.shape[0], width=X.shape[1], count=X.shape[2], dtype=X.dtype, **options
    ) as file:
        file.write(X.transpose(2, 0, 1))
        for band, wave in enumerate(WAVES, start=1):
            file.update_tags(band, wavelength=wave, wavelength_units="Nanometers")
            file.set_band_description(band, f"band {band}")
    return path


def test_geotiff(tmp_path):
    X = values("u2")
    cube = read(write_tif(tmp_path / "x.tif", X, nodata=7))
    assert np.array_equal(read_all(cube), X)
    assert np.array_equal(cube.read(1, 2), X[1:2])
    assert cube.wavelengths.tolist() == WAVES
    assert cube.nanometres.tolist() == WAVES
    assert cube.band_names[1] == "band 2"
    assert cube.ignore_value == 7
    assert cube.transform == (10, 0, 1000, 0, -20, 2000)
    assert rasterio.CRS.from_wkt(cube.crs) == UTM


def test_band_names_of_a_geotiff(tmp_path):
    path = write_tif(tmp_path / "x.tif", values("u2"))
    with rasterio.open(path, "r+") as file:
        file.descriptions = ("blue", "green", None, "near")
    cube = read(path)
    assert cube.band_names == ["blue", "green", "", "near"]
    assert bands_to_show(replace(cube, wavelengths=None)) == ([2, 2, 1], "false colour (bands 3, 3, green)")


def test_geotiff_with_scales_and_mask(tmp_path):
    X = values("i2")
    path = write_tif(tmp_path / "x.tif", X, nodata=None)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = [0.5] * 4, [0.0] * 4
        file.write_mask(np.arange(15).reshape(3, 5) > 2)
    cube = read(path)
    assert cube.scale == 0.5
    assert np.array_equal(read_all(cube), X)
    assert cube.mask.ravel().tolist() == [False] * 3 + [True] * 12
    path = write_tif(tmp_path / "y.tif", X, nodata=int(X[0, 0, 0]))
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = [0.5, 1, 1, 1], [0.0, 0, 0, -3.0]
    cube = read(path)
    expected = X * np.array([0.5, 1, 1, 1]) + np.array([0, 0, 0, -3.0])
    assert np.isnan(read_all(cube)[0, 0, 0])
    fine = X[0, 0, 0] != X
    assert read_all(cube)[fine] == pytest.approx(expected[fine])


def write_73(path, **arrays):
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            file[name] = np.transpose(value)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


@pytest.mark.short("starts readers in processes of their own")
@pytest.mark.parametrize("version", [5, 7.3])
def test_matlab(tmp_path, version):
    def write(**arrays):
        path = tmp_path / f"x{len(list(tmp_path.iterdir()))}.mat"
        return write_73(path, **arrays) if version == 7.3 else savemat(path, arrays) or path

    X = values("f8")
    matrix = X.transpose(2, 1, 0).reshape(4, 15)  # bands × pixels; pixels run down the columns of the image
    size = {"nRow": np.array([[3]]), "nCol": np.array([[5]])}
    for name, arrays in {
        "V": {"V": matrix, **size},
        "Y": {"Y": matrix, **size, "other": np.ones((2, 2))},
        "X": {"X": matrix.T, **size},
        "indian": {"indian": X, "gt": np.ones((3, 5))},
        "cube": {"cube": X, "second": X},
    }.items():
        cube = read(write(**arrays))
        assert np.array_equal(read_all(cube), X), name
        assert cube.variable == name
        assert np.array_equal(cube.read(1, 2), X[1:2])
    square = X[:, :3]
    cube = read(write(V=square.transpose(2, 1, 0).reshape(4, 9)))
    assert np.array_equal(read_all(cube), square)
    cube = read(write(a=X, b=2 * X, wavelength=np.array([WAVES])), variable="b")
    assert np.array_equal(read_all(cube), 2 * X)
    assert cube.wavelengths.tolist() == WAVES
    with pytest.raises(ValueError, match=r"more than one array of three dimensions.*--variable.*a 3×5×4, b 3×5×4"):
        read(write(a=X, b=X))
    with pytest.raises(ValueError, match=r"has no numeric cube or matrix 'c'\. It holds a 3×5×4"):
        read(write(a=X), variable="c")
    with pytest.raises(ValueError, match=r"no array of three dimensions.*nothing of two or three dimensions"):
        read(write(a=np.ones((1, 3))))
    with pytest.raises(ValueError, match="15 pixels are not 4 × 4: the file needs nRow and nCol"):
        read(write(V=matrix))


def test_npy_and_npz(tmp_path):
    X = values("u2")
    np.save(tmp_path / "x.npy", X)
    cube = read(tmp_path / "x.npy")
    assert isinstance(cube.data, Lines)
    assert np.array_equal(read_all(cube), X)
    np.savez(tmp_path / "x.npz", image=X, wavelengths=WAVES)
    cube = read(tmp_path / "x.npz")
    assert cube.variable == "image"
    assert cube.wavelengths.tolist() == WAVES
    assert np.array_equal(read_all(cube), X)
    np.savez(tmp_path / "y.npz", X=X.transpose(1, 0, 2).reshape(15, 4), height=3, width=5, order="F")
    assert np.array_equal(read_all(read(tmp_path / "y.npz")), X)
    np.save(tmp_path / "flat.npy", X[0])
    with pytest.raises(ValueError, match=r"has shape \(5, 4\): a cube needs three non-empty dimensions"):
        read(tmp_path / "flat.npy")
    with pytest.raises(ValueError, match=r"has no variables\. Leave the parameter out"):
        read(tmp_path / "x.npy", variable="V")


@pytest.mark.parametrize(
    ("dims", "axes"),
    [
        (("y", "x", "band"), (0, 1, 2)),
        (("wavelength", "line", "sample"), (2, 0, 1)),
        (("lon", "band", "lat"), (1, 2, 0)),
    ],
)
def test_xarray_by_the_names_of_its_dimensions(dims, axes):
    """The axes are numbered as in a cube: lines, samples, bands."""
    X = values("f4")
    coords = {dims[axes.index(0)]: [100.0, 90.0, 80.0], dims[axes.index(1)]: np.arange(5) * 2.0}
    coords["wavelength"] = (dims[axes.index(2)], WAVES, {"units": "nm"})
    array = xarray.DataArray(X.transpose(axes), dims=dims, coords=coords, attrs={"_FillValue": -1.0}, name="field")
    for given in (array, array.chunk({dims[0]: 1})):
        cube = read(given)
        assert np.array_equal(read_all(cube), X)
        assert np.array_equal(cube.read(1, 2), X[1:2])
        assert cube.wavelengths.tolist() == WAVES
        assert cube.nanometres.tolist() == WAVES
        assert cube.transform == (2, 0, -1, 0, -10, 105)
        assert (cube.ignore_value, cube.name) == (-1, "field")
    with pytest.raises(ValueError, match=r"it needs three, lines, samples and bands\. Name them y, x and band"):
        read(xarray.DataArray(X, dims=("a", "b", "c")))
    with pytest.raises(ValueError, match="it needs three, lines, samples and bands"):
        read(xarray.DataArray(X[0], dims=("y", "x")))


def test_masks(tmp_path):
    X, inside = values(), np.arange(15).reshape(3, 5) % 2
    np.save(tmp_path / "mask.npy", inside)
    envi.save_image(str(tmp_path / "mask.hdr"), inside.astype(np.uint8), force=True)
    savemat(tmp_path / "mask.mat", {"mask": inside.astype(np.uint8)})
    for mask in (inside, tmp_path / "mask.npy", tmp_path / "mask.hdr", str(tmp_path / "mask.mat")):
        assert np.array_equal(read(X, mask=mask).mask, inside == 1)
    with pytest.raises(ValueError, match=r"The mask has shape \(2, 5\), but an array has 3 lines × 5 samples"):
        read(X, mask=inside[:2])


def test_invalid_cubes():
    X = values()
    for arguments, sentence in (
        ({"wavelengths": np.ones(3)}, "4 bands, but 3 wavelengths"),
        ({"band_names": ["a"]}, "4 bands, but 1 band names"),
        ({"good_bands": np.ones(3)}, "4 bands, but 3 good bands"),
        ({"mask": np.ones((2, 2))}, r"The mask has shape \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Cube(X, **arguments)
    with pytest.raises(ValueError, match="has complex64 values"):
        Cube(X.astype(np.complex64))
    with pytest.raises(ValueError, match="There is no band 4 to drop: an array has bands 0 to 3, counted from 0"):
        read(X, drop_bands=[4])
    with pytest.raises(ValueError, match="There is no band -1 to drop") as refused:
        read(X, drop_bands=[0, -1])
    assert "bands 1 to 4, counted from 1" in refused.value.from_one
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
    with pytest.raises(TypeError, match="list is not an image"):
        read([1, 2])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system does not report resident memory")
def test_pages_that_were_read_are_released(tmp_path):
    X = np.ones((64, 256, 64), dtype=np.float32)
    np.save(tmp_path / "x.npy", X)
    cube = Cube(np.load(tmp_path / "x.npy", mmap_mode="r"))

    def resident():
        text = Path("/proc/self/smaps").read_text(encoding="utf-8").split("x.npy")[1]
        return int(text.split("Rss:")[1].split()[0])

    np.asarray(cube.data).sum()
    assert resident() > 1000
    cube.read(0, 64)
    assert resident() < 100


def change_byte(path, offset, value):
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    assert content[offset] != value
    content[offset] = value
    path.write_bytes(content)
    return path


@pytest.mark.long("damage to every value of a file")
def test_one_wrong_byte_in_a_matlab_file_gives_a_clear_error(tmp_path):
    """SciPy's reader crashes on this file."""
    path = tmp_path / "scene.mat"
    savemat(path, {"cube": values("f8")})
    change_byte(path, 184, 0)
    for action in (*READERS, read_scene):
        with pytest.raises(
            ValueError, match=r"scene\.mat is damaged: reading it crashed the reader \(SIGSEGV\)\. Save it"
        ):
            action(path)
    savemat(path, {"dtm": np.ones((4, 6))})
    change_byte(path, 176, 0)
    with pytest.raises(ValueError, match=r"scene\.mat is damaged: reading it crashed the reader"):
        read_documents(path)
    done = subprocess.run(
        [sys.executable, "-m", "onmf", "image", str(path), "-k", "2"],
        capture_output=True, text=True, check=False, timeout=200, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_matlab_files_with_other_types(tmp_path):
    X = values("f8")
    strange = {"struct": {"a": 1.0}, "cell": np.array([np.ones(2), "x"], dtype=object), "text": "hello", "wl": "none"}
    savemat(tmp_path / "x.mat", {"cube": X, **strange})
    cube = read(tmp_path / "x.mat")
    assert np.array_equal(read_all(cube), X)
    assert cube.wavelengths is None
    savemat(tmp_path / "y.mat", {"V": np.ones((4, 15)), "nRow": "three", "nCol": 5.0})
    with pytest.raises(ValueError, match=r"y\.mat: nRow is not a number of lines or samples"):
        read(tmp_path / "y.mat")
    savemat(tmp_path / "z.mat", {"M": strange["struct"]})
    with pytest.raises(ValueError, match=r"z\.mat: M is not a numeric array of 2 dimensions"):
        read_truth(tmp_path / "z.mat", (3, 5, 4))
    savemat(tmp_path / "z.mat", {"M": np.ones((4, 2)), "A": np.ones((15, 2, 1))})
    with pytest.raises(
        ValueError, match=r"z\.mat: its abundances A have shape \(15, 2, 1\), not \(2, 3, 5\), materials × lines"
    ):
        read_truth(tmp_path / "z.mat", (3, 5, 4))
    savemat(tmp_path / "z.mat", {"M": np.ones((4, 2)), "cood": np.array(["a", "b", "c"], dtype=object)})
    assert read_truth(tmp_path / "z.mat", (3, 5, 4)).names is None


@pytest.mark.short("makes large files")
def test_files_that_expand_too_much_are_refused(tmp_path):
    zeros = np.zeros(120_000_000, dtype=np.uint8)
    savemat(tmp_path / "x.mat", {"cube": zeros.reshape(300, 400, 1000)}, do_compression=True)
    np.savez_compressed(tmp_path / "x.npz", cube=zeros.reshape(300, 400, 1000))
    with h5py.File(tmp_path / "v.mat", "w") as file:
        file.create_dataset("cube", shape=(1 << 20, 1 << 20, 1 << 10), dtype="u1", chunks=(1, 1, 1 << 10))
    with h5py.File(tmp_path / "w.mat", "w") as file:
        file.create_dataset("cube", shape=(9, 9, 9), maxshape=(None,) * 3, chunks=(1000, 1000, 500), dtype="u1")
    with rasterio.open(
        tmp_path / "x.tif", "w", driver="GTiff", width=100_000, height=100_000, count=1, dtype="uint8",
        sparse_ok=True, tiled=True, transform=rasterio.Affine(2, 0, 0, 0, -2, 0),
    ):  # fmt: skip
        pass
    for name in ("x.mat", "x.npz", "v.mat", "w.mat", "x.tif"):
        assert (tmp_path / name).stat().st_size < 2_000_000
        sentence = "more than 1000000 chunks" if name == "v.mat" else "grows to more than 250 times its length"
        with pytest.raises(ValueError, match=rf"{name[0]}\.{name[2:]} .*{sentence}"):
            read(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
def test_an_array_that_claims_4_gigabytes(tmp_path):
    path = tmp_path / "x.mat"
    savemat(path, {"cube": values("f8")})
    content = path.read_bytes()
    assert content[184:192] == (9).to_bytes(4, "little") + (480).to_bytes(4, "little"), (
        "type float64, and the number of bytes"
    )
    path.write_bytes(content[:188] + (2**32 - 8).to_bytes(4, "little") + content[192:])
    with pytest.raises(
        ValueError, match=r"x\.mat takes more than 300 MB to read, more than a file of its length should"
    ):
        read(path)


def test_a_damaged_hdf5_file_gives_a_clear_error(tmp_path):
    """HDF5 itself crashes on some damaged files, such as this one, whose chunks have the wrong size."""
    X = values("u2", (5, 3, 4))
    path = tmp_path / "x.mat"
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=X.transpose(2, 1, 0), chunks=(2, 3, 5), compression="gzip", shuffle=True)
    cube = read(path)
    assert np.array_equal(read_all(cube), X)
    assert np.array_equal(pickle.loads(pickle.dumps(cube)).read(1, 2), X[1:2])
    content = path.read_bytes()
    chunk = np.array([2, 3, 5, 2], dtype="<u4").tobytes()
    assert content.count(chunk) == 1
    offset = content.index(chunk)
    for size in ([2, 3, 16_777_221, 2], [2, 3, 5, 200], [0, 3, 5, 2], [2, 2**31, 5, 2]):
        path.write_bytes(content[:offset] + np.array(size, dtype="<u4").tobytes() + content[offset + 16 :])
        with pytest.raises(ValueError, match=r"x\.mat"):
            read_all(read(path))
    for n in range(0, len(content), 1000):
        path.write_bytes(content[:n])
        with pytest.raises(ValueError, match=r"x\.mat"):
            read_all(read(path))


@pytest.fixture
def server():
    """A local server that records its requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", requests
        running.shutdown()
        thread.join()


def vrt(source, size=(5, 3)):
    return f"""<VRTDataset rasterXSize="{size[0]}" rasterYSize="{size[1]}"><VRTRasterBand dataType="Byte" band="1">
    <SimpleSource><SourceFilename relativeToVRT="0">{source}</SourceFilename><SourceBand>1</SourceBand></SimpleSource>
    </VRTRasterBand></VRTDataset>"""


def test_a_raster_opens_no_other_file_and_no_connection(tmp_path, server):
    """Some GDAL drivers open other files and web addresses, whatever the extension of the file."""
    address, requests = server
    foreign = write_tif(tmp_path / "foreign.tif", values("u1"))
    wms = f"""<GDAL_WMS><Service name="TMS"><ServerUrl>{address}/${{z}}/${{x}}/${{y}}.png</ServerUrl></Service>
    <DataWindow><UpperLeftX>0</UpperLeftX><UpperLeftY>0</UpperLeftY><LowerRightX>9</LowerRightX><LowerRightY>9</LowerRightY>
    <SizeX>5</SizeX><SizeY>3</SizeY><TileLevel>1</TileLevel></DataWindow><BandsCount>1</BandsCount></GDAL_WMS>"""
    texts = {
        "a.tif": vrt(foreign),
        "b.tif": vrt(f"/vsicurl/{address}/x.tif"),
        "c.tif": wms,
        "d.img": vrt(foreign),
        "e.png": vrt(foreign),
        "f.tif": f"{address}/x.tif",
        "g.tif": f"GTIFF_DIR:1:{foreign}",
    }
    with rasterio.open(tmp_path / "foreign.tif") as file:
        assert file.driver == "GTiff"
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text)
        for action in (*READERS, lambda path: cluster(path, 2)):
            with pytest.raises(
                ValueError, match=rf"{name[0]}\.{name[2:]} cannot be read\. Supported are ENVI .*GeoTIFF.*\. Convert"
            ):
                action(path)
    for path in (f"/vsicurl/{address}/x.tif", f"{address}/x.tif", f"GTIFF_DIR:1:{foreign}", f"vrt://{foreign}"):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            read(path)
        with pytest.raises(FileNotFoundError, match="does not exist"):
            read(values(), mask=path)
    # Beside a GeoTIFF: a mask, overviews and metadata that refer to other files.
    X = values("u2")
    for number, source in enumerate((foreign, f"/vsicurl/{address}/x.tif")):
        path = write_tif(tmp_path / f"scene{number}.tif", X, nodata=None)
        notes = (
            f'<PAMDataset><Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{source}</MDI></Metadata></PAMDataset>'
        )
        for ending, text in (("msk", vrt(source)), ("ovr", vrt(source)), ("aux.xml", notes)):
            path.with_name(f"{path.name}.{ending}").write_text(text)
        with rasterio.open(path, "r+") as file:
            file.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(source))
        cube = read(path)
        assert np.array_equal(read_all(cube), X)
        assert cube.mask is None
    assert requests == []
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address + "/here", timeout=100)
    refused.value.close()
    assert requests == ["/here"], "the server records requests"


def test_files_beside_a_raster_that_are_read(tmp_path):
    X = values("u1")
    inside = np.arange(15).reshape(3, 5) > 2
    path = tmp_path / "x.tif"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_tif(path, X, nodata=None, transform=None, crs=None)
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(path, "r+") as file:
            file.write_mask(inside)
    assert path.with_name("x.tif.msk").exists()
    (tmp_path / "x.tfw").write_text("10\n1\n2\n-20\n1006\n1990.5\n")
    cube = read(path)
    assert np.array_equal(cube.mask, inside)
    with rasterio.open(path) as file:
        assert cube.transform == pytest.approx(tuple(file.transform)[:6])
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(write_tif(tmp_path / "y.tif", X, nodata=None), "r+") as file,
    ):
        file.write_mask(inside)
    assert not (tmp_path / "y.tif.msk").exists()
    assert np.array_equal(read(tmp_path / "y.tif").mask, inside)
    plane = (100 * inside).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with rasterio.open(tmp_path / "z.png", "w", driver="PNG", width=5, height=3, count=1, dtype="uint8") as file:
            file.write(plane, 1)
    assert np.array_equal(read(X, mask=tmp_path / "z.png").mask, inside)


def test_a_header_opens_no_other_file(tmp_path):
    X = values()
    save(tmp_path / "x.hdr", X)
    (tmp_path / "secret.img").write_bytes(bytes(240))
    header = tmp_path / "x.hdr"
    for key in ("data file", "image", "file name", "data", "path"):
        header.write_text(header.read_text() + f"{key} = {tmp_path / 'secret.img'}\n")
    assert np.array_equal(read_all(read(header)), X)


@pytest.mark.parametrize("name", ["bsq.hdr", "bil.hdr", "bip.hdr", "c.npy", "f.npy"])
def test_data_that_change_after_opening(tmp_path, name):
    """A memory map would crash the process when the file shrinks."""
    X = np.random.default_rng(0).random((64, 32, 40))
    path = tmp_path / name
    if name.endswith("npy"):
        np.save(path, np.asarray(X, order=name[0].upper()))
        data = path
    else:
        save(path, X, interleave=name[:3])
        data = path.with_suffix(".img")
    cube = read(path)
    assert np.array_equal(read_all(cube), X)
    assert np.array_equal(np.asarray(cube.data), X)
    assert np.array_equal(pickle.loads(pickle.dumps(cube)).read(60, 64), X[60:])
    first = cube.read(0, 2)
    cube.read(2, 4)
    assert np.array_equal(first, X[:2]), "blocks share no memory"
    content, before = data.read_bytes(), data.stat()
    os.truncate(data, 5000)
    for action in (
        read_all,
        lambda cube: cube.read(60, 64),
        lambda cube: cube.pixel(63, 0),
        lambda cube: cluster(cube, 2),
    ):
        with pytest.raises(ValueError, match=rf"{data.name} changed while it was read"):
            action(cube)
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    cube.data.state = (5000, before.st_mtime_ns)  # as if it had shrunk right after the check
    with pytest.raises(ValueError, match=rf"{data.name} changed while it was read"):
        read_all(cube)
    data.write_bytes(content[:-1] + b"\0")
    with pytest.raises(ValueError, match=rf"{data.name} changed while it was read"):
        read_all(cube)
    assert read_all(read(path)).shape == X.shape


def npy(text, data=b"x" * 80):
    """Return an npy file with this text as its header."""
    head = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000, 1000)}",
            "makes 8,000,000,000,000,128 bytes",
        ),
        ("{'descr': '<f8', 'fortran_order': True, 'shape': (10, 1, 2)}", "which makes 288 bytes, but it has 208"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 1, 1)}", "claims the shape"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1, 1)}", "has object values"),
        ("{'descr': '<c16', 'fortran_order': False, 'shape': (1, 1, 1)}", "has complex128 values"),
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1, 1)}",
            "needs three non-empty dimensions|0 numeric matrices",
        ),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': 7}", "cannot be read as npy"),
        ("[" * 100, "cannot be read as npy"),
        ("__import__('os').getpid()", "cannot be read as npy"),
    ],
)
def test_npy_files_with_invalid_headers(tmp_path, header, sentence):
    path = tmp_path / "x.npy"
    path.write_bytes(npy(header))
    with pytest.raises(ValueError, match=rf"x\.npy.*({sentence})"):
        read(path)
    with pytest.raises(ValueError, match=rf"x\.npy.*({sentence})"):
        read(values(), mask=path)
    with pytest.raises(ValueError, match=r"x\.npy"):
        read_truth(path, (3, 5, 4))


def test_invalid_npz_files(tmp_path):
    X = values("u2")
    path = tmp_path / "x.npz"
    pixels = X.reshape(15, 4)
    for arrays, sentence in (
        ({"X": pixels, "height": "three", "width": 5}, "height is not a number of lines"),
        ({"X": pixels, "height": [3, 3], "width": 5}, "height is not a number of lines"),
        ({"X": pixels, "height": 4, "width": 5}, r"X has shape \(15, 4\), and 15 pixels are not 4 × 5"),
        ({"X": pixels, "height": 3, "width": 5, "scale_num": 1, "scale_den": 0}, "scale_num and scale_den must"),
        ({"X": pixels, "height": 3, "width": 5, "scale_num": "a", "scale_den": 1}, "scale_num and scale_den must"),
        ({"image": pixels}, "image has shape"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=rf"x\.npz: {sentence}"):
            read(path)
    np.savez(path, image=X, wavelengths=["a", "b"])
    assert read(path).wavelengths is None
    buffer = io.BytesIO()
    np.savez(buffer, image=X)
    content = buffer.getvalue()
    header = content.index(b"(3, 5, 4)")
    path.write_bytes(content[:header] + b"(3,5,10**)"[:9] + content[header + 9 :])
    with pytest.raises(ValueError, match=r"x\.npz cannot be read as npz"):
        read(path)
    path.write_bytes(content[:-40])
    with pytest.raises(ValueError, match=r"x\.npz cannot be read as npz: it is damaged, or not a zip archive"):
        read(values(), mask=path)


def test_headers_that_are_long_or_odd(tmp_path):
    header = save(tmp_path / "x.hdr", values(), interleave="bip")
    text = header.read_text()
    for more in ("\n" * 60_000, "band names = {" + "x" * 11_000_000 + "}\n"):
        header.write_text(text + more)
        with pytest.raises(ValueError, match=r"x\.hdr is not an ENVI header: it is too long for one"):
            read(header)
    for info in ("rotation=north", "rotation=", "rotation=inf"):
        header.write_text(text + f"map info = {{UTM, 1, 1, 0, 0, 1, 1, 10, North, WGS-84, {info}}}\n")
        assert read(header).transform is None
    header.write_text(text + "map info = {UTM, nan, 1, 0, 0, 1, 1, 10, North, WGS-84}\n")
    assert read(header).transform is None


def test_invalid_truths(tmp_path):
    shape = (3, 5, 4)
    library = {"file type": "ENVI Spectral Library", "spectra names": ["a", "b"]}
    header = save(tmp_path / "x.hdr", np.ones((2, 4, 1), np.float32), ext=".sli", interleave="bsq", **library)
    text = header.read_text().replace("ENVI Standard", "ENVI Spectral Library")
    header.write_text(text)
    assert read_truth(header, shape).names == ["a", "b"]
    for old, new, sentence in (
        ("lines = 2", "lines = 2000000000", r"x\.sli is too short"),
        ("lines = 2", "lines = 1", "lines = 1, but its list spectra names has another length"),
        ("lines = 2", "lines = two", "expected a number"),
        ("samples = 4\n", "", '"samples" missing from header'),
    ):
        assert old in text
        header.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=sentence):
            read_truth(header, shape)
    for content, sentence in (
        (b"a,b\n1,2,3\n", "has 2 names, but its lines of numbers have another length"),
        (b"a,b\n1,2\n1\n", "Expected a line of names, then a line of numbers for each band"),
        (b"band\n1\n", "has 1 names"),
        (b"\xff\xfe", "cannot be read as a table"),
        (b'"' + b"x" * 200_000, "cannot be read as a table"),
    ):
        (tmp_path / "x.csv").write_bytes(content)
        with pytest.raises(ValueError, match=rf"x\.csv.*{sentence}"):
            read_truth(tmp_path / "x.csv", shape)
    np.save(tmp_path / "x.npy", np.full((3, 5), np.inf))
    assert read_truth(tmp_path / "x.npy", shape).names == ["class inf"]
