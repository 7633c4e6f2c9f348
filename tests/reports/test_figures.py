"""Figures of a page, whatever they show: described, in the theme's colours, and changed by the rows they are of."""

import re

import duckdb
import pytest

from reports.contexts import figures as contexts
from reports.figures import Figure, find_source
from reports.separation import figures as separation
from tests.reports.conftest import SMALL, THREE, Build
from tests.reports.drawings import assert_described, build_figures, changed

WITHOUT_AXES = {"spheres", "explorer", "head-map"}
"""Figures with a view in space, or of which each cell and point is named otherwise."""


def test_every_chart_says_what_it_shows_in_the_colours_of_the_theme(
    figures_of_three: dict[str, tuple[Build, Figure]],
) -> None:
    assert_every_chart_says_what_it_shows({key: figure for key, (_, figure) in figures_of_three.items()})


def assert_every_chart_says_what_it_shows(figures: dict[str, Figure]) -> None:
    for key, figure in figures.items():
        assert figure.finding.endswith(".")
        assert not {"None", "nan"} & set(re.findall(r"\w+", figure.finding))
        assert figure.empty or figure.reading
        for _, chart in figure.drawn:
            assert_described(chart.to_dict(), axes=key not in WITHOUT_AXES)


def tell(figure: Figure) -> tuple[str, str]:
    """The sentences of a figure, with those that describe its charts, and the rows of its charts and table."""
    charts = [chart.to_dict(validate=False) for _, chart in figure.drawn]
    told = [figure.finding, *(chart["description"] for chart in charts)]
    return " ".join(told), str([figure.listing, *([*chart["datasets"].values()] for chart in charts)])


HEAD = "layer = 1 AND head = 2"
ONE = f"{HEAD} AND sequence = 1"
OTHER_KIND = f"head_taxonomy SET label = CASE label WHEN 'Mixer' THEN 'Reset' ELSE 'Mixer' END WHERE {HEAD}"
OF_NULL = "n = 4 AND measure = 'auc' AND null_model = 'shuffled_values'"

DRAWN = {
    "contributions": ["attention_by_position SET mean_cos_last = -0.4321 WHERE position = 3 AND query = 23"],
    "spheres": ["values_by_position SET x = -x WHERE position % 2 = 0"],
    "claims-table": ["claims SET sentence = 'Otherwise.'"],
    "sink-by-layer": [f"attention_by_position SET mean_weight = 0.5 WHERE position = 0 AND {HEAD}"],
    "chance-by-n": [
        f"separability SET null_value = 0.1 WHERE layer IS NULL AND {OF_NULL}",
        f"separability SET difference_high = 0.9 WHERE layer IS NULL AND {OF_NULL}",
    ],
    "separation-curves": ["separation_curves SET recall = 0.9 WHERE n = 16 AND auc_rank = 'median' AND point = 5"],
    "context-metrics": [
        "selection_means_model SET precision = 0.01 WHERE n = 2 AND query = 5",
        "selection_means_model SET recall = 0.01 WHERE n = 2 AND query = 11",
    ],
    "context-elbows": ["selection_means_model SET precision = 1, recall = 1 WHERE n < 4 AND query = 5"],
    "context-kinds": [OTHER_KIND],
    "elbows": [f"selection_means SET precision = 1, recall = 1 WHERE n < 19 AND {HEAD}"],
    "precision-map": [f"selection_means SET precision = 0.001 WHERE n = 4 AND {HEAD}"],
    "recall-map": [f"selection_means SET recall = 0.001 WHERE n = 4 AND {HEAD}"],
    "chance-heads": [f"separability SET difference_low = -1 WHERE {OF_NULL} AND {HEAD}"],
    "kinds-by-layer": [
        OTHER_KIND,
        f"head_taxonomy SET nearest = 'any' WHERE {HEAD}",
        f"head_taxonomy SET single_key = NOT single_key WHERE {HEAD}",
    ],
    "kinds-plane": [f"head_taxonomy SET cos_last_level = 0.99 WHERE {HEAD}"],
    "kinds-curves": [
        f"selection_means SET precision = 0.01 WHERE n = 2 AND {HEAD}",
        f"selection_means SET recall = 0.01 WHERE n = 4 AND {HEAD}",
    ],
    "kinds-patterns": ["measures SET value_low = -0.9 WHERE measure = 'recall_by_label[previous]'"],
    "sink-effect": [
        "selection_means_model SET correlation_low = -0.9 WHERE n = 5",
        f"selection_means SET recall = 0.01 WHERE {HEAD}",
        "value_scales SET rho_0 = 1 WHERE sequence = 0 AND layer = 1 AND kv_head = 1",
        OTHER_KIND,
    ],
    "value-norm": ["values_by_position SET mean_norm = 9 WHERE position = 3 AND layer = 1 AND kv_head = 0"],
    "norm-variation": ["assumption_norms SET cv_of_mean_norm = 0.5 WHERE layer = 1 AND kv_head = 0"],
    "similarity-errors": ["assumption_similarity SET mae = 0.055 WHERE layer = 1 AND kv_head = 0"],
    "similarity-heads": ["cosine_by_distance SET mean_cosine = 0.9 WHERE distance = 3"],
    "attention-by-position": [
        "assumption_weights SET p_base = 0.5 WHERE layer IS NULL",
        f"attention_by_position SET mean_weight = 0.5 WHERE position = 3 AND {HEAD}",
    ],
    "weight-variants": [f"assumption_weights SET variant = 'tied' WHERE variant <> 'tied' AND {HEAD}"],
    "precision-bounds": [
        "selection_means_model SET precision_low = 0.01 WHERE n = 5",
        f"bound_means SET precision_lower = 0.5 WHERE n = 5 AND family = 'printed' AND {HEAD}",
        f"attention_rows SET n_keys = 12 WHERE {ONE}",
    ],
    "f-r-min-bounds": [f"bound_means SET f_r_min_lower = 0.5 WHERE n = 5 AND family = 'scale_free' AND {HEAD}"],
    "margins": [f"bound_means SET margin = 0.5 WHERE n = 5 AND family = 'printed' AND {HEAD}"],
    "printed-gaps": ["monte_carlo SET precision_gap = -1 WHERE scale = 'raw' AND n = 4 AND head_dim = 8"],
}
"""By figure, changes each of which its charts or its table show."""

TOLD = {
    "precision-bounds": ["selection_means_model SET precision = 0.001 WHERE n = 5 → below it at N = 5"],
    "recall-bounds": ["bound_means SET recall_lower = 1 WHERE n = 5 → below it at N = 5"],
    "elbows": [
        f"{table} SET precision = 1, recall = 1 WHERE n < 9" for table in ("selection_means", "selection_means_model")
    ],
    "coverage": ["bound_means SET premise_share = 0.77"],
    "width": ["bound_means SET recall_lower = 0.1 WHERE family = 'printed'"],
    "margins": ["bound_means SET margin = margin + 0.1"],
    "norm-variation": ["assumption_norms SET cv_within_sequence = 0.77 → 77 %"],
    "similarity-errors": ["assumption_similarity SET preferred = 'floor' → better in all of them"],
    "similarity-model": ["assumption_similarity SET rho_0 = -0.77 WHERE layer IS NULL → ρ₀ = −0.77"],
    "similarity-heads": ["cosine_by_distance SET mean_cosine = 0.77 WHERE distance = 1 → 0.77 at distance 1 "],
    "attention-by-position": ["assumption_weights SET t_1 = 9 WHERE layer IS NULL → up to position 9"],
    "weight-variants": [
        "assumption_weights SET variant = NULL, status = 'too_short' WHERE layer = 1 → 6 heads 'too_short'"
    ],
    "regimes": ["regimes_by_sequence SET first_n = 8 WHERE regime = 'IV' → m₂ = 8"],
    "parameter-effects": [
        "parameter_effects SET effect = -1, agrees = false WHERE parameter = 'd' → In the other direction: d"
    ],
    "monte-carlo": ["monte_carlo SET recall_holds = false WHERE n = 4"],
    "printed-gaps": ["monte_carlo SET recall_gap = -0.77, recall_holds = false WHERE n = 4 → 0.77 below the bound"],
    "failures": ["monte_carlo SET precision_gap = -0.9, precision_holds = false WHERE n = 4 → lies 0.9 below"],
    "sink-effect": ["selection_means_model SET correlation = -0.95 WHERE n = 3 → is −0.95"],
    "kinds-by-layer": ["head_taxonomy SET label = 'Mixer' WHERE query = 23 → no Retriever, 18 Mixers, no Reset head"],
    "kinds-plane": ["head_taxonomy SET cos_last_level = 0.77 → on average at 0.77"],
    "kinds-sensitivity": ["kinds_moved SET label = 'Mixer' WHERE threshold = 'broad_share'"],
    "kinds-curves": ["selection_means SET precision = precision / 2"],
    "kinds-patterns": [
        "measures SET value_low = 0.5, value_high = 0.6 WHERE measure = 'recall_by_label[previous]' → (0.5 to 0.6)"
    ],
    "context-metrics": ["selection_means_model SET recall = recall / 2 WHERE query = 23"],
    "context-elbows": ["selection_means_model SET precision = 1, recall = 1 WHERE n < 13 AND query = 23"],
    "context-kinds": ["head_taxonomy SET label = 'Mixer' WHERE query = 5 → Mixer from 18 to"],
}
"""By figure, changes each of which its sentences tell, with words that they then have."""

BOTH = {
    "diagnostics": [
        "selection_means SET norm_s_without_last = 0.123 WHERE query = 23",
        "selection_means SET cos_last = -0.123 WHERE query = 23 AND n = 1 → from −0.123 at N = 1",
    ],
    "contributions": [
        "attention_by_position SET mean_norm_y = 0.4321 WHERE position = 0 AND query = 23 → the sink 0.432"
    ],
    "spheres": ["principal_directions SET share_1 = 0.5, share_2 = 0.1, share_3 = 0.1 → hold 70 %"],
    "effective-dimension": ["principal_directions SET effective_dimension = 5.4321 WHERE layer = 2 → 5.43"],
}
"""By figure, changes each of which its charts show and its sentences tell."""


@pytest.mark.one_case
@pytest.mark.parametrize("key", sorted({*DRAWN, *TOLD, *BOTH}))
def test_a_change_of_its_rows_shows_in_a_figure(
    three: duckdb.DuckDBPyConnection, figures_of_three: dict[str, tuple[Build, Figure]], key: str
) -> None:
    build, figure = figures_of_three[key]
    told, drawn = tell(figure)
    for changes, sentences, rows in ((DRAWN, False, True), (TOLD, True, False), (BOTH, True, True)):
        for change, _, words in (one.partition(" → ") for one in changes.get(key, ())):
            with changed(three, f"UPDATE {change}"):
                told_after, drawn_after = tell(build_figures(three, THREE, build)[key])
            assert told_after != told or not sentences, change
            assert drawn_after != drawn or not rows, change
            assert words in told_after.replace("\u00a0", " "), change
            assert not {"None", "nan"} & set(re.findall(r"\w+", told_after)), change


def test_figures_over_context_are_of_every_query_where_it_was_measured(small: duckdb.DuckDBPyConnection) -> None:
    def build() -> dict[str, Figure]:
        source = find_source(small, "small", map_n=2)
        return {figure.key: figure for figure in contexts.build_figures(source)}

    figures = build()
    assert {key: len(figure.charts) for key, figure in figures.items()} == {"context-metrics": 6, "context-heads": 3}
    assert_every_chart_says_what_it_shows(figures)
    with changed(small, "UPDATE context_heads SET recall = recall / 2 WHERE context = 16"):
        for key, figure in build().items():
            assert not {*tell(figure)} & {*tell(figures[key])}
    with changed(small, "DELETE FROM context_heads"):
        (figure,) = build().values()
    assert figure.key == "contexts-none"
    assert figure.empty


def test_an_n_of_maps_beyond_the_last_falls_back_and_says_so(small: duckdb.DuckDBPyConnection) -> None:
    figure = build_figures(small, SMALL, separation.build_section, map_n=99)["recall-map"]
    assert "N = 99 was asked for, but the largest N of any head is 23." in figure.reading
