"""One command from a checkpoint and a text to rows; the rows equal float64 definitions on eager attention."""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dagster_project.study.home import Home
from extract.hub import silence_libraries
from storage.files.places import LocalPlace
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore
from tests.dagster_project import making, recorded
from tests.dagster_project.conftest import CONTEXT, SEQUENCES
from tests.dagster_project.driver import attention_geometry
from tests.extract.tiny import WINDOW
from tests.geometry import oracle

LAYERS, HEADS, KV_HEADS = 2, 4, 2
ROUNDING = 1e-5
"""Differences between two float32 forward passes move weights and value states by less than this share."""

COLUMNS = "k_in, k_out, r_min, r_max, norm_s, norm_s_without_sink, norm_s_without_last, cos_sink, cos_last"


@dataclass
class Eager:
    """What a forward pass through plain eager attention says, float64: (sequence, layer, head, key[, head_dim])."""

    weights: np.ndarray
    values: np.ndarray


def ask(home: Path, query: str) -> list[dict[str, str]]:
    """Rows from the command line, as CSV."""
    done = attention_geometry("sql", query, "--format", "csv", home=home)
    assert done.code == 0, done.errors
    assert done.errors == ""
    return list(csv.DictReader(io.StringIO(done.text)))


def stored_tokens(home: Path) -> torch.Tensor:
    rows = ask(home, "SELECT token_id FROM tokens ORDER BY sequence, position")
    return torch.tensor([int(row["token_id"]) for row in rows]).reshape(SEQUENCES, CONTEXT)


def eager(checkpoint: Path, tokens: torch.Tensor, *, query: int = -1, grouped: bool = True) -> Eager:
    """Attention weights of one query from eager attention, and the hooked value projections, repeated per head."""
    with silence_libraries():
        model = AutoModelForCausalLM.from_pretrained(checkpoint, attn_implementation="eager", dtype=torch.float32)
    projected: list[torch.Tensor] = []
    for layer in model.eval().model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda _module, _inputs, output: projected.append(output))
    with torch.no_grad():
        weights = torch.stack(model(tokens, output_attentions=True).attentions, dim=1)[:, :, :, query]
    values = torch.stack(projected, dim=1).unflatten(-1, (KV_HEADS, -1)).transpose(2, 3)
    heads = np.arange(HEADS) // (HEADS // KV_HEADS) if grouped else np.arange(HEADS) % KV_HEADS
    return Eager(weights.double().numpy(), values.double().numpy()[:, :, heads])


def selection(home: Path, query: int = CONTEXT - 1) -> dict[str, np.ndarray]:
    """The view ``selection`` at one query as float64 arrays (sequence, layer, head, n); NULL is NaN."""
    rows = ask(home, f"SELECT {COLUMNS} FROM selection WHERE query = {query} ORDER BY sequence, layer, head, n")
    arrays = {name: np.array([float(row[name] or "nan") for row in rows]) for name in COLUMNS.split(", ")}
    return {name: array.reshape(SEQUENCES, LAYERS, HEADS, -1) for name, array in arrays.items()}


def over_heads(found: Eager, first: int, function: Callable[..., dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """A function of the visible keys of one head, for every head: arrays (sequence, layer, head, n)."""
    heads = [
        function(found.weights[index][first:], found.values[index][first:])
        for index in np.ndindex(SEQUENCES, LAYERS, HEADS)
    ]
    return {name: np.array([head[name] for head in heads]).reshape(SEQUENCES, LAYERS, HEADS, -1) for name in heads[0]}


def margins(weights: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """For every N, how close the counts are to being others, as a share of what they are computed from."""
    y, order = weights[:, None] * values, np.argsort(-weights, kind="stable")
    closest = []
    for size in range(1, len(weights)):
        inside, outside = order[:size], order[size:]
        s = y[inside].sum(axis=0)
        norm = np.linalg.norm(y, axis=1)
        energy, size_of = norm**2 - 2 * y @ s, norm**2 + 2 * norm * np.linalg.norm(s)
        nearest, farthest = outside[energy[outside].argmin()], inside[energy[inside].argmax()]
        gaps = [
            (np.abs(energy[inside] - energy[nearest]) / (size_of[inside] + size_of[nearest])).min(),
            (np.abs(energy[outside] - energy[farthest]) / (size_of[outside] + size_of[farthest])).min(),
            (weights[inside[-1]] - weights[outside[0]]) / weights[inside[-1]],
        ]
        closest.append(min(gaps))
    return {"margin": np.array(closest)}


def wrong_counts(landed: dict[str, np.ndarray], found: Eager, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have other counts than the definitions on ``found`` give, and how close those rows are."""
    counted = over_heads(found, first, _counts)
    wrong = (landed["k_in"] != counted["k_in"]) | (landed["k_out"] != counted["k_out"])
    return wrong, over_heads(found, first, margins)["margin"]


def _counts(weights: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    y = (weights[:, None] * values).tolist()
    pairs = np.array([oracle.counts(weights, y, size) for size in range(1, len(weights))])
    return {"k_in": pairs[:, 0], "k_out": pairs[:, 1]}


QUERIES = (9, 30, CONTEXT - 1)
CASES = [("llama", CONTEXT - 1), *(("mistral", query) for query in QUERIES)]
"""Checkpoints and queries of their studies."""


@pytest.fixture(scope="module")
def several(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root where a study of the checkpoint ``mistral`` has landed, with three queries."""
    root = tmp_path_factory.mktemp("several")
    study = {"model": str(inputs / "mistral"), "corpus": str(inputs / "book.txt"), "context_length": CONTEXT}
    recorded.write_studies(root, mine=study | {"sequences": SEQUENCES, "queries": list(QUERIES)})
    making.extract(Home(root), "mine")
    making.measure(Home(root), "mine")
    making.summarise(Home(root), "mine")
    assert making.land(Home(root), "mine").published
    return root


@dataclass
class Case:
    """A data root, its checkpoint, a query, and the first key that it may attend to."""

    home: Path
    checkpoint: Path
    query: int
    first: int

    def read(self, query: int | None = None, **mutation: bool) -> Eager:
        """What eager attention says of the keys that the query sees, with its weights or those of another query."""
        asked = self.query if query is None else query
        found = eager(self.checkpoint, stored_tokens(self.home), query=asked, **mutation)
        return Eager(found.weights[..., : self.query + 1], found.values[..., : self.query + 1, :])


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest, inputs: Path) -> Case:
    name, query = request.param
    home = request.getfixturevalue("mine" if name == "llama" else "several")
    return Case(home, inputs / name, query, 0 if name == "llama" else max(0, query + 1 - WINDOW))


@pytest.mark.one_case
def test_counts_are_those_of_eager_attention_for_all_n(case: Case) -> None:
    """But where rounding may be the reason, which is rare; weights of another query would be noticed."""
    landed = selection(case.home, case.query)
    assert landed["k_in"].shape == (SEQUENCES, LAYERS, HEADS, case.query - case.first)
    wrong, margin = wrong_counts(landed, case.read(), case.first)
    assert (margin[wrong] < ROUNDING).all(), "counts differ where no rounding of float32 can be the reason"
    assert wrong.mean() < 0.005
    assert (margin < ROUNDING).mean() < 0.005, "the comparison would excuse too much"
    another = case.read(case.query + 1 if case.query + 1 < CONTEXT else case.query - 1)
    seen = another.weights + 1e-9  # a window may hide a key from the one, and margins are shares of weights
    wrong, margin = wrong_counts(landed, Eager(seen, another.values), case.first)
    assert (wrong & (margin > ROUNDING)).mean() > 0.1


def test_another_order_of_grouped_heads_would_be_noticed(mine: Path, inputs: Path) -> None:
    found = Case(mine, inputs / "llama", CONTEXT - 1, 0).read(grouped=False)
    wrong, margin = wrong_counts(selection(mine), found, 0)
    assert (wrong & (margin > ROUNDING)).mean() > 0.1


@pytest.mark.slow
def test_distances_norms_and_cosines_are_those_of_eager_attention(case: Case) -> None:
    landed, found, first = selection(case.home, case.query), case.read(), case.first
    wanted = over_heads(found, first, lambda weights, values: oracle.profile(weights, values, sink=first == 0))
    sure = over_heads(found, first, margins)["margin"] > ROUNDING  # the same keys are selected
    for name in COLUMNS.split(", ")[2:]:
        np.testing.assert_allclose(landed[name][sure], wanted[name][sure], rtol=1e-3, atol=2e-5, err_msg=name)


@pytest.mark.one_case
def test_counts_are_exactly_those_of_the_stored_tensors(case: Case) -> None:
    tensors = SequenceStore.open(LocalPlace(case.home / "tensors" / "mine.zarr"), TENSORS)
    landed, (sequence, layer) = selection(case.home, case.query), (1, 1)
    queries, seen = tensors.array("query_position")[sequence].tolist(), slice(case.first, case.query + 1)
    weights = tensors.array("attention")[sequence, queries.index(case.query), layer]
    values = tensors.array("values")[sequence, layer]
    for head in range(HEADS):
        exact = oracle.exact_counts(weights[head][seen], values[head // (HEADS // KV_HEADS)][seen])
        for name, counts in exact.items():
            np.testing.assert_array_equal(landed[name][sequence, layer, head], counts, err_msg=f"{name} of {head}")


@pytest.mark.slow
def test_parts_of_the_output_are_those_of_eager_attention(case: Case) -> None:
    names = ("norm_y_0", "norm_y_last", "norm_rest", "total_rest")
    given = f"FROM attention_rows WHERE query = {case.query} ORDER BY sequence, layer, head"
    rows = ask(case.home, f"SELECT {', '.join(names)} {given}")
    landed = np.array([[float(row[name] or "nan") for name in names] for row in rows])
    found = case.read()
    y = found.weights[..., None] * found.values
    rest = y[..., max(case.first, 1) : -1, :]
    wanted = [
        np.linalg.norm(y[..., 0, :], axis=-1) if case.first == 0 else np.full(y.shape[:-2], np.nan),
        np.linalg.norm(y[..., -1, :], axis=-1),
        np.linalg.norm(rest.sum(-2), axis=-1),
        np.linalg.norm(rest, axis=-1).sum(-1),
    ]
    np.testing.assert_allclose(landed, np.stack(wanted, axis=-1).reshape(-1, 4), rtol=1e-3)


def test_sequences_begin_with_bos_and_the_rates_follow_from_the_counts(mine: Path) -> None:
    assert stored_tokens(mine)[:, 0].tolist() == [0] * SEQUENCES
    broken = (
        "SELECT count(*) AS n FROM selection WHERE abs(precision - n / (n + k_out)) + abs(recall - k_in / n) > 1e-12 "
        "OR abs(f_r_min - 2 * recall / (1 + recall)) + abs(f_r_max - 2 * precision / (1 + precision)) > 1e-12"
    )
    assert ask(mine, broken) == [{"n": "0"}]
