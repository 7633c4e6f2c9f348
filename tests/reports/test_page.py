"""The page as a file: structure, harmless text, provenance, words, and atomic writing."""

import json
import re
import shlex
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from reports import rendering
from reports.page import EXAMPLES, ReportSummary, write_report
from reports.queries import Answer
from reports.rendering import pack
from storage.errors import UserError, escape_unprintable
from storage.warehouse.query import query
from tests.made_up import tables, warehouse
from tests.reports.conftest import DEGENERATE, HOSTILE, INDEX, SMALL, THREE, Writer, hostile_study
from tests.reports.drawings import build_figures
from tests.reports.pages import Page, unpacked

FIGURES = {
    "sink-by-layer": 2, "explorer": 1, "precision-by-n": 1, "recall-by-n": 1, "chance-by-n": 2,
    "separation-curves": 1, "elbows": 1, "precision-map": 1, "recall-map": 1, "chance-heads": 2, "context-metrics": 6,
    "example": 3, "head-map": 1, "kinds-by-layer": 2, "kinds-curves": 2, "kinds-patterns": 6, "kinds-plane": 1,
    "kinds-sensitivity": 0, "loss-by-head": 4, "loss-and-geometry": 10, "loss-by-keys": 2, "sink-effect": 2,
    "value-norm": 1, "norm-variation": 1, "similarity-errors": 1, "similarity-model": 1, "similarity-heads": 3,
    "attention-by-position": 1, "weight-variants": 1, "claims-table": 0, "claims-untested": 0, "diagnostics": 4,
    "contributions": 2, "spheres": 2, "effective-dimension": 1, "distance-rest": 1, "convergence-uniform": 1,
    "distinguishable-share": 1, "temperature": 2, "precision-bounds": 1, "recall-bounds": 1, "f-r-max-bounds": 1,
    "f-r-min-bounds": 1, "coverage": 0, "width": 0, "margins": 1, "regimes": 0, "parameter-effects": 0,
    "monte-carlo": 0, "printed-gaps": 2, "scale-free-gaps": 2, "correlated-gaps": 2, "failures": 0,
}  # fmt: skip
"""Figures in reading order, with the number of their charts; those with nothing to show come last on the page."""

ALWAYS_EMPTY = {"coverage", "width"}
"""Figures that need a second query or several κ, which the studies here do not have but for ``sizes``."""

OPTIONAL = {
    "context-metrics",
    *("distance-rest", "convergence-uniform", "distinguishable-share", "temperature"),
    *("loss-by-head", "loss-and-geometry", "loss-by-keys"),
    *("printed-gaps", "scale-free-gaps", "correlated-gaps", "failures"),
}
"""Figures that a study lacks of which nothing of the kind was measured."""


@pytest.fixture(scope="module")
def page(report: ReportSummary) -> Page:
    return Page(report.path)


def list_figures(page: Page) -> list[str]:
    return [attributes["id"] for attributes, _ in page.find("figure")]


def test_every_figure_has_charts_or_a_table_words_rows_and_sql(page: Page, small: duckdb.DuckDBPyConnection) -> None:
    """In reading order; those with nothing to show come last."""
    figures = build_figures(small, SMALL)
    assert [(key, len(figure.charts)) for key, figure in figures.items()] == [*FIGURES.items()]
    assert list_figures(page) == sorted(figures, key=ALWAYS_EMPTY.__contains__)
    charts = unpacked(next(text for _, text in page.find("script", id="charts")))
    keys = [chart["key"] for chart in charts["charts"]]
    assert keys == [key for figure in figures.values() for key, _ in figure.drawn]
    assert all("config" not in chart["spec"] for chart in charts["charts"])
    assert all(len(list(page.find("div", id=f"chart-{key}"))) == 1 for key in keys)
    for key in figures:
        ((attributes, text),) = page.find("figure", id=key)
        assert attributes["role"] == "figure"
        assert attributes["aria-label"]
        if key in ALWAYS_EMPTY:
            assert attributes["class"] == "empty"
            continue
        assert len(page.text("figcaption", id=attributes["aria-describedby"])) > 40
        assert ("table and SQL" in text) is (key != "example")
        assert ("SELECT" in text) is (key != "example")


def test_the_sql_below_a_figure_runs_as_it_stands(page: Page, small: duckdb.DuckDBPyConnection) -> None:
    shown = [text for _, text in page.find("pre", **{"class": "sql"})]
    assert len(shown) == len(list_figures(page)) - len(ALWAYS_EMPTY) - 1
    for text in shown:
        assert "$" not in text
        assert query(small, text).read_all().num_rows > 0


def test_a_name_with_a_quote_stays_a_literal() -> None:
    text = Answer("claims", {"study": "it's"}, pa.table({})).sql
    assert "study = 'it''s'" in text
    assert "$" not in text


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    for tag, attributes, _ in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#") or (tag, attributes["href"]) == ("a", INDEX)
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = [a["content"] for a, _ in page.find("meta", **{"http-equiv": "Content-Security-Policy"})]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "unsafe-inline" not in scripts


def test_links_lead_somewhere(page: Page) -> None:
    targets = {attributes["id"] for _, attributes, _ in page.elements if "id" in attributes}
    links = [attributes["href"].removeprefix("#") for attributes, _ in page.find("a")]
    assert links
    assert set(links) - {INDEX} <= targets
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_same_rows_make_the_same_bytes(
    report: ReportSummary, small: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    again = write_report(small, SMALL.study, tmp_path / "deep" / "again.html", map_n=4, home=INDEX)
    assert again.path.read_bytes() == report.path.read_bytes()


@pytest.mark.slow
def test_hostile_texts_stay_text(hostile: ReportSummary) -> None:
    page = Page(hostile.path)
    kinds = [attributes.get("type") for attributes, _ in page.find("script")]
    assert kinds == ["text/plain", "text/plain", "module", "module", "module"]  # data of charts and of the text
    assert not {"img", "svg", "b"} & {tag for tag, attributes, text in page.elements if "hacked" in str(attributes)}
    assert page.text("h1") == HOSTILE[0]  # the model's name, that of the study too
    assert page.text("title") == f"{HOSTILE[0]} · attention geometry"
    assert HOSTILE[2] in page.text("dl", **{"class": "facts"})
    assert HOSTILE[1] in page.text("dl", **{"class": "facts"})
    shown = [text for _, text in page.find("span", **{"class": "token"})]
    expected = tables(hostile_study())["tokens"]["token"].to_pylist()
    seen = str.maketrans({"\n": "↵", "\t": "⇥"} | {sign: repr(sign)[1:-1] for sign in "\0\x1b\u2028\u2029\u202e\u200d"})
    assert shown == [token.translate(seen) for token in expected]
    assert set(HOSTILE) <= set(expected)
    packed = [unpacked(text) for attributes, text in page.find("script") if attributes.get("type") == "text/plain"]
    texts = [text for tag, _, parts in page.elements if tag not in {"script", "style"} for text in parts]
    titles = [value for _, attributes, _ in page.elements for value in attributes.values()]
    assert "\u202e" in "".join(expected)
    for text in (*texts, *filter(None, titles), json.dumps(packed, ensure_ascii=False)):
        assert escape_unprintable(text, keep="\n\t") == text  # tabs are those of the bundle
    charts = unpacked(next(text for _, text in page.find("script", id="charts")))
    assert charts["name"] == HOSTILE[0]


@pytest.mark.parametrize("text", [*HOSTILE, "</SCRIPT >", "\ud7ff\U0001f600"])
def test_packed_charts_are_inert_and_faithful(text: str) -> None:
    written = pack({text: [text, 1.5, None]})
    assert re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", written)
    assert unpacked(written) == {text: [text, 1.5, None]}


def test_the_bundle_is_built_once_and_again_if_what_is_kept_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    monkeypatch.setattr(rendering, "COMPILED", tmp_path / "kept")
    monkeypatch.setattr(rendering.vl_convert, "javascript_bundle", lambda _, **how: built.append(how) or "</script>;")
    ask_anew = rendering.bundle.__wrapped__
    assert [ask_anew(), ask_anew()] == ["<\\/script>;"] * 2
    assert len(built) == 1
    (kept,) = (tmp_path / "kept").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    assert [ask_anew(), ask_anew()] == ["<\\/script>;"] * 2
    assert len(built) == 2


@pytest.mark.slow
def test_an_unwritable_place_is_named_and_left_as_it_was(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(several, "only itself", tmp_path / "file" / "small.html", map_n=4)
    (tmp_path / "small.html" / "kept").mkdir(parents=True)
    with pytest.raises(UserError, match=r"small\.html"):
        write_report(several, "only itself", tmp_path / "small.html", map_n=4)
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "small.html"}


EMPTY = {
    "least": {
        *("norm-variation", "parameter-effects", "separation-curves", "sink-effect", "elbows", "head-map", "regimes"),
        *("similarity-errors", "similarity-model", "similarity-heads", "kinds-patterns"),
    },
    "one sequence": {"kinds-patterns"},
    "hidden sink": {"sink-by-layer", "sink-effect", "elbows"},
}
"""Figures that some degenerate studies have nothing for."""

WHY = {
    "least": ("sink-effect", "needs 3 heads"),
    "one sequence": ("contexts-none", "queries: [63, 127, 255, 511]"),
    "hidden sink": ("sink-by-layer", "hides position 0 from every head"),
}


@pytest.mark.slow
@pytest.mark.one_case(others="long")
@pytest.mark.parametrize("name", ["least", "hidden sink", "one sequence"])
def test_little_to_show_makes_a_report_that_says_so(name: str, page: Page, written: Writer) -> None:
    study, every = DEGENERATE[name], list_figures(page)
    summary = written(study, 8)
    page = Page(summary.path)
    empty = {attributes["id"]: text for attributes, text in page.find("figure", **{"class": "empty"})}
    assert {*every} - {*list_figures(page)} <= OPTIONAL
    assert set(empty) == EMPTY[study.study] | ALWAYS_EMPTY | {"monte-carlo", "contexts-none"}
    assert all(re.fullmatch(r"\s*\S.*\S: \S.*", text, re.DOTALL) for text in empty.values())
    key, why = WHY[study.study]
    assert why in empty[key]
    drawn = [attributes["id"] for attributes, _ in page.find("div", **{"class": "chart"})]
    assert summary.charts == len(drawn) == len(set(drawn))
    everything = page.text("main")
    assert "None" not in everything
    assert "nan" not in everything.split()


MISSING = (
    {
        "assumption_norms": "status = 'zero', c = NULL, cv_of_mean_norm = NULL, cv_within_sequence = NULL",
        "assumption_similarity": "status = 'undefined', beta = NULL, mae = NULL, "
        "floor = NULL, preferred = NULL, rho_0 = NULL",
        "assumption_weights": "status = 'zero', variant = NULL, p_base = NULL, t_1 = NULL, t_2 = NULL",
        **dict.fromkeys(("selection_means", "selection_means_model"), "precision = 1, recall = 1"),
        "bound_means": "precision_lower = NULL, precision_upper = NULL, recall_lower = NULL, recall_upper = NULL",
        "monte_carlo": "precision_gap = NULL, precision_holds = NULL, recall_gap = NULL, recall_holds = NULL",
        "parameter_effects": "effect = NULL, agrees = NULL, low = NULL, high = NULL, log_miss_low = NULL",
    },
    {
        "assumption_norms": "cv_of_mean_norm = 0, cv_within_sequence = 0",
        "cosine_by_distance": "mean_cosine = NULL",
        "assumption_weights": "p_sink = NULL, eta = NULL, omega = NULL, eta_growth = NULL",
        "bound_means": "margin = NULL, premise_share = NULL",
        "regimes_by_sequence": "slope = NULL, margin_first = NULL, margin_last = NULL",
        "principal_directions": "status = 'zero', share_1 = NULL, effective_dimension = NULL",
        "attention_by_position": "mean_norm_y = 0",
        "selection_means": "cos_sink = NULL, cos_last = NULL",
    },
)
"""What may be NULL, or not finite, in which table."""


@pytest.mark.slow
@pytest.mark.parametrize("missing", MISSING, ids=range(len(MISSING)))
def test_missing_numbers_are_told_not_tripped_over(tmp_path: Path, missing: dict[str, str]) -> None:
    with warehouse(SMALL) as connection:
        for table, settings in missing.items():
            assert connection.execute(f"UPDATE {table} SET {settings}").fetchall()[0][0] > 0
        page = Page(write_report(connection, SMALL.study, tmp_path / "report.html", map_n=4).path)
    assert list(page.find("figure", **{"class": "empty"}))
    for _, text in page.find("figcaption"):
        assert not {"None", "nan", "inf"} & set(re.findall(r"\w+", text)), text


@pytest.mark.slow
def test_the_commands_survive_a_hostile_name(hostile: ReportSummary, several: duckdb.DuckDBPyConnection) -> None:
    for _, command in Page(hostile.path).find("pre", **{"class": "command"}):
        assert query(several, shlex.split(command)[2]).read_all().num_rows >= 0


def test_examples_are_about_the_query_that_the_report_shows_or_about_each() -> None:
    asked = {name: sql.replace("$query", "23").replace("$study", "'three'") for name, sql in EXAMPLES.items()}
    with warehouse(THREE) as connection:
        found = {name: connection.sql(sql).fetchall() for name, sql in asked.items()}
        tables = connection.sql("FROM duckdb_columns() SEMI JOIN duckdb_tables() USING (table_name)")
        for (table,) in tables.filter("column_name = 'query'").select("table_name").fetchall():
            connection.execute(f"DELETE FROM {table} WHERE query <> 23")
        by_context = found.pop("Precision and Recall by context size")
        assert {row[0] for row in by_context} == set(THREE.queries)
        assert {name: connection.sql(asked[name]).fetchall() for name in found} == found
