"""The tables behind Figures 6, 9 and 10, and means by position and distance: their rows beside literal ones."""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dagster_project.study.home import Home
from geometry.quantities import SELECTION
from tests.dagster_project import making
from tests.dagster_project.drawn_study import (
    FIRST,
    NAME,
    PLACES,
    QUERIES,
    SIZES,
    STUDY,
    measured,
    read_tensor,
    rows,
    several,
    write_tensors,
)
from tests.dagster_project.intervals import columns, near, of_statistic

ASSETS = ("selection_means", "contributions", "value_directions", "assumption_norms", "assumption_similarity")
HEADS, KV_HEADS = [*product(range(2), range(4))], [*product(range(2), range(2))]
"""Layer and number of each."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root in which these tables have been made of the drawn study with more value states of norm 0."""
    sequences = several()
    for drawn in sequences:
        drawn["values"][1, 1, 5] = 0
    sequences[1]["values"][1, 0, 0] = 0  # the sink of a KV head, in one sequence
    found = measured(tmp_path_factory.mktemp("drawn"), sequences)
    making.summarise(found, NAME, STUDY, ASSETS)
    return found


@cache
def array(home: Home, name: str) -> np.ndarray:
    """An array of the tensors or of what is measured, in float64."""
    if name in SELECTION and name != "learned_sink":
        return np.asarray(making.open_metrics(home, NAME, STUDY).array(name)[:], np.float64)
    return read_tensor(home, name)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length > 0 else np.nan


def mean_of_known(values: np.ndarray) -> float:
    """Mean of what is no NaN."""
    some = values[~np.isnan(values)]
    return float(some.mean()) if some.size else np.nan


# --- Figure 6 ---


def correlation(home: Home, query: int, n: int, sequences: np.ndarray) -> tuple[int, float]:
    """Heads that take part, and the correlation over them of means over the given sequences: literally."""
    values, k_in, pairs = array(home, "values"), array(home, "k_in"), []
    for layer, head in HEADS:
        keys = values[:, layer, head // 2, : QUERIES[query] + 1]
        if FIRST[query, layer] == 0 and n < len(keys[0]):
            rho = [mean_of_known(np.array([cosine(one[0], key) for key in one[1:]])) for one in keys[sequences]]
            if not np.isnan(rho).all():
                recall = float(np.mean(k_in[sequences, query, layer, head, n - 1] / n))
                pairs.append((recall, mean_of_known(np.array(rho))))
    recalls, rhos = np.array(pairs).T
    same = len(pairs) < 3 or np.ptp(recalls) < 1e-12 or np.ptp(rhos) < 1e-12
    return len(pairs), np.nan if same else float(np.corrcoef(recalls, rhos)[0, 1])


def grid(query: int) -> list[int]:
    """The N of a query, literally: 48 points evenly spaced in ln N."""
    return sorted({int(query ** (step / 47) + 0.5) for step in range(48)})


def test_the_sink_effect_is_correlated_again_without_each_sequence(home: Home) -> None:
    """Intervals are made of Fisher's z, on a log grid of N; a window leaves two heads to the later queries, too few."""
    found = rows(home, "sink_effect")
    assert [(row["query"], row["n"]) for row in found] == [(q, n) for q in QUERIES for n in grid(q)]
    of_z = 0.0
    for row in found:
        place = (QUERIES.index(row["query"]), row["n"])
        heads, _ = correlation(home, *place, np.arange(5))
        assert (row["heads"], row["sequences"]) == (heads, 5)
        assert heads == (6 if row["query"] == QUERIES[0] else 2)
        if row["n"] == 1 or heads < 3:  # Recall is 1 in every head
            assert [row[name] for name in columns("correlation", (0, 0, 0))] == [None] * 3
            continue
        ends = of_statistic(lambda kept, place=place: np.arctanh(correlation(home, *place, kept)[1]), 5)
        assert near(row, columns("correlation", tuple(np.tanh(ends))), rel=1e-4)
        _, low, high = of_statistic(lambda kept, place=place: correlation(home, *place, kept)[1], 5)
        of_z = max(of_z, abs(low - row["correlation_low"]), abs(high - row["correlation_high"]))
    assert of_z > 0.01  # mutation control


# --- Figure 10 ---


def contribution(home: Home, query: int, layer: int, head: int, position: int) -> dict[str, float]:
    """The statistics of a row of ``attention_by_position``, literally."""
    values, weights = array(home, "values")[:, layer, head // 2], array(home, "attention")[:, query, layer, head]
    lengths = np.linalg.norm(weights[:, position, None] * values[:, position], axis=-1)
    last = np.array([cosine(of_one[position], of_one[QUERIES[query]]) for of_one in values])
    sink = np.array([cosine(of_one[position], of_one[0]) for of_one in values])
    return {
        "mean_weight": weights[:, position].mean(),
        "mean_norm_y": lengths.mean(),
        "mean_cos_last": mean_of_known(last),
        "mean_cos_sink": np.nan if FIRST[query, layer] else mean_of_known(sink),
    }


def test_contributions_are_means_over_sequences_where_the_mask_shows_keys(home: Home) -> None:
    found = rows(home, "attention_by_position")
    assert [(row["query"], row["layer"], row["head"], row["position"]) for row in found] == [
        (QUERIES[query], layer, head, position)
        for query, layer in PLACES
        for head in range(4)
        for position in range(FIRST[query, layer], QUERIES[query] + 1)
    ]
    for row in found:
        wanted = contribution(home, QUERIES.index(row["query"]), row["layer"], row["head"], row["position"])
        assert near(row, wanted | {"sequences": 5}, 1e-5, 1e-6), (row, wanted)
    unknown = {(row["query"], row["layer"], row["head"]) for row in found if row["mean_cos_sink"] is None}
    assert (
        unknown
        == {(q, 0, head) for q in QUERIES for head in (2, 3)}
        | {
            *((QUERIES[0], 1, head) for head in (2, 3)),  # at the key of norm 0
            *((q, 1, head) for q in QUERIES[1:] for head in range(4)),
        }
    )


# --- Figure 9 ---


def decompose(home: Home, layer: int, kv_head: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares and axes of the unit vectors of all sequences without the sink, at once."""
    states = array(home, "values")[:, layer, kv_head, 1:].reshape(-1, SIZES["head_dim"])
    unit = np.array([v / np.linalg.norm(v) for v in states if v.any()])
    _, strength, axes = np.linalg.svd(unit, full_matrices=False)
    sides = np.where(axes @ unit.mean(axis=0) < 0, -1, 1)
    return strength**2 / len(unit), axes * sides[:, None]


def test_principal_directions_are_those_of_all_sequences(home: Home) -> None:
    found = rows(home, "principal_directions")
    assert [(row["layer"], row["kv_head"]) for row in found] == KV_HEADS
    for row in found:
        shares, _ = decompose(home, row["layer"], row["kv_head"])
        assert [row["share_1"], row["share_2"], row["share_3"]] == pytest.approx(list(shares[:3]), abs=1e-12)
        assert row["effective_dimension"] == pytest.approx(1 / (shares**2).sum())
        assert (row["sequences"], row["status"]) == (5, "ok")


def test_value_directions_are_points_of_sequence_0(home: Home) -> None:
    found, values = rows(home, "value_directions"), array(home, "values")[0]
    directed = [place for place in np.ndindex(values.shape[:3]) if values[place].any()]
    assert [(row["layer"], row["kv_head"], row["position"]) for row in found] == directed
    assert len(directed) == 2 * 2 * 40 - 2  # a sink and a key of norm 0
    for row, place in zip(found, directed, strict=True):
        _, axes = decompose(home, *place[:2])
        wanted = axes[:3] @ values[place] / np.linalg.norm(values[place])
        assert [row["x"], row["y"], row["z"]] == pytest.approx(list(wanted), abs=1e-6)


def test_a_head_of_norm_0_has_no_directions(tmp_path: Path) -> None:
    empty, (drawn,) = Home(tmp_path), several(1)
    drawn["values"][1, 1, 1:] = 0
    write_tensors(empty, [drawn])
    making.measure(empty, NAME, STUDY)
    making.summarise(empty, NAME, STUDY, ["value_directions"])
    row = rows(empty, "principal_directions")[3]
    assert (row["layer"], row["kv_head"], row["status"]) == (1, 1, "zero")
    assert {row[name] for name in ("share_1", "share_2", "share_3", "effective_dimension")} == {None}
    places = {(row["layer"], row["kv_head"]) for row in rows(empty, "value_directions")}
    assert places == {*KV_HEADS} - {(1, 1)}


# --- means by position and distance ---


@pytest.mark.parametrize(
    ("table", "measure", "axis", "quantity"),
    [
        ("value_norm_by_position", "value_norm", "position", "mean_norm"),
        ("cosine_by_distance", "mean_cosine", "distance", "mean_cosine"),
    ],
)
def test_means_by_position_are_over_sequences(home: Home, table: str, measure: str, axis: str, quantity: str) -> None:
    found, numbers = rows(home, table), array(home, measure)
    assert len({(row["layer"], row["kv_head"], row[axis]) for row in found}) == len(found) >= 4 * 38
    for row in found:
        wanted = numbers[:, row["layer"], row["kv_head"], row[axis]].mean()
        assert near(row, {quantity: wanted}, 1e-6, 1e-7), (row, wanted)
