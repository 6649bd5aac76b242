"""Several scenes in one call: each a group of pixels with a light of its own, one set of materials, and the changes."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import rasterio
import spectral.io.envi as envi

import onmf
from conftest import command
from onmf.datasets import make_scene
from onmf.image import Cube, Truth, cluster, predict
from onmf.image.kind import FILES
from onmf.image.page import image_page
from onmf.image.scenes import ScenePixels, folders_of
from onmf.metrics import clustering_accuracy, match_clusters

MAPS = ("labels", "scales", "residuals", "margins", "confidence", "runners_up")
BANDS = 60
WRITTEN = {*FILES} - {"most_likely.tif"}  # which only onmf predict --top writes


@pytest.fixture(scope="module")
def made():
    """A scene, and the same place in other light, where a field has another material. → two cubes, and their truths"""
    scene = make_scene(30, 40, BANDS, 4, random_state=2)
    rng = np.random.default_rng(1)
    first = scene.X.reshape(30, 40, BANDS)
    truth = scene.abundances.argmax(axis=0).reshape(30, 40)
    later = truth.copy()
    later[5:12, 8:30] = 0
    brightness = first.sum(axis=2) / scene.endmembers.sum(axis=1)[truth]
    light = np.exp(np.linspace(-0.9, 0.9, BANDS))
    second = rng.poisson(brightness[..., None] * scene.endmembers[later] * light).astype(np.uint16)
    given = {"wavelengths": scene.wavelengths, "wavelength_unit": "nm"}
    cubes = [Cube(first, name="may", source="may", **given), Cube(second, name="july", source="july", **given)]
    return cubes, [truth, later]


@pytest.fixture(scope="module")
def found(made):
    return cluster(made[0], 4)


def accuracies(truths, labels):
    """The accuracy in each scene, with clusters and materials matched once for all."""
    matched = match_clusters(np.concatenate([truth.ravel() for truth in truths]), np.concatenate(labels, axis=None))
    stands_for = np.array([matched.get(k, -1) for k in range(max(matched) + 1)])
    return [float((stands_for[own] == truth).mean()) for own, truth in zip(labels, truths, strict=True)]


def assert_same_maps(one, other):
    for name in (*MAPS, "spectra"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


def test_materials_are_found_in_both_lights(made, found):
    cubes, truths = made
    assert accuracies(truths, [scene.labels for scene in found.scenes]) == [1, 1]
    stacked = cluster(np.concatenate([cube.data.astype(float) for cube in cubes]), 4)
    assert min(accuracies(truths, np.split(stacked.labels, 2))) < 0.9, "plain clusters follow the light"
    assert found.model.groups_.tolist() == ["july", "may"]
    ratio = found.model.group_effects_[0] / found.model.group_effects_[1]
    assert np.corrcoef(np.log(ratio), np.linspace(-0.9, 0.9, BANDS))[0, 1] > 0.99
    assert [scene.cube.name for scene in found.scenes] == ["may", "july"], "in the order of the call"


def test_what_is_published_of_each_scene(found):
    """A pixel is its scale times the spectrum of its cluster in the light of its scene."""
    effects = dict(zip(found.groups, found.model.group_effects_, strict=True))
    for scene in found.scenes:
        own = found.model.cluster_centers_ * effects[scene.cube.name]
        shapes = scene.spectra / scene.spectra.sum(axis=1, keepdims=True)
        assert np.allclose(shapes, own / own.sum(axis=1, keepdims=True))
        fitted = scene.scales[..., None] * scene.spectra[scene.labels]
        assert np.allclose(fitted.sum(axis=2), scene.cube.data.sum(axis=2), rtol=1e-5)
        for k in range(4):
            assert np.isclose(scene.scales[scene.labels == k].mean(), 1, rtol=1e-5)
        x = scene.cube.data.astype(float)
        logs = np.log(np.where(x > 0, x, 1) / (fitted + 1e-10))
        residuals = (x * logs).sum(axis=2) / x.sum(axis=2)  # with equal sums
        assert np.allclose(residuals, scene.residuals, rtol=1e-3, atol=1e-5)
        assert (scene.margins >= 0).all()
    # W H with multipliers, from the model alone
    model, pixels = found.model, np.concatenate([scene.cube.data.reshape(-1, BANDS) for scene in found.scenes])
    names = np.repeat([scene.cube.name for scene in found.scenes], 1200)
    rows = model.scales_[:, None] * model.cluster_centers_[model.labels_]
    rows *= np.stack([effects[name] for name in names])
    assert np.allclose(rows.sum(axis=1), pixels.sum(axis=1))
    loss = (pixels * np.log(np.where(pixels > 0, pixels, 1) / rows)).sum()
    assert loss <= model.reconstruction_err_ <= 1.01 * loss, "with the prior of the multipliers"


def test_labels_are_those_of_predict(found, tmp_path):
    found.model.save(tmp_path / "model.onmf", extra=found.entries())
    for model in (found, onmf.load(tmp_path / "model.onmf")):
        for scene in found.scenes:
            again = predict(model, scene.cube)
            assert_same_maps(again, scene)
            assert f"The factors of the bands are those of the scene {scene.cube.name}." in again.notes
    rows = np.concatenate([scene.cube.data.reshape(-1, BANDS) for scene in found.scenes])
    names = np.repeat([scene.cube.name for scene in found.scenes], 1200)
    assert np.array_equal(found.model.predict(rows, groups=names), found.labels.ravel())


def test_blocks_give_the_labels_of_memory(made, found, monkeypatch):
    monkeypatch.setattr("onmf.image.cube.BLOCK", 50_000)
    in_blocks = cluster(made[0], 4, in_memory=False)
    assert np.array_equal(in_blocks.labels, found.labels)
    assert np.allclose(in_blocks.spectra, found.spectra)
    assert any(note.startswith("The pixels were read in") for note in in_blocks.notes)
    given = cluster(made[0], 4, in_memory=False, init="random-partition", n_init=5)
    assert any("blocks, and the start comes from" in note for note in given.notes)


def test_a_start_on_some_of_the_pixels(made, found, monkeypatch):
    monkeypatch.setattr("onmf.image.fit.SCENES_SAMPLE", 300)
    some = cluster(made[0], 4)
    assert clustering_accuracy(some.labels.ravel(), found.labels.ravel()) > 0.99
    assert "The start comes from 300 pixels, equally many of each scene." in some.notes


def test_one_scene_in_a_list_is_the_scene_alone(made):
    alone, listed = cluster(made[0][0], 4), cluster([made[0][0]], 4)
    assert_same_maps(alone, listed)
    assert alone.model.cluster_centers_.tobytes() == listed.model.cluster_centers_.tobytes()
    assert alone.scenes == [alone]
    assert alone.changes == []


def test_scenes_of_other_shapes_units_and_pixels(made, found):
    """Each keeps its own mask, ignore value, scale factor, unit of wavelengths and coordinates."""
    first, second = made[0]
    X = second.data.astype(np.float32) * 50
    X[0, 0] = -9999
    X[3, 4, 7] = -9999
    mask = np.ones((30, 25), dtype=bool)
    mask[10] = False
    narrow = replace(
        second,
        data=X[:, :25],
        mask=mask,
        ignore_value=-9999,
        scale=1 / 50,
        wavelengths=second.wavelengths / 1000,
        wavelength_unit="Micrometers",
        transform=(1.0, 0.0, 5.0, 0.0, -1.0, 7.0),
    )
    both = cluster([first, narrow], 4)
    wide, thin = both.scenes
    assert (wide.labels.shape, thin.labels.shape) == ((30, 40), (30, 25))
    outside = ~mask
    outside[0, 0] = outside[3, 4] = True
    assert np.array_equal(thin.labels < 0, outside)
    same = thin.labels == found.scenes[1].labels[:, :25]
    assert same[~outside].mean() > 0.99
    assert np.allclose(thin.spectra, found.scenes[1].spectra, rtol=0.1), "in physical units"
    assert thin.cube.transform == narrow.transform
    assert thin.to_xarray().sizes["x"] == 25
    assert both.changes == [], "these have other shapes"
    assert both.notes == ["july: 27 of 750 pixels are unassigned (-1): 25 are masked, 2 hold no data."]
    assert "2 scenes, 1,950 pixels, 60 bands" in repr(both)
    assert np.array_equal(both.composition.sum(axis=0), [723, 1200])  # july, may
    lines = both.cube.read(28, 33)
    assert np.array_equal(lines[:2], first.data[28:30])
    assert np.allclose(lines[3, :25], X[1, :25] / 50)
    assert not lines[3, 25:].any()


def test_bands_must_be_the_same(made):
    first, second = made[0]
    shifted = replace(second, wavelengths=second.wavelengths + np.where(np.arange(BANDS) == 2, 30, 0))
    with pytest.raises(
        ValueError, match=r"may and july have other bands: 1 of 60 differ, such as 471.2 nm in may and 50"
    ):
        cluster([first, shifted], 4)
    with pytest.raises(ValueError, match="may has 60 bands, and july has 59: only scenes of the same sensor"):
        cluster([first, Cube(second.data[:, :, 1:], name="july")], 4)
    bad = replace(second, good_bands=np.arange(BANDS) != 3)
    assert cluster([first, bad], 4).spectra.shape == (4, 59), "a band that is bad in one scene is used in none"


def test_what_cannot_be(made, tmp_path):
    cubes, _ = made
    with pytest.raises(ValueError, match="groups= is for Kullback"):
        cluster(cubes, 4, beta_loss="frobenius")
    with pytest.raises(ValueError, match=r"init='\+\+' begins from clusters that belong to one group each"):
        cluster(cubes, 4, init="++")
    with pytest.raises(ValueError, match="give at least one"):
        cluster([], 4)
    with pytest.raises(ValueError, match="truth has 1 entries for 2 scenes"):
        cluster(cubes, 4, truth=[None])
    np.save(tmp_path / "a.npy", cubes[0].data)
    with pytest.raises(ValueError, match=r"a\.npy is named twice"):
        cluster([tmp_path / "a.npy"] * 2, 4)
    both = cluster(cubes, 2, n_init=1)
    with pytest.raises(ValueError, match="predict one after the other"):
        both.predict(both.cube)


def test_names_of_scenes(made, tmp_path):
    arrays = cluster([cube.data for cube in made[0]], 2, n_init=1)
    assert [scene.cube.name for scene in arrays.scenes] == ["scene 1", "scene 2"]
    for folder, cube in zip(("2019", "2020"), made[0], strict=True):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "place.npy", cube.data)
    files = cluster([tmp_path / "2019" / "place.npy", str(tmp_path / "2020" / "place.npy")], 2, n_init=1)
    assert files.groups == ["2019/place", "2020/place"]
    assert_same_maps(predict(files, tmp_path / "2020" / "place.npy"), files.scenes[1])
    assert folders_of(["2019/place", "2020/place"], []) == ["2019-place", "2020-place"]
    assert folders_of(["../x", "..", "report.html"], ["report.html"]) == ["x", "scene", "report.html 2"]


def test_a_new_scene(made, found):
    """Its factors are 1, or estimated from its pixels."""
    light = np.exp(np.linspace(1.1, -1.1, BANDS))
    new = Cube(np.random.default_rng(3).poisson(made[0][0].data * light), name="august")
    plain, estimated = found.predict(new), found.predict(new, estimate_groups=True)
    right = found.scenes[0].labels
    assert (estimated.labels == right).mean() > 0.99 > (plain.labels == right).mean()
    assert any(
        note.startswith("The model has factors for the scenes july, may, and august is none") for note in plain.notes
    )
    assert estimated.groups == ["july", "may", "august"]
    assert found.groups == ["july", "may"], "the model stays as it is"


@pytest.mark.short("a promise of the guide")
def test_the_number_of_materials(made):
    assert cluster(made[0], k_max=12).n_clusters == 4


def test_truths(made):
    cubes, truths = made
    names = ["soil", "tree", "rock", "water"]
    known = [Truth(labels=truth, names=names) for truth in truths]
    compared = cluster(cubes, 4, truth=known)
    assert sorted(compared.names) == sorted(names)
    assert compared.comparison.accuracy == 1
    assert [scene.comparison.accuracy for scene in compared.scenes] == [1, 1]
    (change,) = compared.changes
    moved = truths[0] != truths[1]
    assert np.isclose(change.share, moved.mean())
    assert np.array_equal(change.map > 1, moved)
    assert all(compared.names[after] == "soil" for _, after in change.pairs)
    with pytest.raises(ValueError, match="The truth of may has the materials soil, tree"):
        cluster(cubes, 4, truth=[known[0], replace(known[1], names=names[::-1])])


def write_scenes(folder, cubes):
    for cube in cubes:
        metadata = {"wavelength": cube.wavelengths.tolist(), "wavelength units": "Nanometers"}
        envi.save_image(str(folder / f"{cube.name}.hdr"), cube.data.astype(np.uint16), metadata=metadata)
    return [folder / f"{cube.name}.hdr" for cube in cubes]


@pytest.mark.short("the files of several scenes, end to end")
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_the_command(made, tmp_path):
    paths, out = write_scenes(tmp_path, made[0]), tmp_path / "out"
    first = command("image", *paths, "-k", 4, "--out", out)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("2 scenes, 2,400 pixels, 60 bands, 4 materials: the best of 20 starts with 2 scenes")
    assert "july/, may/, model.onmf" in first.stdout
    top = {"clusters.csv", "summary.json", "model.onmf", "report.html", "changes.csv", "composition.csv"}
    assert {file.name for file in out.iterdir()} == top | {"group_features.csv", "may", "july"}
    assert {file.name for file in (out / "may").iterdir()} == WRITTEN
    assert {file.name for file in (out / "july").iterdir()} == {*WRITTEN, "change.tif", "change.tif.aux.xml"}
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["n_pixels"], summary["unassigned"], summary["groups"]) == (2400, 0, ["july", "may"])
    assert [scene["name"] for scene in summary["scenes"]] == ["may", "july"]
    with (out / "changes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with rasterio.open(out / "july" / "change.tif") as file:
        change, names = file.read(1), file.tags(1)
    with rasterio.open(out / "may" / "map.tif") as file:
        before = file.read(1)
    with rasterio.open(out / "july" / "map.tif") as file:
        after = file.read(1)
    assert sum(int(row["pixels"]) for row in rows) == 1200
    for row in rows:
        here = (before == int(row["from"])) & (after == int(row["to"]))
        assert int(row["pixels"]) == here.sum() > 0
        assert (change[here] == int(row["value"])).all()
        if row["from"] != row["to"]:
            assert names[f"CLASS_{row['value']}"] == f"{row['from_name']} to {row['to_name']}"
    # another image of the sensor, and one of the scenes
    mapped = command("predict", out / "model.onmf", paths[1], "--out", tmp_path / "july")
    assert "The factors of the bands are those of the scene july." in mapped.stdout
    with rasterio.open(tmp_path / "july" / "map.tif") as file:
        assert np.array_equal(file.read(1), after)
    # --force replaces folders of scenes, and nothing that is not ours
    assert command("image", *paths, "-k", 3, "--out", out, "--force", "--no-report").returncode == 0
    (out / "july" / "mine.txt").write_text("mine")
    refused = command("image", *paths, "-k", 3, "--out", out, "--force", "--no-report")
    assert refused.returncode == 2
    assert "holds 'july', which was not written by this command" in refused.stderr
    assert (out / "july" / "mine.txt").read_text() == "mine"
    other = command("image", paths[0], tmp_path / "out" / "may" / "map.tif", "-k", 3)
    assert "may has 60 bands, and map has 1" in other.stderr


def test_foreign_folders_are_not_replaced(found, tmp_path):
    out = tmp_path / "out"
    for inside in ("empty", "deep/map.tif/x", "map.tif/y.txt"):
        folder = out / inside
        folder.mkdir(parents=True)
        with pytest.raises(FileExistsError, match="was not written by this command"):
            found.save(out, force=True)
        folder.rmdir() if inside == "empty" else None
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "map.tif").write_bytes(b"mine")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "may").symlink_to(tmp_path / "else")
    with pytest.raises(FileExistsError, match="holds 'may'"):
        found.save(linked, force=True)


@pytest.mark.short("draws the figures of two scenes")
def test_nothing_is_left_of_a_save_that_fails(found, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("onmf.image.write.changes_table", full)  # after the folders of the scenes
    with pytest.raises(OSError, match="No space left"):
        found.save(tmp_path / "out", report=False)
    assert list(tmp_path.iterdir()) == []


def test_the_page(found, visit):
    page = visit(image_page(found), viewport={"width": 1280, "height": 1000})
    assert page.title() == "Materials of may, july"
    assert page.locator("#scenes .cards").count() == 2
    assert page.locator("#scenes figure").count() == 5, "two maps of each, and the change"
    curves = "Array.from(document.getElementById('{}').curves, (curve) => curve.y[0])"
    shared = page.evaluate(curves.format("cluster-chart"))
    assert np.allclose(shared, found.spectra[:, 0], rtol=1e-5)
    page.select_option("#shown", label="in july")
    assert np.allclose(page.evaluate(curves.format("cluster-chart")), found.scenes[1].spectra[:, 0], rtol=1e-5)
    factors = page.evaluate(curves.format("factor-chart"))
    assert np.allclose(factors, found.model.group_effects_[::-1, 0], rtol=1e-5)
    assert page.locator("#composition tbody tr").count() == 4


def test_a_page_without_a_browser(found):
    text = image_page(found, title="Two <scenes>")
    assert "Two &lt;scenes&gt;" in text
    assert "From may to july" in text
    assert f"{found.changes[0].share:.1%} of the pixels are in another cluster." in text


@pytest.mark.short("draws the figures of a scene")
def test_a_scene_by_itself(found, tmp_path):
    """It is a result like any other."""
    scene = found.scenes[1]
    scene.plot_map()
    scene.plot_spectra()
    assert scene.to_xarray().attrs["source"] == "july"
    assert len(scene.to_frame()) == 4
    scene.save(tmp_path / "july", report=False)
    assert {*WRITTEN, "clusters.csv"} <= {file.name for file in (tmp_path / "july").iterdir()}


@pytest.mark.short("a claim of the guide, on real pixels")
def test_samson_in_two_lights():
    """The second scene is the first one in light that doubles in the infrared and halves in the blue."""
    from conftest import DATA

    if not DATA:
        pytest.skip("ONMF_DATA is not set: the paper's data are not at hand")
    stored = np.load(f"{DATA}/hyperspectral/samson.npz")
    shape, order = (int(stored["height"]), int(stored["width"])), str(stored["order"])
    counts = np.dstack([band.reshape(shape, order=order) for band in stored["X"].T])
    truth = stored["abundances"].argmax(axis=0).reshape(shape, order=order)
    light = np.exp(np.linspace(-0.7, 0.7, counts.shape[2]))
    later = np.random.default_rng(0).poisson(counts * light)
    both = cluster([counts, later], 3, n_init=5)
    assert min(accuracies([truth, truth], [scene.labels for scene in both.scenes])) > 0.945
    assert both.changes[0].share < 0.01, "nothing changed"
    stacked = cluster(np.concatenate([counts, later]), 3).labels
    halves = np.split(stacked, 2)
    assert min(accuracies([truth, truth], halves)) < 0.61
    assert (halves[0] != halves[1]).mean() > 0.3


def test_pixels_of_scenes_come_scene_by_scene(made):
    pixels = ScenePixels(
        cluster(made[0], 2, n_init=1).cube, onmf.divergence.KullbackLeibler(), "refuse", lambda *_: None
    )
    rows = pixels.array()
    assert rows.dtype == np.float64
    assert np.array_equal(rows[1200:], made[0][1].data.reshape(-1, BANDS))
