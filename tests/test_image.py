"""Clustering of images: the paper's scenes, pixels without data, round trips through files, and the command line."""

import csv
import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import rasterio
import spectral.io.envi as envi
from scipy.io import savemat

import onmf
from conftest import command
from onmf import ONMF
from onmf.datasets import make_scene
from onmf.image import Cube, Truth, cluster, predict, read, read_truth
from onmf.image.cube import Lines
from onmf.image.figures import bands_to_show, colours, composite, thinned
from onmf.image.write import map_info
from onmf.metrics import clustering_accuracy

matplotlib.use("Agg")
import matplotlib.pyplot as plt

UTM = rasterio.CRS.from_epsg(32610)
TRANSFORM = (10.0, 0.0, 1000.0, 0.0, -20.0, 2000.0)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def scene():
    return make_scene(30, 40, 60, 3, random_state=1)


@pytest.fixture(scope="module")
def cube(scene):
    """A scene with coordinates, a bad band, and 5 pixels outside, one of each kind."""
    X = scene.X.reshape(30, 40, 60).astype(np.float32)
    X[0, 0, 7] = np.nan
    X[0, 1] = -9999
    X[0, 2, 59] = -9999
    X[0, 3] = 0
    X[:, :, 5] = -9999
    good = np.arange(60) != 5
    mask = np.ones((30, 40), dtype=bool)
    mask[0, 4] = False
    return Cube(
        X,
        wavelengths=scene.wavelengths,
        wavelength_unit="Nanometers",
        good_bands=good,
        mask=mask,
        ignore_value=-9999,
        crs=UTM.to_wkt(),
        transform=TRANSFORM,
        name="scene",
        source="scene",
    )


@pytest.fixture(scope="module")
def clustering(cube):
    """Three clusters of this scene."""
    return cluster(cube, 3)


@pytest.mark.parametrize("name", ["samson_1.img.hdr", "samson_1.img", "samson_1.mat"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_samson_as_in_the_paper(original, paper_set, name, in_memory):
    negatives = "refuse" if name.endswith(".mat") else "clip"
    clustering = cluster(original(name), 3, negatives=negatives, truth=original("end3.mat"), in_memory=in_memory)
    X, endmembers = paper_set("samson")
    model = ONMF(3).fit(X)
    assert clustering_accuracy(model.labels_, clustering.labels.ravel(order="F")) == 1
    assert clustering.model.n_iter_ == model.n_iter_
    assert f"{clustering.comparison.mrsa:.2f}" == "2.75"
    assert f"{onmf.metrics.mrsa(endmembers, clustering.spectra):.2f}" == "2.75"
    assert sorted(clustering.names) == ["rock", "tree", "water"]
    assert (clustering.cube.crs is None) == name.endswith(".mat")
    assert any("782 negative" in note for note in clustering.notes) == (negatives == "clip")


@pytest.mark.short("a claim of README")
def test_water_of_jasper_ridge(original):
    clustering = cluster(original("jasperRidge2_R198.mat"), 4, truth=original("end4.mat"))
    assert f"{clustering.comparison.mrsa:.2f}" == "3.64"
    truth = read_truth(original("end4.mat"), clustering.cube.shape)
    water = truth.labels == truth.names.index("water")
    mapped = clustering.labels == clustering.names.index("water")
    assert (water & mapped).sum() / (water | mapped).sum() > 0.95
    variable, smoothing = clustering.notes
    assert variable == "The cube is the variable Y of jasperRidge2_R198.mat."
    assert smoothing.startswith(
        "Without smoothing, 6.5% of the pixels would be in another cluster: 0.001 is 20% of a mean"
    )
    assert cluster(original("jasperRidge2_R198.mat"), 4).names == [
        "high in the middle",
        "dark and falling",
        "bright and high in the middle",
        "flat",
    ]


def test_negatives_are_refused_with_their_number(original):
    with pytest.raises(
        ValueError, match=r"782 negative values \(first: line 0, sample 57, band 0 = -12, .*--negatives clip"
    ):
        cluster(original("samson_1.img"), 3)
    cluster(original("samson_1.img"), 3, beta_loss="frobenius")


def test_the_command_counts_pixels_and_bands_from_1(tmp_path):
    X = np.ones((3, 4, 5))
    X[1, 2, 3] = -7
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=r"first: line 1, sample 2, band 3 = -7, counted from 0"):
        cluster(X, 2)
    done = command("image", tmp_path / "x.npy", "-k", 2)
    assert done.returncode == 2
    assert "first: line 2, sample 3, band 4 = -7, counted from 1" in done.stderr


def test_unassigned_pixels(cube, clustering):
    assert np.argwhere(clustering.labels == -1).tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]]
    for values in (clustering.scales, clustering.residuals, clustering.margins, clustering.confidence):
        assert np.array_equal(np.isnan(values), clustering.labels == -1)
    assert np.array_equal(clustering.runners_up == -1, clustering.labels == -1)
    assert clustering.spectra.shape == (3, 59)
    assert clustering.sizes.sum() == 1195
    assert clustering.notes == [
        "5 of 1,200 pixels are unassigned (-1): 1 are masked, 4 hold no data.",
        "1 of 60 bands are bad and are not used.",
    ]
    with pytest.raises(ValueError, match="has no pixel to cluster"):
        cluster(Cube(np.zeros((2, 2, 3))), 1)
    with pytest.raises(ValueError, match=r"1196 clusters of 1,195 pixels \(5 pixels more cannot be"):
        cluster(cube, 1196)


def test_an_ignore_value_of_zero_needs_all_bands():
    X = np.random.default_rng(0).integers(0, 3, (6, 7, 5))
    X[0, 0] = 0
    clustering = cluster(Cube(X, ignore_value=0), 2)
    assert np.array_equal(clustering.labels == -1, (X == 0).all(axis=2))
    assert (X[clustering.labels >= 0] == 0).any()


def test_values_that_no_sensor_measures():
    X = np.ones((3, 3, 4))
    X[1, 1, 1] = 1e200
    with pytest.raises(ValueError, match=r"has values beyond 1e\+30.*--ignore"):
        cluster(X, 2)
    X[1, 1, 1] = np.inf
    assert cluster(np.random.default_rng(0).random(X.shape) + X, 2).labels[1, 1] == -1
    with pytest.raises(ValueError, match="has 1 values that are not positive"):
        cluster(np.arange(27.0).reshape(3, 3, 3), 2, beta_loss="itakura-saito")
    with pytest.raises(ValueError, match="negatives='drop' is not allowed"):
        cluster(X, 2, negatives="drop")
    with pytest.raises(ValueError, match="n_clusters='many' is not allowed"):
        cluster(X, "many")


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine", 1.5])
def test_a_pixel_is_its_scale_times_its_spectrum(cube, loss):
    clustering = cluster(cube, 3, beta_loss=loss)
    inside = clustering.labels >= 0
    X = cube.read(0, 30)[inside].astype(float)
    Y = clustering.scales[inside][:, None] * clustering.spectra[clustering.labels[inside]]
    residual_ss, total_ss = ((X - Y) ** 2).sum(), ((X - X.mean(axis=0)) ** 2).sum()
    assert residual_ss < 0.05 * total_ss
    for k in range(3):
        assert clustering.scales[clustering.labels == k].mean() == pytest.approx(1, rel=1e-5)
    if loss == "kullback-leibler":
        means = [X[clustering.labels[inside] == k].mean(axis=0) for k in range(3)]
        assert clustering.spectra == pytest.approx(np.array(means), rel=1e-6)
        residual = (X * np.log(np.where(X > 0, X, 1) / Y) - X + Y).sum(axis=1) / X.sum(axis=1)
        assert clustering.residuals[inside] == pytest.approx(residual, rel=1e-3, abs=1e-6)
    assert (clustering.margins[inside] >= 0).all()
    assert clustering.margins[inside] == pytest.approx(clustering.model.margins_, rel=1e-5, abs=1e-7)


def test_blocks_give_the_same_result_as_memory(cube, monkeypatch):
    monkeypatch.setattr("onmf.image.cube.BLOCK", 30_000)
    steps = []
    expected = cluster(cube, 3, in_memory=True)
    clustering = cluster(cube, 3, in_memory=False, progress=lambda step, share: steps.append(step))
    assert np.array_equal(clustering.labels, expected.labels)
    assert clustering.spectra == pytest.approx(expected.spectra, rel=1e-9)
    assert clustering.confidence == pytest.approx(expected.confidence, rel=1e-5, nan_ok=True)
    assert np.array_equal(clustering.runners_up, expected.runners_up)
    assert np.array_equal(np.isnan(clustering.residuals), np.isnan(expected.residuals))
    assert clustering.notes[-1] == (
        "The pixels were read in 10 blocks, and the start comes from 1,195 of them, evenly spread (SNPA chose its "
        "pixels)."
    )
    assert list(dict.fromkeys(steps)) == ["Looking for pixels", "Clustering", "Measuring confidence"]
    assert (clustering.model.engine, clustering.model.init, clustering.model.n_threads) == ("auto", "auto", None)
    monkeypatch.setattr("onmf.image.fit.START_SAMPLE", 100)
    for init in ("snpa", "++", expected.model.cluster_centers_):
        other = cluster(cube, 3, in_memory=False, init=init, random_state=0)
        assert clustering_accuracy(expected.labels.ravel(), other.labels.ravel()) > 0.99
    with pytest.raises(ValueError, match="refine='local-search' is not allowed for an image that is read by blocks"):
        cluster(cube, 3, in_memory=False, refine="local-search")


@pytest.mark.long("larger data")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems report peak memory in other units")
def test_a_large_file_needs_little_memory(tmp_path):
    """The file has 480 MB; only a few blocks are in memory at a time."""
    header = "ENVI\nsamples = 1000\nlines = 1000\nbands = 120\ndata type = 4\ninterleave = {}\nbyte order = 0\n"
    spectra = np.random.default_rng(0).integers(1, 50, (3, 120)).astype(np.float32)
    with (tmp_path / "x.img").open("wb") as file:
        for line in range(1000):
            (spectra[(line // 100 + np.arange(1000) // 250) % 3] * (1 + line % 7)).tofile(file)
    (tmp_path / "x.hdr").write_text(header.format("bip"))
    code = f"""
        import resource
        import numpy as np
        from onmf.image import cluster
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        cluster(np.random.default_rng(0).random((20, 20, 120), dtype=np.float32), 3, in_memory=False, tol=1)
        before = peak()
        clustering = cluster({str(tmp_path / "x.img")!r}, 3, in_memory=False)
        print(peak() - before, *sorted(clustering.sizes))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, *sizes = map(float, done.stdout.split())
    assert sizes == [325_000, 325_000, 350_000]
    assert grown < 300, "of 458 MiB on disk"


@pytest.mark.short("a promise of the guide")
def test_the_number_of_materials():
    for k, k_max in ((2, 12), (3, None), (4, 12)):
        scene = make_scene(40, 50, 80, k, random_state=3)
        clustering = cluster(scene.X.reshape(40, 50, 80), "auto", k_max=k_max)
        assert len(clustering.spectra) == k
        note = f"{k} clusters were chosen of 2 to {k_max or 60}: halves of the pixels agree on them to 1.00"
        assert note in clustering.notes[-1]


def test_a_choice_that_cannot_be_is_refused(cube):
    with pytest.raises(ValueError, match="X has negative entries, so the number of clusters cannot be chosen: give a"):
        cluster(np.full((4, 5, 3), -1.0), "auto", beta_loss="frobenius")
    with pytest.raises(ValueError, match=r"k_max=5 is about choosing .* use n_clusters='auto', or leave out k_max"):
        cluster(cube, 3, k_max=5, negatives="clip")
    with pytest.raises(ValueError, match="k_max=1000000 is too large for"):
        cluster(cube, "auto", k_max=1_000_000, negatives="clip")


def test_predict_another_image_of_the_sensor(cube, scene, tmp_path):
    clustering = cluster(cube, 3, negatives="clip")
    clustering.save(tmp_path / "out")
    model = onmf.load(tmp_path / "out" / "model.onmf")
    brighter = replace(cube, data=np.where(cube.data == -9999, -9999, 2 * cube.data))
    for fitted in (clustering, model):
        again = predict(fitted, cube)
        assert np.array_equal(again.labels, clustering.labels)
        assert again.scales == pytest.approx(clustering.scales, rel=1e-5, nan_ok=True)
        assert again.confidence == pytest.approx(clustering.confidence, rel=1e-5, nan_ok=True)
        assert np.array_equal(again.runners_up, clustering.runners_up)
        assert again.names == clustering.names
        twice = predict(fitted, brighter)
        assert twice.scales == pytest.approx(2 * clustering.scales, rel=1e-5, nan_ok=True)
        assert twice.spectra == pytest.approx(clustering.spectra)
    assert again.negatives == "clip"
    used = Cube(cube.read(0, 30), wavelengths=cube.wavelengths[cube.good_bands], ignore_value=-9999)
    assert (predict(model, used).labels[1:] == clustering.labels[1:]).all(), "without the bad band"
    with pytest.raises(ValueError, match=r"has 58 bands, but the model was fitted on 60, of which it uses 59"):
        predict(model, Cube(cube.data[:, :, :58], source="other"))
    shifted = replace(cube, wavelengths=cube.wavelengths + 40)
    with pytest.raises(ValueError, match=r"used band 0 lies at 440\.0 nm, and at 400\.0 nm in the model"):
        predict(model, shifted)
    assert (
        predict(model, replace(cube, wavelengths=cube.wavelengths / 1e3, wavelength_unit="um")).labels
        == clustering.labels
    ).all()
    with pytest.raises(ValueError, match="This is a model of kind 'matrix': pixels need one of kind 'image'"):
        predict(ONMF(2).fit(np.ones((3, 2)) + np.eye(3, 2)), cube)


def test_round_trips(clustering, tmp_path):
    clustering = replace(clustering, names=["water, deep", "tree", "grün"])
    folder = clustering.save(tmp_path / "out")
    with rasterio.open(folder / "map.tif") as file:
        assert np.array_equal(file.read(1).astype(int) - 1, clustering.labels)
        assert (file.nodata, file.crs, tuple(file.transform)[:6]) == (0, UTM, TRANSFORM)
        assert [file.tags(1)[f"CLASS_{k}"] for k in range(4)] == ["unassigned", *clustering.names]
        assert np.array_equal(file.dataset_mask() > 0, clustering.labels >= 0)
        table = file.colormap(1)
        shades = [tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in colours(clustering.names)]
        assert [table[k][:3] for k in (1, 2, 3)] == shades
    assert "<Category>grün</Category>" in (folder / "map.tif.aux.xml").read_text("utf-8")
    with rasterio.open(folder / "runner_up.tif") as file:
        assert np.array_equal(file.read(1).astype(int) - 1, clustering.runners_up)
        assert file.nodata == 0
    for name in ("scales", "residuals", "margins", "confidence", "surprise"):
        with rasterio.open(folder / f"{name}.tif") as file:
            assert np.array_equal(file.read(1), getattr(clustering, name), equal_nan=True)
            assert np.isnan(file.nodata)
            assert (file.crs, tuple(file.transform)[:6]) == (UTM, TRANSFORM)
    image = envi.open(str(folder / "map.hdr"))
    assert np.array_equal(image.read_band(0).astype(int) - 1, clustering.labels)
    header = image.metadata
    assert header["file type"] == "ENVI Classification"
    assert header["class names"] == ["unassigned", "water; deep", "tree", "grün"]
    assert [int(word) for word in header["class lookup"][3:]] == [part for shade in shades for part in shade]
    assert (header["classes"], header["data ignore value"]) == ("4", "0")
    again = read(folder / "map.hdr")
    assert again.transform == TRANSFORM
    assert rasterio.CRS.from_wkt(again.crs) == UTM
    with rasterio.open(folder / "map.img") as file:  # GDAL reads the header in the same way
        assert tuple(file.transform)[:6] == pytest.approx(TRANSFORM)
        assert file.crs == UTM
    library = envi.open(str(folder / "spectra.hdr"))
    assert library.names == ["water; deep", "tree", "grün"]
    assert library.bands.centers == pytest.approx(clustering.wavelengths, rel=1e-9)
    assert library.bands.band_unit == "Nanometers"
    assert library.spectra == pytest.approx(clustering.spectra.astype(np.float32))
    with (folder / "spectra.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["band", "wavelength", *clustering.names]
    assert [int(row[0]) for row in rows[1:]] == [b + 1 for b in range(60) if b != 5]
    assert pytest.approx(clustering.spectra, rel=1e-8) == np.array([row[2:] for row in rows[1:]], dtype=float).T
    record = json.loads((folder / "summary.json").read_text("utf-8"))
    assert [c["size"] for c in record["clusters"]] == clustering.sizes.tolist()
    assert record["unassigned"] == 5
    for name in ("map.png", "map.svg", "spectra.png", "spectra.svg", "model.onmf"):
        assert (folder / name).stat().st_size > 1000


@pytest.mark.short("loads the projections of rasterio")
def test_other_coordinate_systems(cube, tmp_path):
    geographic = replace(cube, crs=rasterio.CRS.from_epsg(4326).to_wkt(), transform=(1e-4, 0, 8.5, 0, -1e-4, 47.4))
    angle = np.deg2rad(20)
    rotated = (10 * np.cos(angle), 10 * np.sin(angle), 5.0, 10 * np.sin(angle), -10 * np.cos(angle), 6.0)
    swiss = replace(cube, crs=rasterio.CRS.from_epsg(2056).to_wkt(), transform=rotated)
    for number, given in enumerate((geographic, swiss, replace(cube, crs=None, transform=None))):
        folder = cluster(given, 2).save(tmp_path / str(number))
        again = read(folder / "map.hdr")
        assert (again.transform is None) == (given.transform is None)
        if given.transform is not None:
            assert again.transform == pytest.approx(given.transform)
            assert rasterio.CRS.from_wkt(again.crs) == rasterio.CRS.from_wkt(given.crs)
    assert map_info((1, 0, 2, 0, -1, 3), None)[0] == "Arbitrary"


def test_many_clusters_fit_in_sixteen_bits(tmp_path):
    X = np.eye(300) + 0.001
    clustering = cluster(Cube(X.reshape(15, 20, 300), crs=UTM.to_wkt(), transform=TRANSFORM), 300, init=X)
    folder = clustering.save(tmp_path / "out")
    with rasterio.open(folder / "map.tif") as file:
        assert np.array_equal(file.read(1).astype(int) - 1, clustering.labels)
    assert np.array_equal(envi.open(str(folder / "map.hdr")).read_band(0).astype(int) - 1, clustering.labels)
    assert len(set(colours(clustering.names))) > 250


def test_xarray_and_pictures(clustering):
    dataset = clustering.to_xarray()
    assert np.array_equal(dataset.labels.values, clustering.labels)
    assert dataset.x.values[:2].tolist() == [1005, 1015]
    assert dataset.y.values[:2].tolist() == [1990, 1970]
    assert dataset.spectra.sel(cluster=clustering.names[1]).values == pytest.approx(clustering.spectra[1])
    assert dataset.wavelength.values.tolist() == clustering.wavelengths.tolist()
    ax = clustering.plot_map()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        f"{name} ({size:,})" for name, size in zip(clustering.names, clustering.sizes, strict=True)
    ]
    shown = np.asarray(ax.images[0].get_array())
    assert (shown[0, 0] == 1).all(), "white outside"
    assert len({tuple(colour) for colour in shown[1:].reshape(-1, 3)}) == 3
    ax = clustering.plot_spectra()
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.x0 >= ax.get_window_extent().x1, "outside, so that matplotlib need not search for the best place"
    assert len(ax.lines) == 3
    assert np.isnan(ax.lines[0].get_ydata()[5]), "a gap at the bad band"
    assert ax.get_xlabel() == "wavelength (Nanometers)"
    _, given = plt.subplots()
    assert clustering.plot_map(given) is given


def test_thinned_images(cube, monkeypatch):
    class Slow(Lines):
        shape, dtype = cube.data.shape, cube.data.dtype

        def read(self, start, stop):
            return cube.data[start:stop]

    X = cube.read(0, 30)
    for size in (1, 20_000, 1 << 23):
        monkeypatch.setattr("onmf.image.figures.BATCH", size)
        for given in (cube, replace(cube, data=Slow())):
            for step in (1, 3, 7):
                assert np.array_equal(thinned(given, step), X[::step, ::step], equal_nan=True)
                assert np.array_equal(thinned(given, step, [4, 2]), X[::step, ::step][:, :, [4, 2]], equal_nan=True)


def test_composites(cube, clustering, monkeypatch):
    inside = clustering.labels >= 0
    picture = composite(cube, inside)
    assert picture.picture.shape == (30, 40, 3)
    assert picture.title.startswith("true colour (")
    with monkeypatch.context() as patch:
        patch.setattr("onmf.image.figures.SIDE", 10)
        assert composite(cube, inside).picture.shape == (8, 10, 3)
    infrared = replace(cube, wavelengths=np.linspace(900, 2500, 60))
    assert bands_to_show(infrared)[1].startswith("false colour (")
    assert bands_to_show(replace(cube, wavelengths=None)) == ([44, 29, 14], "false colour (bands 46, 31, 16)")
    micrometres = replace(cube, wavelengths=cube.wavelengths / 1e3, wavelength_unit="Micrometers")
    assert bands_to_show(micrometres) == bands_to_show(cube)


def test_the_command_maps_another_image(cube, tmp_path):
    np.save(tmp_path / "first.npy", np.nan_to_num(cube.read(0, 30), nan=-9999))
    np.save(tmp_path / "other.npy", 3 * np.clip(cube.read(0, 30)[10:], 0, None))
    done = command(
        "image", tmp_path / "first.npy", "-k", 3, "--ignore", -9999, "--out", tmp_path / "out", "--no-report"
    )
    assert done.returncode == 0, done.stderr
    done = command("predict", tmp_path / "out" / "model.onmf", tmp_path / "other.npy", "--out", tmp_path / "mapped")
    assert done.returncode == 0, done.stderr
    assert "20 × 40 pixels, 59 bands, 3 materials" in done.stdout
    first, other = (envi.open(str(tmp_path / name / "map.hdr")).read_band(0) for name in ("out", "mapped"))
    assert np.array_equal(first[10:], other)
    assert (tmp_path / "mapped" / "report.html").exists()


def test_truths(cube, clustering, scene, tmp_path):
    labels = scene.abundances.argmax(axis=0).reshape(30, 40)
    np.save(tmp_path / "labels.npy", labels + 1)
    header = tmp_path / "labels.hdr"
    envi.save_classification(
        str(header), (labels + 1).astype(np.uint8), class_names=["none", "a", "b", "c"], force=True
    )
    savemat(tmp_path / "truth.mat", {"M": scene.endmembers.T, "A": scene.abundances.reshape(3, 30, 40)})
    clustering.save(tmp_path / "out")
    results = {}
    for name in ("labels.npy", "labels.hdr", "truth.mat", "out/spectra.csv", "out/spectra.hdr"):
        results[name] = cluster(cube, 3, truth=tmp_path / name)
    assert results["labels.npy"].comparison.accuracy > 0.99
    assert results["labels.npy"].comparison.mrsa is None
    assert sorted(results["labels.npy"].names) == ["class 1", "class 2", "class 3"]
    assert sorted(results["labels.hdr"].names) == ["a", "b", "c"]
    assert results["truth.mat"].comparison.mrsa < 2
    assert results["truth.mat"].comparison.accuracy > 0.99
    assert results["out/spectra.csv"].comparison.mrsa == pytest.approx(0, abs=1e-3)
    assert results["out/spectra.hdr"].comparison.mrsa == pytest.approx(0, abs=1e-2)
    assert results["out/spectra.hdr"].names == clustering.names
    with pytest.raises(ValueError, match="ask for at least 3 clusters"):
        cluster(cube, 2, truth=Truth(spectra=scene.endmembers))
    np.savetxt(tmp_path / "x.csv", np.ones((70, 2)), delimiter=",", header="a,b", comments="")
    with pytest.raises(ValueError, match="has spectra of 70 bands, but the image has 60"):
        read_truth(tmp_path / "x.csv", cube.shape)
    np.save(tmp_path / "odd.npy", np.ones((7, 9)))
    with pytest.raises(ValueError, match="fits neither the 30 × 40 pixels nor the 60 bands"):
        read_truth(tmp_path / "odd.npy", cube.shape)
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_truth(tmp_path / "nothing", cube.shape)


@pytest.mark.short("the door of images, end to end")
def test_the_command(original, tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "onmf", "image", original("samson_1.img.hdr"), "-k", "3", "--negatives", "clip"),
            *("--truth", original("end3.mat"), "--out", out),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    assert "MRSA 2.75" in done.stdout
    assert re.search(r"3 +2,350 +26\.0% +[\d.]+ +water +4\.54", done.stdout)
    assert "Traceback" not in done.stderr
    with rasterio.open(out / "map.tif") as file:
        assert tuple(file.transform)[:6] == (1, 0, 612730.910, 0, -1, 4074488.708)
        assert file.crs == UTM


def test_the_command_and_its_options(tmp_path, scene):
    X = scene.X.reshape(30, 40, 60)
    np.savez(tmp_path / "x.npz", first=X, second=X[:, :, ::-1])
    np.save(tmp_path / "mask.npy", np.arange(40) > np.zeros((30, 1)))
    options = {
        "--variable": "first",
        "--mask": tmp_path / "mask.npy",
        "--drop-bands": "1-3,60",
        "--ignore": -1,
        "-k": "auto",
        "--divergence": 1.5,
        "--init": "++",
        "--n-init": 2,
        "--seed": 0,
        "--threads": 1,
        "--out": tmp_path / "out",
    }
    done = command("image", tmp_path / "x.npz", "--blocks", *(word for pair in options.items() for word in pair))
    assert done.returncode == 0, done.stderr
    for words in (
        "30 of 1,200 pixels are unassigned (-1): 30 are masked.",
        "4 of 60 bands are bad",
        "3 clusters were chosen",
        "a fit found it",
        "The cube is the variable first",
    ):
        assert words in done.stdout
    for bands, sentence in (
        ("3-1", "'3-1' is not a band or a range of bands"),
        ("5-7,300", f"There is no band 300 to drop: {tmp_path / 'x.npz'} has bands 1 to 60, counted from 1."),
    ):
        done = command("image", tmp_path / "x.npz", "-k", 2, "--variable", "first", "--drop-bands", bands)
        assert done.returncode == 2
        assert sentence in done.stderr


def test_the_counts_of_a_result_are_its_pixels():
    scene = make_scene(8, 9, 20, 3, random_state=0).X.reshape(8, 9, 20)
    scene[2, 3] = 0
    found = onmf.image.cluster(scene, 3)
    assert np.array_equal(found.counts, np.delete(scene.reshape(72, 20), 2 * 9 + 3, axis=0))


def test_the_true_map_against_the_clusters():
    X = np.random.default_rng(0).random((4, 5, 3)) + 0.1
    known = np.arange(20).reshape(4, 5) % 3 - 1
    ax = cluster(X, 2, truth=Truth(labels=known, names=["soil", "water"])).plot_classes()
    assert {text.get_text() for text in ax.get_yticklabels()} == {"soil (7)", "water (6)"}
    plt.close("all")
    with pytest.raises(ValueError, match=r"The pixels have no classes: read them with truth=\."):
        cluster(X, 2).plot_classes()
