"""The assets between metrics and warehouse: their numbers beside literal ones, and when they are rebuilt."""

import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from geometry.statistics.bootstrap import REPLICATES

import sql
from dagster_project.analysis.metrics_store import open_metrics
from dagster_project.assets.catalogue import find_asset
from dagster_project.assets.claims import judge_claims
from dagster_project.study.home import Home
from dagster_project.study.studies import Study
from geometry.assumptions.decay import fit_decay
from geometry.assumptions.phases import fit_phases
from storage.errors import UserError
from storage.files.tables import read_table_provenance
from storage.zarr import sequences as zarr_sequences
from storage.zarr.arrays import SELECTION, TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, PLACES, QUERIES, STUDY, cut, draw, measured, several
from tests.geometry.measured_studies import measure_study


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which every step has been made."""
    found = measured(tmp_path_factory.mktemp("drawn"), several())
    making.summarise(found, NAME, STUDY)
    return found


def rows(home: Home, table: str) -> list[dict[str, Any]]:
    return making.rows(home, NAME, table)


def tensor(home: Home, name: str) -> np.ndarray:
    return np.asarray(SequenceStore.open(home.tensors(NAME), TENSORS).array(name)[:], np.float64)


def lengths(home: Home, layer: int, kv_head: int) -> np.ndarray:
    """Norms of a KV head's value states, (sequence, key)."""
    found: np.ndarray = np.linalg.norm(tensor(home, "values")[:, layer, kv_head], axis=-1)
    return found


def test_a_store_holds_what_its_queries_and_sequences_have_together(tmp_path: Path) -> None:
    """Bit for bit, though each is measured by itself."""
    home = measured(tmp_path, several(2))
    tensors = SequenceStore.open(home.tensors(NAME), TENSORS)
    attention, values, first_key = (np.asarray(tensors.array(name)[:]) for name in ("attention", "values", "first_key"))
    settings = {"kappas": STUDY.analysis.kappas, "scale": STUDY.analysis.scale}
    together = measure_study(attention, values, first_key, QUERIES, **settings)
    store = open_metrics(home, NAME)
    assert {"finished", "learned_sink", *together} == set(store.specs)
    for name, array in together.items():
        np.testing.assert_array_equal(np.asarray(store.array(name)[:]), array, err_msg=name)


def test_norms_are_those_of_all_sequences_but_the_sinks(home: Home) -> None:
    found = {(row["layer"], row["kv_head"]): row for row in rows(home, "assumption_norms")}
    assert list(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for place, row in found.items():
        norms = lengths(home, *place)
        others = norms[:, 1:]
        per_sequence = [np.std(one) / np.mean(one) for one in others]
        medians = [np.median(one) for one in others]
        wanted = {
            "c": np.median(others),
            "c_se": np.std(medians, ddof=1) / 5**0.5,
            "lambda_sink": np.median(norms[:, 0]) / np.median(others),
            "cv_of_mean_norm": np.std(others.mean(axis=0)) / np.mean(others),
            "cv_within_sequence": np.mean(per_sequence),
            "cv_within_sequence_sd": np.std(per_sequence),
            "norm_p05": np.quantile(others, 0.05),
            "norm_p25": np.quantile(others, 0.25),
            "norm_p75": np.quantile(others, 0.75),
            "norm_p95": np.quantile(others, 0.95),
        }
        assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
        assert (row["sequences"], row["status"]) == (5, "ok")


@pytest.mark.slow
def test_value_states_of_norm_0_have_no_ratio(tmp_path: Path) -> None:
    drawn = draw(np.random.default_rng(1))
    drawn["values"][0, 0] = 0
    home = measured(tmp_path, [drawn])
    making.summarise(home, NAME, STUDY)
    row = rows(home, "assumption_norms")[0]
    assert (row["status"], row["c"], row["lambda_sink"], row["cv_within_sequence"]) == ("zero", 0, None, None)
    row = rows(home, "assumption_similarity")[0]
    assert (row["status"], row["beta"], row["floor"], row["rho_0"]) == ("undefined", None, None, None)
    assert all(row["beta_se"] is None for row in rows(home, "assumption_similarity"))
    assert all(row["recall_ci_low"] is None for row in rows(home, "selection_means"))


def cosines(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosine by distance, (key,), and cosines with the sink, (key - 1,), of one sequence: literally."""
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-300)
    gram = unit[1:] @ unit[1:].T
    mean = [np.diagonal(gram, k).mean() for k in range(len(gram))]
    return np.array([*mean, np.nan]), unit[1:] @ unit[0]


def test_similarity_is_fitted_to_the_mean_over_sequences(home: Home) -> None:
    found = {(row["layer"], row["kv_head"]): row for row in rows(home, "assumption_similarity")}
    values, model = tensor(home, "values"), []
    for (layer, kv_head), row in found.items():
        curves, sinks = zip(*(cosines(values[s, layer, kv_head]) for s in range(5)), strict=True)
        fit = fit_decay(np.mean(curves, axis=0))
        model.append(np.mean(curves, axis=0))
        assert row["beta"] == pytest.approx(fit.beta, rel=1e-4)
        assert row["mae"] == pytest.approx(fit.mae, rel=1e-4)
        if (layer, kv_head) == (0, 1):
            assert (row["rho_0"], row["rho_0_sd"], row["rho_0_se"]) == (None, None, None)
        else:
            means = [sink.mean() for sink in sinks]
            assert row["rho_0"] == pytest.approx(np.mean(means), abs=1e-6)
            assert row["rho_0_sd"] == pytest.approx(np.mean([sink.std() for sink in sinks]), abs=1e-6)
            assert row["rho_0_se"] == pytest.approx(np.std(means, ddof=1) / 5**0.5, rel=1e-4)
    (whole,) = rows(home, "assumption_similarity_model")
    assert whole["beta"] == pytest.approx(fit_decay(np.mean(model, axis=0)).beta, rel=1e-4)
    assert whole["kv_heads"] == 4


def nudged(fit: Any, curves: np.ndarray, parameter: str) -> float:
    """The standard error of a parameter from refits with every sequence weighing a little more."""
    small, mean = 1e-4, curves.mean(axis=0)
    up, down = ([getattr(fit(mean + sign * small * (one - mean)), parameter) for one in curves] for sign in (1, -1))
    moved = (np.array(up) - np.array(down)) / (2 * small)
    return float(np.sqrt((moved**2).sum() / (len(curves) * (len(curves) - 1))))


def test_standard_errors_are_those_of_refits_with_one_sequence_weighing_more(home: Home) -> None:
    values, weights = tensor(home, "values"), tensor(home, "attention")
    row = rows(home, "assumption_similarity")[2]
    curves = np.array([cosines(values[s, 1, 0])[0] for s in range(5)])
    assert row["beta_se"] == pytest.approx(nudged(fit_decay, curves, "beta"), rel=1e-2)
    assert row["floor_se"] == pytest.approx(nudged(fit_decay, curves, "floor"), rel=1e-2)
    last = [row for row in rows(home, "assumption_weights") if row["query"] == 39]
    assert (last[5]["layer"], last[5]["head"], last[5]["variant"]) == (1, 1, "growth")
    curves = weights[:, -1, 1, 1, 7:]
    for name in ("eta_growth", "p_base"):
        error = nudged(lambda curve: fit_phases(curve, first=7), curves, name)
        assert last[5][f"{name}_se"] == pytest.approx(error, rel=1e-2)
    assert last[5]["p_sink_se"] is None
    assert last[2]["p_sink_se"] == pytest.approx(np.std(weights[:, -1, 0, 2, 0], ddof=1) / 5**0.5, rel=1e-5)
    for index, whole in enumerate(rows(home, "assumption_weights_model")):
        hidden = np.where(np.arange(40) < FIRST[index, :, None, None], np.nan, weights[:, index])
        curves = np.nanmean(hidden, axis=(1, 2))[:, : QUERIES[index] + 1]
        assert (whole["query"], whole["variant"], whole["heads"]) == (QUERIES[index], "growth", 8)
        assert whole["eta_growth_se"] == pytest.approx(nudged(fit_phases, curves, "eta_growth"), rel=1e-2)


def test_weights_are_fitted_where_the_mask_shows_them(home: Home) -> None:
    found = rows(home, "assumption_weights")
    places = [(QUERIES[query], layer, head) for query, layer in PLACES for head in range(4)]
    assert [(row["query"], row["layer"], row["head"]) for row in found] == places
    weights = tensor(home, "attention").mean(axis=0)
    for row in found:
        query, layer, head = QUERIES.index(row["query"]), row["layer"], row["head"]
        first = int(FIRST[query, layer])
        fit = fit_phases(weights[query, layer, head, first : row["query"] + 1], first=first)
        for name in ("status", "variant", "positions", "t_1", "t_2"):
            assert row[name] == getattr(fit, name), name
        assert row["positions"] == row["query"] + 1 - max(first, 1)
        assert row["p_base"] == pytest.approx(fit.p_base, rel=1e-6)
        assert (row["p_sink"] is None) == (first > 0)
        assert row["sequences"] == 5


def test_means_of_the_selection_are_those_of_the_counts(home: Home) -> None:
    metrics = open_metrics(home, NAME)
    k_in, k_out = (np.asarray(metrics.array(name)[:], np.float64) for name in ("k_in", "k_out"))
    found = rows(home, "selection_means")
    assert [(row["query"], row["layer"], row["head"], row["n"]) for row in found] == [
        (QUERIES[query], layer, head, n)
        for query, layer in PLACES
        for head in range(4)
        for n in range(1, QUERIES[query] + 1 - FIRST[query, layer])
    ]
    for row in found:
        at = (slice(None), QUERIES.index(row["query"]), row["layer"], row["head"], row["n"] - 1)
        precision, recall = row["n"] / (row["n"] + k_out[at]), k_in[at] / row["n"]
        assert row["precision"] == pytest.approx(precision.mean())
        assert row["recall"] == pytest.approx(recall.mean())
        assert row["f_r_max"] == pytest.approx((2 * precision / (1 + precision)).mean())
        assert row["f_r_min"] == pytest.approx((2 * recall / (1 + recall)).mean())
        assert precision.min() <= row["precision_ci_low"] + 1e-6
        assert row["precision_ci_high"] <= precision.max() + 1e-6
        assert row["recall_ci_low"] <= row["recall_ci_high"] + 1e-6
    assert any(row["recall_ci_low"] < row["recall"] < row["recall_ci_high"] for row in found)


def test_means_of_the_model_are_those_of_its_heads_at_each_query(home: Home) -> None:
    model = rows(home, "selection_means_model")
    assert [(row["query"], row["n"]) for row in model] == [(query, n) for query in QUERIES for n in range(1, query + 1)]
    heads = [8] * 14 + [8] * 32 + [4] * 3 + [8] * 32 + [4] * 7
    assert [row["heads"] for row in model] == heads
    by_n: dict[tuple[int, int], list[float]] = {}
    for row in rows(home, "selection_means"):
        by_n.setdefault((row["query"], row["n"]), []).append(row["recall"])
    assert [row["recall"] for row in model] == pytest.approx([np.mean(recalls) for recalls in by_n.values()])


@pytest.mark.one_case
@pytest.mark.parametrize("query", range(3))
def test_a_query_is_as_in_a_study_whose_context_ends_there(home: Home, tmp_path: Path, query: int) -> None:
    """Bit for bit in the metrics, and row for row in what is made of one query."""
    alone = measured(tmp_path, [cut(drawn, query) for drawn in several()])
    whole, ends = (open_metrics(root, NAME) for root in (home, alone))
    assert ends.sizes["n"] == QUERIES[query]
    for spec in SELECTION:
        if "query" in spec.dims:
            found = np.asarray(ends.array(spec.name)[:])
            among = np.asarray(whole.array(spec.name)[:, query : query + 1])
            np.testing.assert_array_equal(found, among[..., : found.shape[-1]], err_msg=spec.name)
    for asset in ("assumption_weights", "selection_means"):
        making.summarise(alone, NAME, STUDY, [asset])
        for table in find_asset(asset).tables:
            among_rows = [row for row in rows(home, table) if row["query"] == QUERIES[query]]
            assert rows(alone, table) == among_rows, table


@pytest.mark.slow
def test_heads_are_drawn_like_those_of_the_last_query(home: Home, tmp_path: Path) -> None:
    alone = measured(tmp_path, [cut(drawn, 2) for drawn in several()])
    making.summarise(alone, NAME, STUDY)
    assert rows(alone, "parameter_effects") == rows(home, "parameter_effects") != []


def test_tables_that_are_current_are_computed_again_only_if_forced(home: Home) -> None:
    name, path = "assumption_norms", home.summaries(NAME) / "assumption_norms.parquet"
    before, version = path.stat().st_mtime_ns, int(find_asset(name).version())
    again = making.summarise(home, NAME, STUDY, [name])[name]
    assert (again.metadata["rows of assumption_norms"], path.stat().st_mtime_ns) == (4, before)
    assert making.make(home, NAME, [name], STUDY, force=True)[name].metadata["dagster/row_count"] == 4
    assert (read_table_provenance(path)["versions"], path.stat().st_mtime_ns > before) == ({name: version}, True)
    with making.at_version(name, version + 1):
        making.summarise(home, NAME, STUDY, [name])
        assert read_table_provenance(path)["versions"] == {name: version + 1}
    with pytest.raises(UserError, match=r"'assumption_norms' of study 'drawn' was made by a newer version"):
        making.land(home, NAME, STUDY)
    path.unlink()
    making.summarise(home, NAME, STUDY, [name])
    assert read_table_provenance(path)["versions"] == {name: version}


def test_a_step_says_what_it_found(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """One sentence from each asset that has one and rows to speak of; ``sql/findings`` is of assets alone."""
    with caplog.at_level("INFO"):
        making.summarise(home, NAME, STUDY)
    told = dict(line.removeprefix(f"{NAME}: ").split(", ", 1) for line in caplog.messages)
    spoke = {name for name in sql.list_names("findings") if not re.match(r"[\d,]+ rows ", told[name.replace("_", " ")])}
    assert spoke >= {*sql.list_names("findings")} - {"head_ablation", "sparsified_loss", "logit_range", "sink_effect"}
    means = {row["n"]: row for row in rows(home, "selection_means_model") if row["query"] == max(QUERIES)}
    assert f"Recall at N = 4 is {means[4]['recall']:.2f}" in told["selection means"]


def test_nothing_is_computed_from_stale_tables(home: Home) -> None:
    later = "bounds_in_expectation"
    with (
        making.at_version("assumption_norms", 99),
        pytest.raises(UserError, match=f"tables of 'assumption_norms' .* run: attention-geometry run {NAME}"),
    ):
        making.make(home, NAME, [later], STUDY, force=True)
    assert making.summarise(home, NAME, STUDY, [later])[later].metadata["rows of monte_carlo"] == 0


@pytest.mark.slow
def test_a_setting_has_what_depends_on_it_rebuilt(home: Home, tmp_path: Path) -> None:
    copied = Home(Path(shutil.copytree(home.root, tmp_path / "copied")))
    other = Study.model_validate(STUDY.model_dump() | {"analysis": {"kappas": [0.5, 2], "scale": "raw"}})
    making.measure(copied, NAME, other)
    before = {path.stem: path.stat().st_mtime_ns for path in copied.summaries(NAME).iterdir()}
    making.summarise(copied, NAME, other)
    changed = {path.stem for path in copied.summaries(NAME).iterdir() if path.stat().st_mtime_ns != before[path.stem]}
    assert changed == {"monte_carlo", "parameter_effects", "regimes_by_sequence", "claim_estimates"}


def test_claims_of_a_study_that_is_not_landed_cannot_be_judged(home: Home) -> None:
    with pytest.raises(UserError, match=f"holds nothing of the study '{NAME}'; run it first"):
        judge_claims(home, NAME)


@pytest.mark.slow
def test_a_weight_of_1_on_the_sink_leaves_nothing_to_draw(home: Home, tmp_path: Path) -> None:
    copied = Home(Path(shutil.copytree(home.root, tmp_path / "copied")))
    array = SequenceStore.open(copied.tensors(NAME), TENSORS).array("attention")
    weights = np.full(array.shape, 1e-9, np.float32)
    weights[..., 0] = 1
    for query, layer in zip(*np.nonzero(FIRST), strict=True):
        weights[:, query, layer, :, : FIRST[query, layer]] = 0
        weights[:, query, layer, :, FIRST[query, layer]] = 1
    array[:] = weights
    shutil.rmtree(copied.summaries(NAME))
    making.summarise(copied, NAME, STUDY)
    assert rows(copied, "assumption_weights_model")[-1]["p_sink"] == 1
    assert (rows(copied, "monte_carlo"), rows(copied, "parameter_effects")) == ([], [])


def peaks(root: Path, sequences: int) -> dict[str, int]:
    """The most memory that each asset takes, in bytes; six sequences are held against nulls."""
    study = Study.model_validate(STUDY.model_dump() | {"analysis": {"nulls": {"sequences": 6}}})
    home, found = measured(root, several(sequences, keys=256, head_dim=64)), {}
    for asset in making.TABLES:
        tracemalloc.start()
        with dask.config.set(num_workers=1):  # which tasks meet on two threads is chance
            making.summarise(home, NAME, study, [asset])
        found[asset] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found


@pytest.mark.long  # every asset of two larger studies, traced
@pytest.mark.usefixtures("home")  # what is compiled or imported once is there
def test_memory_does_not_grow_with_the_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six times the sequences: beside what reading leaves to be collected, only their resampling takes more.

    It is float32; where sums are to be exact there is a copy in float64. What an open store keeps has a bound and a
    test of its own.
    """
    monkeypatch.setattr(zarr_sequences, "KEPT", 0)
    few, many = peaks(tmp_path / "few", 6), peaks(tmp_path / "many", 36)
    attention, values = 4 * 30 * 3 * 2 * 4 * 256, 4 * 30 * 2 * 2 * 256 * 64
    for step, peak in few.items():
        resampled = {"selection_means": 4, "sink_effect": 4 + 8}.get(step, 0) * 30 * REPLICATES
        assert many[step] - peak <= resampled + (attention + values) / 8, step
