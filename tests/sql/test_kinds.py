"""The rules of the kinds of heads: each condition alone, the heads that earlier rules misread, and any signature."""

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pytest

import sql
from sql.thresholds import SIGNATURE
from tests.sql.hand_made import Row
from tests.sql.kinds_oracle import BROAD, MIXER, RETRIEVER, RULES, SINK_BIASED


def rules() -> duckdb.DuckDBPyConnection:
    """A database with nothing but the rules."""
    connection = duckdb.connect()
    for name in ("taxonomy_thresholds", "label_heads"):
        connection.execute(sql.read_statement("macros", name).text)
    return connection


@pytest.fixture(scope="module")
def empty() -> Iterator[duckdb.DuckDBPyConnection]:
    """The rules, for tests that leave them alone."""
    with rules() as connection:
        yield connection


def labelled(connection: duckdb.DuckDBPyConnection, heads: Sequence[Row], **thresholds: float) -> list[Row]:
    """What ``label_heads`` says of signatures, in their order."""
    schema = pa.schema([("head", pa.int64()), *((name, pa.float64()) for name in SIGNATURE)])
    rows = [{"head": head} | dict(row) for head, row in enumerate(heads)]
    connection.register("heads_given", pa.Table.from_pylist(rows, schema))
    arguments = ", ".join(f"{name} := {value!r}" for name, value in thresholds.items())
    found = connection.sql(
        f"WITH thresholds AS (FROM taxonomy_thresholds({arguments})), heads AS (FROM heads_given) "
        "FROM label_heads(heads, thresholds) ORDER BY head"
    )
    table: list[Row] = found.to_arrow_table().to_pylist()
    return table


def unmet(row: Row, kind: str, way: str | None) -> set[str]:
    """The conditions of one way to meet a rule that a head misses."""
    found = (one for one in row["conditions"] if one["kind"] == kind and one["way"] in {None, way})
    return {one["condition"] for one in found if not one["met"]}


def test_a_window_that_hides_the_sink_leaves_retrievers_and_broad_heads(empty: duckdb.DuckDBPyConnection) -> None:
    hidden = dict.fromkeys(
        ("norm_y_0", "change_without_sink", "cos_sink_max", "cos_sink_level", "cos_sink_change"), None
    )
    rows = labelled(empty, [kind | hidden for kind in (RETRIEVER, MIXER, SINK_BIASED, BROAD)])
    assert [row["label"] for row in rows] == ["Retriever", "Other", "Other", "Reset"]
    assert all(row["mixer_score"] is None and row["sink_share"] is None for row in rows)
    assert unmet(rows[1], "Mixer", None) == {*RULES["Mixer"][None]} - {"last_rises"}
    assert unmet(rows[2], "Reset", "sink-biased") == {*RULES["Reset"]["sink-biased"]}


@pytest.mark.parametrize(
    ("head", "kind", "missed"),
    [
        (BROAD | {"effective_contributors": 1.1, "cos_last_level": 0.1}, "Reset", "broad_least"),
        (MIXER | {"cos_sink_max": 0.0}, "Mixer", "sink_seen"),
        (RETRIEVER | {"cos_last_level": 0.8, "cos_last_p05": 0.3}, "Retriever", "last_high"),
    ],
    ids=["a previous-token head", "a head that never faced the sink", "near to the last by the ends of a line"],
)
def test_what_an_earlier_rule_took_for_a_kind_is_none(
    empty: duckdb.DuckDBPyConnection, head: Row, kind: str, missed: str
) -> None:
    (row,) = labelled(empty, [head])
    assert missed in unmet(row, kind, "broad")
    assert row["label"] == "Other"
