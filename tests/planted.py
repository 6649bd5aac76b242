"""Faults to plant in the code, at least one for each room of the house, and a run that shows which tests catch them.

``make planted`` plants each fault in a copy of the project and runs the tests that are named beside it, those of the
short suite only. If they all pass, it runs the whole short suite, and then the long one. A fault that the short suite
does not catch means that a test must be written, or moved. To add a fault, append it to FAULTS.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NOT_COPIED = (
    *(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "_build", "demo-output", "fuzz-failures"),
    "test_planted.py",  # it would notice every fault
)
KERNELS = "src/onmf/kernels/"


class Fault(NamedTuple):
    """A fault: in ``file``, ``right`` becomes ``wrong``. The ``tests``, files or tests in them, are to notice it."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str


FAULTS = [
    # interrupt.py
    Fault(
        "failed-fit-leaves-new-attributes",
        "src/onmf/interrupt.py",
        "self.__dict__ = before",
        "vars(self).update(before)",
        "tests/test_estimator.py::TestOnceWrong::test_a_failed_fit_leaves_no_half_fitted_model",
    ),
    # old_names.py
    Fault(
        "old-name-of-another-attribute",
        "src/onmf/old_names.py",
        '"clusters": "labels",',
        '"clusters": "runners_up",',
        "tests/test_old_names.py::test_scripts_of_the_first_version_run",
    ),
    # door/curate.py
    Fault(
        "larger-number-stays-in-a-merge",
        "src/onmf/door/curate.py",
        'kept, *others = sorted(number - self.first for number in edit["merge"])',
        '*others, kept = sorted(number - self.first for number in edit["merge"])',
        "tests/test_edits.py::TestMerge",
    ),
    Fault(
        "split-without-the-rule",
        "src/onmf/door/curate.py",
        "np.where(those[at], best != templates[at], best >= k)",
        "np.where(those[at], best != templates[at], best > 10**9)",
        "tests/test_edits.py::test_rows_join_a_part_that_is_closer",
    ),
    # kernels/
    Fault(
        "tie-to-the-highest-index",
        "src/onmf/kernels/steps.py",
        "if scores[c] > scores[winner]:",
        "if scores[c] >= scores[winner]:",
        "tests/contract/test_backends.py::test_ties_go_to_the_lowest_cluster",
    ),
    Fault(
        "last-row-of-a-block-not-labelled",
        "src/onmf/kernels/steps.py",
        "for r in range(min(4, stop - first)):\n            i = first + r\n",
        "for r in range(min(4, stop - first - 1)):\n            i = first + r\n",
        "tests/contract/test_backends.py::test_own_and_next_agree_with_the_reference",
    ),
    Fault(
        "moved-row-added-to-its-old-sum",
        "src/onmf/kernels/steps.py",
        "old[indices[entry]] -= x",
        "old[indices[entry]] += x",
        "tests/contract/test_backends.py::test_sums_that_follow_moved_rows_are_the_sums",
    ),
    Fault(
        "screen-counts-the-error-of-one-template",
        "src/onmf/kernels/screen.py",
        "TEMPLATE_ERROR = 1.06",
        "TEMPLATE_ERROR = 0.53",
        "tests/test_int16.py::test_templates_in_16_bits_are_off_by_half_a_step",
    ),
    Fault(
        "move-without-the-total-of-its-own-cluster",
        "src/onmf/kernels/hartigan.py",
        "cost[own] = back + entropies[own] - f(T[own] - mass)",
        "cost[own] = back",
        "tests/test_optima.py::test_no_single_move_improves_what_local_search_leaves",
    ),
    Fault(
        "logarithm-off-in-its-last-digit",
        "src/onmf/kernels/functions.py",
        "return e * LOG2_HIGH - ((half - (s * (half + series) + (e * LOG2_LOW + more))) - f)",
        "return (e * LOG2_HIGH + e * LOG2_LOW) + ((s * (half + series) - half + more) + f)",
        "tests/test_functions.py::test_less_than_one_unit_in_the_last_place",
    ),
    Fault(
        "lanes-added-in-another-order",
        "src/onmf/kernels/lanes.py",
        "list(range(first, first + width))) for first in (0, width))",
        "list(range(first, 2 * width, 2))) for first in (0, 1))",
        "tests/test_functions.py::test_scores_of_arrays_are_added_by_lanes",
    ),
    # divergence/
    Fault(
        "logarithm-of-numpy",
        "src/onmf/divergence/beta.py",
        "        return log(C)\n",
        "        return np.log(C)\n",
        "tests/test_same_bits.py::test_a_fit_has_the_bits_of_the_list",
    ),
    Fault(
        "template-divided-by-the-largest-entry",
        "src/onmf/divergence/beta.py",
        "C = divide(columns, sizes[:, None])",
        "C = divide(columns, columns.max(axis=1, keepdims=True))",
        "tests/contract/test_divergences.py::test_label_scale_and_loss_are_the_minimum",
    ),
    Fault(
        "centroid-weighted-by-a-higher-power",
        "src/onmf/divergence/beta.py",
        "return positive_power(scale, self.beta - 1)",
        "return positive_power(scale, self.beta)",
        "tests/contract/test_divergences.py::test_centroid_is_the_minimum_for_its_rows",
    ),
    Fault(
        "negative-binomial-without-its-constant",
        "src/onmf/divergence/bregman.py",
        "return self.parameter * log1p(x / self.parameter)",
        "return log1p(x / self.parameter)",
        "tests/contract/test_bregman.py::test_label_scale_and_loss_are_the_minimum",
    ),
    Fault(
        "group-of-the-row-before",
        "src/onmf/divergence/groups.py",
        "entries, codes = sums.astype(kind), xp.asarray(codes)",
        "entries, codes = sums.astype(kind), xp.roll(xp.asarray(codes), 1)",
        "tests/contract/test_groups.py::test_every_step_is_that_of_the_plain_formula",
    ),
    # backend/
    Fault(
        "only-the-first-centroids-updated",
        "src/onmf/backend/base.py",
        "filled = start + np.flatnonzero(~empty[start:stop])",
        "filled = np.flatnonzero(~empty[start:stop])",
        "tests/contract/test_backends.py::test_centroids_that_are_computed_in_groups_are_those_of_the_sums",
    ),
    Fault(
        "row-terms-written-to-the-first-rows",
        "src/onmf/backend/cpu.py",
        "out[start + filled] = np.add.reduceat(values, bounds[filled] - bounds[0])",
        "out[filled] = np.add.reduceat(values, bounds[filled] - bounds[0])",
        "tests/contract/test_backends.py::test_row_terms_that_are_computed_in_parts_are_those_of_the_rows",
    ),
    Fault(
        "zeros-of-weighted-rows-count-once",
        "src/onmf/backend/curved.py",
        "moments = axis.moments(places, weights, labels.astype(np.int64), k)",
        "moments = axis.moments(places, np.ones(len(labels)), labels.astype(np.int64), k)",
        "tests/contract/test_bregman.py::test_dask_weights_and_repeats",
    ),
    Fault(
        "second-best-template-is-never-below-zero",
        "src/onmf/backend/reference.py",
        "scores[every, labels] = -np.inf",
        "scores[every, labels] = 0.0",
        "tests/contract/test_backends.py::test_own_and_next_agree_with_the_reference",
    ),
    Fault(
        "last-group-of-clusters-lost",
        "src/onmf/backend/threads.py",
        "np.arange(-(-k // CLUSTERS_AT_A_TIME) + 1)",
        "np.arange(k // CLUSTERS_AT_A_TIME + 1)",
        "tests/contract/test_backends.py::test_centroids_that_are_computed_in_groups_are_those_of_the_sums",
    ),
    # data/
    Fault(
        "negative-entries-accepted",
        "src/onmf/data/validate.py",
        'domain != "real" and low.min() < 0,',
        'domain != "real" and high.min() < 0,',
        "tests/test_estimator.py::TestRefusals::test_entries",
    ),
    Fault(
        "every-part-gets-the-weights-of-the-first",
        "src/onmf/data/parts.py",
        "else self.weights[first : first + n]",
        "else self.weights[:n]",
        "tests/contract/test_parts.py::test_weights_and_the_methods_of_a_model",
    ),
    Fault(
        "part-lost-in-the-tree-of-sums",
        "src/onmf/data/dask.py",
        "tasks = [delayed(add_up)(group) if len(group) > 1 else group[0] for group in groups]",
        "tasks = [delayed(add_up)(group) for group in groups if len(group) > 1]",
        "tests/contract/test_parts.py::test_a_tree_of_sums_adds_every_part",
    ),
    Fault(
        "sketch-takes-the-sum-of-a-row-with-the-wrong-sign",
        "src/onmf/backend/cpu.py",
        "shifts = self._Q[0].sum() *",
        "shifts = np.sqrt(p) *",
        "tests/test_sketch.py::test_columns_of_groups_are_part_of_the_templates",
    ),
    # fit/
    Fault(
        "third-margin-not-matched",
        "src/onmf/fit/groups.py",
        "A = divide(m, v_before)",
        "A = m",
        "tests/contract/test_groups.py::test_the_fit_of_fixed_labels_is_the_minimum",
    ),
    Fault(
        "known-rows-count-like-free-ones",
        "src/onmf/fit/known.py",
        "np.where(guide.has_rows, guide.adapt, 1.0)",
        "np.ones_like(guide.sums.mass)",
        "tests/contract/test_known.py::test_every_step_is_that_of_the_plain_formula",
    ),
    Fault(
        "known-rows-move-at-the-end",
        "src/onmf/data/known.py",
        "labels[place(rows)] = place(clusters)",
        "place(rows)",
        "tests/contract/test_known.py::test_every_backend_finds_the_clusters_of_the_reference",
    ),
    Fault(
        "totals-of-groups-without-known-rows",
        "src/onmf/data/known.py",
        "weights[rows] = own",
        "weights[rows] = 0.0",
        "tests/contract/test_known.py::test_known_rows_that_are_where_the_fit_puts_them_change_nothing",
    ),
    Fault(
        "a-row-tests-the-fit-that-knows-it",
        "src/onmf/fit/adapt.py",
        "known.subset(folds != fold)",
        "known",
        "tests/contract/test_known.py::TestAdapt::test_a_row_that_is_left_out_leaves_no_trace",
    ),
    Fault(
        "smoothing-of-known-rows-alone",
        "src/onmf/fit/adapt.py",
        "guide.adapt * free",
        "0.0 * free",
        "tests/contract/test_known.py::TestAdapt::test_smoothing_follows_from_the_sums",
    ),
    Fault(
        "plus-plus-forgets-the-nearest-seed",
        "src/onmf/fit/starts.py",
        "np.minimum(known.losses, new)",
        "np.maximum(known.losses, new)",
        "tests/test_starts.py::test_plus_plus_draws_no_row_beside_a_seed",
    ),
    Fault(
        "worst-run-kept",
        "src/onmf/fit/restarts.py",
        "return promising[0][1]",
        "return promising[-1][1]",
        "tests/test_optima.py::test_restarts_in_parallel_keep_the_best",
    ),
    Fault(
        "local-search-ends-after-one-sweep",
        "src/onmf/fit/search.py",
        "if steps <= stop_share * n:",
        "if steps <= n:",
        "tests/test_optima.py::test_no_single_move_improves_what_local_search_leaves",
    ),
    Fault(
        "worse-swap-is-kept",
        "src/onmf/fit/search.py",
        "swapped = tried.objective < (1 - MIN_SWAP_GAIN) * best.objective",
        "swapped = passes < 100",
        "tests/contract/test_search.py::test_the_objective_never_rises",
    ),
    Fault(
        "loop-stops-while-rows-move",
        "src/onmf/fit/loop.py",
        "elif change < tol and step.moved <= tol * data.shape[0] and",
        "elif change < tol and",
        "tests/test_estimator.py::TestOnceWrong::test_rows_too_small_to_show_in_h_still_count",
    ),
    Fault(
        "stream-subtracts-too-much-of-a-batch",
        "src/onmf/fit/stream.py",
        "weight = share ** (stream.steps - before.step + 1)",
        "weight = share ** (stream.steps - before.step)",
        "tests/test_stream.py::test_forgetting_and_replacing_by_hand",
    ),
    Fault(
        "labels-renumbered-by-the-inverse-order",
        "src/onmf/fit/describe.py",
        "place[order] = np.arange(len(order))",
        "place[:] = order",
        "tests/test_naming.py::TestNumbers",
    ),
    # io/
    Fault(
        "new-file-written-in-place",
        "src/onmf/io/files.py",
        "if TEMPORARY.fullmatch(path.parent.name):",
        "if mode is None or TEMPORARY.fullmatch(path.parent.name):",
        "tests/test_files.py::TestOneFile",
    ),
    Fault(
        "force-removes-what-others-added",
        "src/onmf/io/files.py",
        "return _has_inode(folder, self.old_inode) and not _entries_of_others(folder, self.ours)",
        "return _has_inode(folder, self.old_inode)",
        "tests/test_files.py::TestFolders",
    ),
    Fault(
        "formula-after-a-tab-not-escaped",
        "src/onmf/io/csv_file.py",
        r"[=+\-@＝＋－＠\t\r\n]",
        r"[=+\-@＝＋－＠]",
        "tests/test_text.py::test_no_cell_is_a_formula",
    ),
    Fault(
        "answer-of-any-size-accepted",
        "src/onmf/io/isolate.py",
        "if dtype.kind not in NUMBERS or size + sum(array.nbytes for array in arrays) > self.memory:",
        "if dtype.kind not in NUMBERS:",
        "tests/test_isolate.py::test_the_size_of_an_answer_is_limited",
    ),
    Fault(
        "checksum-of-a-model-file-not-compared",
        "src/onmf/io/model_file.py",
        'require(sha256(data).hexdigest() == expected.get("sha256"),',
        'require(expected.get("sha256"),',
        "tests/test_container.py::test_a_member_that_is_not_listed_and_a_wrong_checksum",
    ),
    Fault(
        "upper-limit-of-an-array-not-checked",
        "src/onmf/io/rules.py",
        "low <= value.min().item() <= value.max().item() <= high",
        "low <= value.min().item() <= high",
        "tests/test_confidence.py::TestDocuments::test_damaged_entries_are_refused",
    ),
    # estimator.py, and around it
    Fault(
        "loaded-model-has-default-parameters",
        "src/onmf/estimator.py",
        "model = ONMF(**saved.parameters)",
        'model = ONMF(saved.parameters["n_clusters"], beta_loss=saved.divergence)',
        "tests/test_model_file.py::test_round_trip",
    ),
    Fault(
        "confidence-never-doubts",
        "src/onmf/confidence.py",
        "doubt = np.minimum(together,",
        "doubt = np.maximum(together,",
        "tests/test_confidence.py::test_without_other_fits_the_usual_temperature",
    ),
    Fault(
        "merged-centroids-count-once",
        "src/onmf/confidence.py",
        "return matrix_product(shares, members.astype(np.float64))",
        "return np.max(shares[:, :, None] * members, axis=1)",
        "tests/test_door.py::TestResult::test_probabilities_of_merged_centroids_are_added",
    ),
    Fault(
        "row-compared-with-a-centroid-that-it-shaped",
        "src/onmf/surprise.py",
        "C - own_sums * by_sum",
        "C + 0 * own_sums * by_sum",
        "tests/test_surprise.py::TestOnNewRows::test_the_rate_holds",
    ),
    Fault(
        "beginnings-of-documents-stay",
        "src/onmf/text/words.py",
        "return replace(super().without_texts(), excerpts=())",
        "return super().without_texts()",
        "tests/test_private.py::test_no_file_tells_a_name_or_a_text",
    ),
    Fault(
        "purity-of-classes-instead-of-clusters",
        "src/onmf/metrics.py",
        "purity=float(table.max(axis=0).sum() / table.sum()),",
        "purity=float(table.max(axis=1).sum() / table.sum()),",
        "tests/test_metrics.py::TestCompare",
    ),
    Fault(
        "merged-cluster-has-no-total",
        "src/onmf/hierarchy.py",
        "alone[new], totals[new] = xlogy(S[new], S[new]), S[new].sum()",
        "alone[new] = xlogy(S[new], S[new])",
        "tests/test_hierarchy.py::test_every_merge_is_the_cheapest",
    ),
    # select/
    Fault(
        "clusters-without-structure",
        "src/onmf/select/choose.py",
        "levels = {} if as_good else",
        "levels = {} if as_good > len(chance) else",
        "tests/test_door.py::TestNumber::test_data_without_structure",
    ),
    Fault(
        "found-among-the-rows-that-were-seen",
        "src/onmf/select/halves.py",
        "zip((~inside, inside), pair, strict=True)",
        "zip((inside, ~inside), pair, strict=True)",
        "tests/test_door.py::TestNumber::test_it_is_chosen_on_some_of_the_rows",
    ),
    Fault(
        "always-the-medium-level",
        "src/onmf/door/run.py",
        "n_clusters = selection.number_at(n_clusters)",
        "n_clusters = selection.n_clusters",
        "tests/test_door.py::test_levels",
    ),
    Fault(
        "chance-depends-on-the-unit",
        "src/onmf/select/chance.py",
        "np.maximum(LEAST * self.high, 1e-300)",
        "LEAST",
        "tests/test_sound.py::TestParameters::test_the_unit_does_not_choose_the_number_of_clusters",
    ),
    # datasets/
    Fault(
        "columns-of-a-file-counted-from-zero",
        "src/onmf/datasets/readers.py",
        "columns = pairs[::2] - 1",
        "columns = pairs[::2]",
        "tests/test_datasets.py::TestReaders::test_cluto",
    ),
    Fault(
        "made-documents-too-long",
        "src/onmf/datasets/generate.py",
        "np.log(length) - SPREAD**2 / 2",
        "np.log(length)",
        "tests/test_datasets.py::TestCounts::test_follow_the_model",
    ),
    Fault(
        "words-with-the-counts-of-others",
        "src/onmf/datasets/count.py",
        "columns[order[keep]] = np.arange(len(keep))",
        "columns[keep] = np.arange(len(keep))",
        "tests/test_text.py::TestWords::test_counts_agree_with_scikit_learn",
    ),
    # door/
    Fault(
        "missing-features-shift-the-others",
        "src/onmf/door/kind.py",
        "present[some.indices]",
        "some.indices",
        "tests/test_table.py::test_predict_matches_features_by_name",
    ),
    Fault(
        "labels-shifted-by-an-empty-row",
        "src/onmf/door/kind.py",
        "spread[index] = values",
        "spread[: len(values)] = values",
        "tests/test_table.py::test_rows_without_counts_are_unassigned_and_named",
    ),
    Fault(
        "later-batches-of-new-rows-unassigned",
        "src/onmf/door/kind.py",
        "values, at = batch[filled], start + filled",
        "values, at = batch[filled], filled",
        "tests/test_table.py::test_no_row_is_lost_between_batches",
    ),
    Fault(
        "row-lost-between-two-batches-of-a-table",
        "src/onmf/door/write.py",
        "for start in range(0, max(n, 1), BATCH):",
        "for start in range(0, max(n, 1), BATCH + 1):",
        "tests/test_table.py::test_no_row_is_lost_between_batches",
    ),
    # report/
    Fault(
        "text-can-close-a-script",
        "src/onmf/report/page.py",
        r'return encodable.replace("<", "\\u003c").replace(',
        "return encodable.replace(",
        "tests/test_report.py::test_embedded_data_cannot_close_their_script",
    ),
    # text/
    Fault(
        "byte-order-mark-in-the-first-word",
        "src/onmf/text/decode.py",
        '(codecs.BOM_UTF8, "utf-8-sig"),',
        '(codecs.BOM_UTF8, "utf-8"),',
        "tests/test_text.py::TestDecode::test_encodings",
    ),
    Fault(
        "day-and-month-swapped",
        "src/onmf/text/words.py",
        r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
        r"(?P<month>\d{1,2})\.(?P<day>\d{1,2})\.(?P<year>\d{4})",
        "tests/test_dates.py::test_dates_as_people_write_them",
    ),
    # image/
    Fault(
        "mask-ignored",
        "src/onmf/image/cube.py",
        "allowed = True if cube.mask is None else cube.mask[start:stop]",
        "allowed = True",
        "tests/test_image.py::test_unassigned_pixels",
    ),
    Fault(
        "every-strip-of-an-image-is-the-first",
        "src/onmf/image/cube.py",
        "self._fill(piece, file, (number * self.shape[0] + start) * step)",
        "self._fill(piece, file, number * self.shape[0] * step)",
        "tests/test_image_read.py::test_every_envi_layout_reads_back_equal",
    ),
    Fault(
        "bands-shifted-by-a-bad-one",
        "src/onmf/image/write.py",
        "*np.flatnonzero(clusters.cube.good_bands) + 1",
        "*np.arange(clusters.spectra.shape[1]) + 1",
        "tests/test_image.py::test_round_trips",
    ),
    # cells/
    Fault(
        "markers-are-what-a-cluster-lacks",
        "src/onmf/cells/genes.py",
        "gap = inside - outside",
        "gap = outside - inside",
        "tests/test_cells_markers.py::TestDefinitions",
    ),
    Fault(
        "orientation-turned-the-wrong-way",
        "src/onmf/cells/files.py",
        "draft.X = tidy(draft.X.T if orientation == GENES else draft.X)",
        "draft.X = tidy(draft.X.T if orientation == CELLS else draft.X)",
        "tests/test_cells_read.py::TestNpz::test_scipy",
    ),
    # table/
    Fault(
        "equal-lines-of-a-long-table-count-once",
        "src/onmf/table/__init__.py",
        "frame = _frame(path, parquet)",
        "frame = _frame(path, parquet).drop_duplicates()",
        "tests/test_table.py::test_edges",
    ),
    # reproduce/
    Fault(
        "near-the-number-of-the-paper-is-enough",
        "src/onmf/reproduce/tables.py",
        "_rounded(ours, paper) == str(paper)",
        "abs(ours - paper) < 0.1",
        "tests/test_reproduce.py::test_agrees_to_the_printed_digit",
    ),
    # cli/
    Fault(
        "failed-command-succeeds",
        "src/onmf/cli/common.py",
        "raise SystemExit(2) from None",
        "raise SystemExit(0) from None",
        "tests/test_cli_documents.py::test_error_messages",
    ),
]


def first_failure(folder: Path, cache: Path, *arguments: str) -> str | None:
    """The first test of a copy of the project that fails; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode in (4, 5):  # a test of another name, or no test at all, shows nothing
        raise ValueError(f"There are no such tests: {' '.join(arguments)}.\n{done.stdout}{done.stderr}")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return None if done.returncode == 0 else failed[1] if failed else f"exit status {done.returncode}"


def caught_by(folder: Path, fault: Fault) -> str:
    """What notices a fault, and by which test: the named tests, the short suite, the long one, or nothing."""
    file = folder / fault.file
    original = file.read_text("utf-8")
    # A kernel in another file may have the changed one inside, and numba does not notice.
    cache = folder / (".numba-of-fault" if fault.file.startswith(KERNELS) else ".numba")
    tries = {
        "make test": ("--short", *fault.tests.split()),
        f"make test, but not {fault.tests}": ("--short", "-n", "3"),
        "ONLY make test-all": ("-n", "3"),
    }
    file.write_text(original.replace(fault.right, fault.wrong), "utf-8")
    try:
        for what, arguments in tries.items():
            if test := first_failure(folder, cache, *arguments):
                return f"{what}: {test}"
        return "NOTHING"
    finally:
        file.write_text(original, "utf-8")
        shutil.rmtree(folder / ".numba-of-fault", ignore_errors=True)


def main(names: list[str]) -> int:
    """Plant the named faults, or all, and print a line for each. Returns 1 if the short suite lets one pass."""
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        print(f"No faults of these names: {', '.join(sorted(unknown))}.")
        return 2
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    missed = 0
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "onmf")
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        named = sorted({test for fault in faults for test in fault.tests.split()})
        if failure := first_failure(folder, folder / ".numba", "--short", *named):
            print(f"{failure} fails without any fault.")
            return 2
        for fault in faults:
            began = time.monotonic()
            found = caught_by(folder, fault)
            missed += not found.startswith("make test")
            print(f"{fault.name:45} {time.monotonic() - began:5.0f} s  {found}", flush=True)
    print(f"{missed} of {len(faults)} not caught by make test.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
