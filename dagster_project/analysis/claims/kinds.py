"""Kinds of heads, as shares of the heads of each sequence, and how these change with depth (Figures 7 and 8)."""

from functools import partial

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import LEAST_BEYOND, Claim, Measure, Part, Samples, beyond
from geometry.arrays import F64, Bool
from geometry.statistics.arrangements import arrange_layers
from geometry.statistics.intervals import DIFFERENCE, SHARE
from reports.findings.claims import BEYOND

KINDS = ("Retriever", "Mixer", "Reset")

SEEING = "the heads that see the sink"

MEASURES = {
    **{
        f"{kind.partition(' ')[0].lower()}_share": Measure(
            f"share of {heads} that are {kind}s in a sequence", f"{kind}s", SHARE
        )
        for kind, heads in {"Retriever": "the heads", "Mixer": SEEING, "Reset head": SEEING}.items()
    },
    "other_share": Measure(
        "share of the heads that see the sink and meet the rule of no kind in a sequence",
        "share of heads of no kind",
        SHARE,
    ),
    **beyond("other_share", "share minus that of random weights"),
    "reset_share_early": Measure(
        f"share of {SEEING} that are Reset heads, in the first quarter of the layers",
        "share of Reset heads there",
        SHARE,
    ),
    "mixer_share_deep": Measure(
        f"share of {SEEING} that are Mixers, in the upper half of the layers", "share of Mixers there", SHARE
    ),
    "retriever_first_two": Measure(
        "share of Retrievers in the first two layers minus that in the others", "share minus that elsewhere", DIFFERENCE
    ),
    "retriever_early": Measure(
        "share of Retrievers in the first third of the layers minus that in the last",
        "Retrievers, first minus last third",
        DIFFERENCE,
    ),
    "reset_first_quarter": Measure(
        "share of Reset heads in the first quarter of the layers minus that in the others",
        "share minus that elsewhere",
        DIFFERENCE,
    ),
    **beyond("reset_first_quarter", "share minus that elsewhere, minus that of random weights"),
    "reset_early": Measure(
        "share of Reset heads in the first half of the layers minus that in the last",
        "Reset heads, first minus last half",
        DIFFERENCE,
    ),
    "mixer_late": Measure(
        "share of Mixers in the last third of the layers minus that in the first",
        "Mixers, last minus first third",
        DIFFERENCE,
    ),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name; layers are counted among those with attention."""
    profiles, heads = _read_profiles(evidence)
    place = np.arange(evidence.layers)
    depth = place / evidence.layers
    shares = {
        "retriever_share": ("retriever", depth >= 0),
        "mixer_share": ("mixer", depth >= 0),
        "reset_share": ("reset", depth >= 0),
        "other_share": ("other", depth >= 0),
        "reset_share_early": ("reset", depth < 1 / 4),
        "mixer_share_deep": ("mixer", depth >= 1 / 2),
    }
    contrasts = {
        "retriever_first_two": ("retriever", place < 2, place >= 2),
        "retriever_early": ("retriever", depth < 1 / 3, depth >= 2 / 3),
        "reset_first_quarter": ("reset", depth < 1 / 4, depth >= 1 / 4),
        "reset_early": ("reset", depth < 1 / 2, depth >= 1 / 2),
        "mixer_late": ("mixer", depth >= 2 / 3, depth < 1 / 3),
    }
    samples = {name: _average(profiles[kind], heads[kind] * where) for name, (kind, where) in shares.items()}
    samples |= {name: _contrast(profiles[kind], heads[kind] > 0, *sides) for name, (kind, *sides) in contrasts.items()}
    return {name: sample for name, sample in samples.items() if sample is not None}


def _read_profiles(evidence: Evidence) -> tuple[dict[str, F64], dict[str, F64]]:
    """By kind its share of the heads of each sequence and layer, (S, L), and of how many heads, (L,).

    A head from which a window hides the sink can be neither Mixer nor Reset head, and is counted for Retrievers alone.
    """
    columns = evidence.ask_columns(
        """
        SELECT
            avg((label = 'Retriever')::INT) AS retriever,
            avg((label = 'Mixer')::INT) FILTER (WHERE sink_attended) AS mixer,
            avg((label = 'Reset')::INT) FILTER (WHERE sink_attended) AS reset,
            avg((label = 'Other')::INT) FILTER (WHERE sink_attended) AS other,
            count(*) AS heads,
            count(*) FILTER (WHERE sink_attended) AS seeing
        FROM kinds_by_sequence
        JOIN (SELECT sequence, query, layer, head, sink_attended FROM attention_rows)
            USING (sequence, query, layer, head)
        WHERE query = $query
        GROUP BY sequence, layer
        ORDER BY sequence, layer
        """
    )
    arrays = {name: column.reshape(evidence.sequences, -1) for name, column in columns.items()}
    heads, seeing = arrays.pop("heads")[0], arrays.pop("seeing")[0]
    return arrays, {kind: heads if kind == "retriever" else seeing for kind in arrays}


def _average(profile: F64, heads: F64) -> Sample | None:
    """The mean over some heads of each layer; None if there are none."""
    if not heads.any():
        return None
    return Sample(np.where(heads > 0, profile, 0.0) @ heads / heads.sum(), int(heads.sum()))


def _contrast(profile: F64, known: Bool, one: Bool, less: Bool) -> Sample | None:
    """The mean over some layers minus that over others, beside layers in random order; None without either."""
    sides = [known & side for side in (one, less)]
    if not all(side.any() for side in sides):
        return None
    shape = sides[0] / sides[0].sum() - sides[1] / sides[1].sum()
    apart = np.where(known, profile, 0.0) @ shape
    return Sample(apart, int(known.sum()), arranged=arrange_layers(profile[:, known].mean(axis=0), shape[known]))


def _explain_few_layers(evidence: Evidence, least: int) -> str | None:
    return (
        None
        if evidence.layers >= least
        else f"the model has {evidence.layers} layers with attention, {least} are needed"
    )


def _explain_no_mixers(evidence: Evidence) -> str | None:
    """Why no head of the upper half of the layers can be a Mixer."""
    heads = _read_profiles(evidence)[1]
    upper = heads["mixer"][evidence.layers - evidence.layers // 2 :]
    return _explain_few_layers(evidence, 2) or (
        None if upper.any() else "a window hides the sink from all heads of the upper half of the layers"
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
        (Part("other_share", "<=", 0.2), Part(f"other_share{BEYOND}", "<=", -LEAST_BEYOND)),
        "nearly all heads are Retriever, Mixer or Reset, more of them than with random weights",
        "many heads are neither Retriever nor Mixer nor Reset, or no fewer than with random weights",
        "kinds-plane",
        null="random weights, most of whose heads are of a kind in some architectures: more than theirs; heads that "
        "cannot be of a kind: only those that see the sink are counted",
        least_rows=6,
        premise="a twin of random weights",
    ),
    _of_depth(
        name="resets_early",
        source="Figure 8",
        statement="Reset heads prevail in the first few layers",
        parts=(
            Part("reset_share_early", ">=", 0.5),
            Part("reset_first_quarter", ">"),
            Part(f"reset_first_quarter{BEYOND}", ">=", LEAST_BEYOND),
        ),
        clause="Reset heads prevail in the first quarter of the layers, beyond the others and beyond random weights",
        denial="Reset heads do not prevail in the first quarter of the layers more than in the others, or no more so "
        "than with random weights",
        null="Reset heads in all layers, layers in random order, and random weights, some of which have Reset heads "
        "early: differences, beyond them",
        premise="two layers, and a twin of random weights",
        explain_gap=partial(_explain_few_layers, least=2),
    ),
    _of_depth(
        name="mixers_prevail_deep",
        source="Figure 8",
        statement="From the lower-middle layers on, Mixer heads are predominant",
        parts=(Part("mixer_share_deep", ">=", 0.5),),
        clause="Mixers prevail in the upper half of the layers",
        denial="Mixers do not prevail in the upper half of the layers",
        null="heads from which a window hides the sink cannot be Mixers: only the others are counted",
        premise="two layers, and in the upper half a head that sees the sink",
        explain_gap=_explain_no_mixers,
    ),
    _of_depth(
        name="retrievers_first",
        source="Figure 8",
        statement="Retriever heads are most visible in the first two layers",
        parts=(Part("retriever_first_two", ">"),),
        clause="Retrievers are more frequent in the first two layers than in the others",
        denial="Retrievers are no more frequent in the first two layers than in the others",
        null="layers in random order: beyond them",
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
        null="layers in random order: beyond them",
        premise="three layers, and a head of each kind",
        explain_gap=partial(_explain_no_kind, kinds=KINDS, least=3),
    ),
)
