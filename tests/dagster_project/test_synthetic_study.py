"""A synthetic study, run as a user would: its fits find what it was drawn from."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import storage
from tests.dagster_project.driver import attention_geometry

GRID = """studies:
  planted:
    model: synthetic
    context_length: 384
    sequences: 12
    queries: [287, 383]
    synthetic: {layers: 2, heads: 4, kv_heads: 2, head_dim: 64, noise: 0.1}
    analysis:
      kappas: [0.5, 5]
      nulls: null
      temperatures: [1]
"""

SLACK = {"C": 1e-6, "lambda_sink": 1e-6, "beta": 0.1, "rho_0": 1e-6, "p_base": 0.01, "T_1": 0.1, "T_2": 0.02}
"""What a fit may be off beside 2.5 times half of its interval, as a share of what was planted; 0 if not named.

β: cosines of renormalised walks are exact but for O(1/d), and do not depend on the sequence. p_base: the mean of the
lognormal noise, which weights are divided by. T_1, T_2: an oscillation that ends near a node fades into the plateau.
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The warehouse of a finished synthetic study."""
    home = tmp_path_factory.mktemp("planted")
    (home / "studies.yaml").write_text(GRID, encoding="utf-8")
    done = attention_geometry("run", "planted", home=home)
    assert done.code == 0, done.errors
    with storage.connect(home) as connection:
        yield connection


def ask(planted: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    return planted.sql(query).to_arrow_table().to_pylist()


OF_VALUES = (
    "planted_assumptions AS p JOIN assumption_norms AS n USING (study, layer, kv_head) "
    "JOIN assumption_similarity AS s USING (study, layer, kv_head)"
)
OF_WEIGHTS = "planted_assumptions AS p JOIN assumption_weights AS w USING (study, query, layer, head)"


def half(column: str) -> str:
    """SQL of half of the width of an interval, 2.2 standard errors with 12 sequences."""
    return f"({column}_high - {column}_low) / 2"


BETA = "if(preferred = 'floor', beta_floor, s.beta)", f"if(preferred = 'floor', {half('beta_floor')}, {half('s.beta')})"
PLANTED: dict[str, tuple[str, str, str]] = {
    "C": (OF_VALUES, "n.c", half("n.c")),
    "lambda_sink": (OF_VALUES, "n.lambda_sink", "0"),
    "beta": (OF_VALUES, *BETA),
    "rho_0": (OF_VALUES, "s.rho_0", half("s.rho_0")),
    **{
        name: (OF_WEIGHTS, f"w.{name}", half(f"w.{name}"))
        for name in ("p_sink", "p_base", "eta", "eta_growth", "omega")
    },
    **{name: (OF_WEIGHTS, f"w.{name}", "0") for name in ("T_1", "T_2")},
}
"""The tables, the fitted number and half of its interval, by the column of what was planted."""


@pytest.mark.slow
@pytest.mark.parametrize("parameter", PLANTED)
def test_fits_find_what_was_planted(planted: duckdb.DuckDBPyConnection, parameter: str) -> None:
    tables, fitted, error = PLANTED[parameter]
    rows = ask(planted, f"SELECT p.{parameter} AS planted, {fitted} AS fitted, {error} AS error FROM {tables}")
    assert len(rows) == 2 * 8
    for row in rows:
        allowed = 2.5 * row["error"] + SLACK.get(parameter, 0) * abs(row["planted"]) + 1e-6 * (parameter == "rho_0")
        if parameter == "rho_0" and row["planted"] == 0:
            allowed += 0.02  # an independent direction, not an orthogonal one
        assert row["fitted"] == pytest.approx(row["planted"], abs=allowed), row
    assert len({row["planted"] for row in rows}) > 1


@pytest.mark.slow
def test_the_criterion_finds_the_oscillation_and_the_floor(planted: duckdb.DuckDBPyConnection) -> None:
    assert ask(planted, "SELECT DISTINCT variant, status FROM assumption_weights WHERE layer IS NOT NULL") == [
        {"variant": "untied", "status": "ok"}
    ]
    found = ask(
        planted, "SELECT floor, rho_0 FROM assumption_similarity WHERE preferred = 'floor' AND layer IS NOT NULL"
    )
    assert found
    for row in found:  # two value states with the same cosine to the sink are not orthogonal
        assert row["floor"] == pytest.approx(row["rho_0"] ** 2, abs=0.05)
