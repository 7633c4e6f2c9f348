"""Kinds of heads, as shares of the heads of each sequence, and how these change with depth (Figures 7 and 8)."""

from functools import partial

from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples
from geometry.statistics.intervals import DIFFERENCE, SHARE

KINDS = ("Retriever", "Mixer", "Reset")

MEASURES = {
    **{
        f"{kind.lower()}_share": Measure(f"share of the heads that are {kind}s in a sequence", f"{kind}s", SHARE)
        for kind in ("Retriever", "Mixer")
    },
    "reset_share": Measure("share of the heads that are Reset heads in a sequence", "Reset heads", SHARE),
    "other_share": Measure(
        "share of the heads that meet the rule of no kind in a sequence", "share of heads of no kind", SHARE
    ),
    "reset_share_early": Measure(
        "share of Reset heads in the first quarter of the layers", "share of Reset heads there", SHARE
    ),
    "mixer_share_deep": Measure("share of Mixers in the upper half of the layers", "share of Mixers there", SHARE),
    "retriever_first_two": Measure(
        "share of Retrievers in the first two layers minus that in the others", "share minus that elsewhere", DIFFERENCE
    ),
    "retriever_early": Measure(
        "share of Retrievers in the first third of the layers minus that in the last",
        "Retrievers, first less last third",
        DIFFERENCE,
    ),
    "reset_early": Measure(
        "share of Reset heads in the first half of the layers minus that in the last",
        "Reset heads, first less last half",
        DIFFERENCE,
    ),
    "mixer_late": Measure(
        "share of Mixers in the last third of the layers minus that in the first",
        "Mixers, last less first third",
        DIFFERENCE,
    ),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name; layers are counted among those with attention."""
    return evidence.ask_means(
        """
        WITH depths AS (
            SELECT layer, row_number() OVER (ORDER BY layer) AS place, count(*) OVER () AS layers,
                (place - 1) / layers AS depth, 1 + (depth >= 1 / 3)::INTEGER + (depth >= 2 / 3)::INTEGER AS third
            FROM (SELECT DISTINCT layer FROM heads)
        ),
        labelled AS (
            SELECT sequence, place, depth, layers, CASE WHEN layers > 2 THEN third END AS third,
                (label = 'Retriever')::INTEGER AS retriever,
                (label = 'Mixer')::INTEGER AS mixer,
                (label = 'Reset')::INTEGER AS reset,
                (label = 'Other')::INTEGER AS other
            FROM kinds_by_sequence
            JOIN depths USING (layer)
            WHERE query = $query
        ),
        shares AS (
            SELECT
                sequence,
                count(*) AS rows,
                avg(retriever) AS retriever_share,
                avg(mixer) AS mixer_share,
                avg(reset) AS reset_share,
                avg(other) AS other_share,
                avg(reset) FILTER (WHERE layers > 1 AND depth < 1 / 4) AS reset_share_early,
                avg(mixer) FILTER (WHERE layers > 1 AND depth >= 1 / 2) AS mixer_share_deep,
                avg(retriever) FILTER (WHERE place <= 2) - avg(retriever) FILTER (WHERE place > 2)
                    AS retriever_first_two,
                avg(retriever) FILTER (WHERE third = 1) - avg(retriever) FILTER (WHERE third = 3) AS retriever_early,
                avg(reset) FILTER (WHERE depth < 1 / 2) - avg(reset) FILTER (WHERE depth >= 1 / 2) AS reset_early,
                avg(mixer) FILTER (WHERE third = 3) - avg(mixer) FILTER (WHERE third = 1) AS mixer_late
            FROM labelled
            GROUP BY sequence
        )
        UNPIVOT shares ON COLUMNS(* EXCLUDE (sequence, rows)) INTO NAME measure VALUE value
        """
    )


def _explain_few_layers(evidence: Evidence, least: int) -> str | None:
    return (
        None
        if evidence.layers >= least
        else f"the model has {evidence.layers} layers with attention, {least} are needed"
    )


def _explain_no_kind(evidence: Evidence, kinds: tuple[str, ...], least: int) -> str | None:
    """Why shares of kinds do not differ: there are none."""
    few = _explain_few_layers(evidence, least)
    columns = evidence.ask_columns(
        "SELECT label, count(*) AS heads FROM kinds_by_sequence WHERE query = $query GROUP BY label"
    )
    missing = [kind for kind in kinds if kind not in columns["label"].tolist()]
    return few or (f"no head is {' or '.join(missing)} in any sequence" if missing else None)


_of_depth = partial(Claim, shown_by="kinds-by-layer", least_rows=4)

CLAIMS = (
    Claim(
        "regimes_fit",
        "Figure 7",
        "Heads are of three kinds: Retriever, Mixer, Reset",
        (Part("other_share", "<=", 0.2),),
        "nearly all heads are Retriever, Mixer or Reset",
        "many heads are neither Retriever nor Mixer nor Reset",
        "kinds-plane",
        least_rows=6,
    ),
    _of_depth(
        name="resets_early",
        source="Figure 8",
        statement="Reset heads prevail in the first few layers",
        parts=(Part("reset_share_early", ">=", 0.5),),
        clause="Reset heads prevail in the first quarter of the layers",
        denial="Reset heads do not prevail in the first quarter of the layers",
        premise="two layers",
        explain_gap=partial(_explain_few_layers, least=2),
    ),
    _of_depth(
        name="mixers_prevail_deep",
        source="Figure 8",
        statement="From the lower-middle layers on, Mixer heads are predominant",
        parts=(Part("mixer_share_deep", ">=", 0.5),),
        clause="Mixers prevail in the upper half of the layers",
        denial="Mixers do not prevail in the upper half of the layers",
        premise="two layers",
        explain_gap=partial(_explain_few_layers, least=2),
    ),
    _of_depth(
        name="retrievers_first",
        source="Figure 8",
        statement="Retriever heads are most visible in the first two layers",
        parts=(Part("retriever_first_two", ">"),),
        clause="Retrievers are more frequent in the first two layers than in the others",
        denial="Retrievers are no more frequent in the first two layers than in the others",
        premise="three layers, and a Retriever",
        explain_gap=partial(_explain_no_kind, kinds=("Retriever",), least=3),
    ),
    _of_depth(
        name="kinds_in_order",
        source="Section 4.2",
        statement="With depth, heads go from Retriever to Reset to Mixer",
        parts=(Part("retriever_early", ">"), Part("reset_early", ">"), Part("mixer_late", ">")),
        clause="Retrievers and Reset heads become rarer with depth and Mixers more frequent",
        denial="kinds do not change with depth as in the paper",
        premise="three layers, and a head of each kind",
        explain_gap=partial(_explain_no_kind, kinds=KINDS, least=3),
    ),
)
