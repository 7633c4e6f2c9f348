"""The synthetic study: what lands is drawn from what was planted, resumes to the same bytes, and refuses the rest."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagster_project.study.studies import parse_study
from extract.extraction import ExtractionReport, extract
from extract.models.loading import decode_tokens
from extract.settings import SYNTHETIC, ExtractionSettings
from extract.synthetic import OF_VALUES, OF_WEIGHTS, PlantedHead, draw_sequence, plant_heads
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.extract.tiny import tree
from tests.geometry.test_assumed import read_phases

KEYS, SEQUENCES = 96, 5
QUERIES = (40, 95)
PART = {"layers": 2, "heads": 6, "kv_heads": 3, "head_dim": 48, "noise": 0.0}


def settings(part: dict[str, object] | None = None, **others: object) -> ExtractionSettings:
    standard = {"model": SYNTHETIC, "context_length": KEYS, "sequences": SEQUENCES, "queries": QUERIES}
    return ExtractionSettings.model_validate(standard | {"synthetic": PART | (part or {})} | others)


def run(path: Path, **others: object) -> ExtractionReport:
    return extract(settings(**others), study="drawn", path=LocalPlace(path))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "store"
    run(path)
    return path


# --- what is planted ---


def column(heads: list[PlantedHead], name: str) -> np.ndarray:
    return np.array([getattr(head.assumed, name) for head in heads])


def test_every_parameter_runs_through_its_range_in_equal_steps() -> None:
    chosen = settings()
    heads, part = plant_heads(chosen), chosen.synthetic
    assert part is not None
    assert [(head.query, head.layer, head.head, head.kv_head) for head in heads] == [
        (query, layer, head, head // 2) for query in QUERIES for layer in range(2) for head in range(6)
    ]
    for query, of_query in zip(QUERIES, (heads[:12], heads[12:]), strict=True):
        for name in OF_WEIGHTS:
            steps = np.linspace(*getattr(part, name), 12)
            steps = np.rint(steps * (query + 1)) if name in {"t_1", "t_2"} else steps
            np.testing.assert_allclose(np.sort(column(of_query, name)), steps)
        for name in OF_VALUES:
            found = column(of_query, name)
            np.testing.assert_allclose(np.sort(found[::2]), np.linspace(*getattr(part, name), 6))
            np.testing.assert_array_equal(found[::2], found[1::2])  # one KV head


def test_queries_share_all_but_where_the_phases_end() -> None:
    early, late = plant_heads(settings())[:12], plant_heads(settings())[12:]
    for one, other in zip(early, late, strict=True):
        edges = {"t_1": other.assumed.t_1, "t_2": other.assumed.t_2}
        assert replace(one, query=95, assumed=replace(one.assumed, **edges)) == other
        assert abs(one.assumed.t_1 / 41 - other.assumed.t_1 / 96) < 0.02
    assert plant_heads(settings(queries=None)) == late
    tied = plant_heads(settings({"eta": [0.05, 0.1], "eta_growth": None}))
    np.testing.assert_array_equal(column(tied, "eta"), column(tied, "eta_growth"))
    (one, _) = plant_heads(settings({"layers": 1, "heads": 1, "kv_heads": 1, "beta": [0.2, 0.1]}))
    assert (one.assumed.beta, one.assumed.value_scale, one.assumed.p_sink) == (0.2, 0.5, 0.2)


# --- what lands ---


def weights_are_those_of(heads: list[PlantedHead], attention: np.ndarray) -> bool:
    """Over the query's own keys; those after it have exactly none."""
    for head in heads:
        row, keys = attention[:, QUERIES.index(head.query), head.layer, head.head], head.query + 1
        if not np.allclose(row[:, :keys], read_phases(head.assumed, keys), rtol=1e-5) or row[:, keys:].any():
            return False
    return True


def norms_are_those_of(heads: list[PlantedHead], values: np.ndarray) -> bool:
    norms = np.linalg.norm(values.astype(np.float64), axis=-1)
    return all(
        np.allclose(norms[:, head.layer, head.kv_head, 1:], head.assumed.value_scale, rtol=1e-5)
        and np.allclose(norms[:, head.layer, head.kv_head, 0], head.assumed.lambda_sink * head.assumed.value_scale)
        for head in heads
    )


def test_the_store_holds_weights_and_norms_as_planted(uninterrupted: Path) -> None:
    store, heads = SequenceStore.open(LocalPlace(uninterrupted), TENSORS), plant_heads(settings())
    assert weights_are_those_of(heads, store.array("attention")[:])
    assert norms_are_those_of(heads, store.array("values")[:])


def test_what_is_drawn_with_another_parameter_is_noticed(uninterrupted: Path) -> None:
    store, heads = SequenceStore.open(LocalPlace(uninterrupted), TENSORS), plant_heads(settings())
    attention, known = store.array("attention")[:], heads[12].assumed
    for name in OF_WEIGHTS:
        step = 1 if name in {"t_1", "t_2"} else 0.001
        wrong = replace(heads[12], assumed=replace(known, **{name: getattr(known, name) + step}))
        assert not weights_are_those_of([*heads[:12], wrong, *heads[13:]], attention), name
    mixed = [replace(head, assumed=other.assumed) for head, other in zip(heads, heads[2:] + heads[:2], strict=True)]
    assert not norms_are_those_of(mixed, store.array("values")[:])


def test_a_sequence_is_the_same_whichever_queries_it_has() -> None:
    noisy = {"noise": 0.2}
    both, late = settings(noisy), settings(noisy, queries=None)
    together, alone = (draw_sequence(chosen, plant_heads(chosen), 3) for chosen in (both, late))
    np.testing.assert_array_equal(together["values"], alone["values"])
    np.testing.assert_array_equal(together["attention"][1:], alone["attention"])
    residuals = [
        np.log(together["attention"][q, 0, 0, 1:41])
        - np.log(read_phases(plant_heads(both)[12 * q].assumed, query + 1)[1:41])
        for q, query in enumerate(QUERIES)
    ]
    assert abs(np.corrcoef(residuals)[0, 1]) < 0.6  # each query has noise of its own


def test_the_same_is_drawn_again(uninterrupted: Path, tmp_path: Path) -> None:
    report = run(tmp_path / "store")
    assert (report.sequences, report.written, report.documents_read, report.documents_skipped) == (5, 5, 0, 0)
    assert report.row_sum_deviation < KEYS * 2.0**-24
    assert tree(Path(report.path)) == tree(uninterrupted)


def test_value_states_whose_distances_exceed_float32_are_refused_for_that(tmp_path: Path) -> None:
    said = r"value states of up to \d\S+e\+37 in layer 0, whose distances may be too large for float32; get"
    with pytest.raises(UserError, match=said):
        run(tmp_path / "large", part={"value_scale": [1.5e38, 1.5e38]})


# --- settings ---


def test_a_name_a_length_and_a_number_describe_a_study() -> None:
    study = parse_study("x", {"model": SYNTHETIC, "context_length": 256, "sequences": 8}, "command line")
    assert study.corpus.id == SYNTHETIC
    assert study.synthetic is not None
    assert study.synthetic.layers == 4
    for form in ("json", "python"):
        assert parse_study("x", study.model_dump(mode=form), "again") == study
    assert list(decode_tokens(study.model, np.array([[0, 17]]))) == [["p0", "p17"]]
    with pytest.raises(ValueError, match="the model 'embedded' is not 'synthetic'"):
        plant_heads(ExtractionSettings(model="embedded", corpus="embedded", context_length=8, sequences=1))


def test_any_settings_that_are_accepted_can_be_drawn() -> None:
    """The corners of the ranges: what the settings let through, the distributions take."""
    for part in (
        {"lambda_sink": [0, 0], "rho_0": [-0.99, 0.99], "beta": [1e-6, 50], "value_scale": [1e-6, 1e6]},
        {"t_1": [0.001, 0.001], "t_2": [0.999, 0.999], "omega": [0.001, 3.14159], "eta": [-0.99, 0.99]},
        {"t_1": [0.5, 0.5], "t_2": [0.5, 0.5], "eta_growth": [-0.5, 1.2], "p_sink": [1e-6, 0.999], "noise": 1},
        {"head_dim": 2, "layers": 1, "heads": 1, "kv_heads": 1},
    ):
        for keys, queries in ((2, None), (3, [1, 2]), (90, [1, 2, 30, 89])):
            chosen = settings(part, context_length=keys, queries=queries)
            arrays = draw_sequence(chosen, plant_heads(chosen), 0)
            assert np.isfinite(arrays["values"]).all()
            for query, weights in zip(arrays["query_position"], arrays["attention"], strict=True):
                assert (weights[..., : query + 1] > 0).all()
            np.testing.assert_allclose(arrays["attention"].sum(axis=-1), 1, atol=1e-5)
