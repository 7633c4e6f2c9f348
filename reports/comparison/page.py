"""The HTML page that compares several studies (Figures 5, 6 and 8)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from reports import settings as settings_findings
from reports.claims.figures import tabulate_studies
from reports.families import figures as families
from reports.figures import Draft, Figure, Section, Source, find_source
from reports.findings import claims as claims_findings
from reports.findings import numbers
from reports.findings.listings import DASH, Listing
from reports.headlines import findings as headlines_findings
from reports.kinds import figures as taxonomy
from reports.queries import Answer
from reports.rendering import render, unvalidated
from reports.separation import figures as separation
from reports.sink import figures as sink
from storage.files.staging import write_atomically


def build_sections(sources: Sequence[Source]) -> tuple[Section, ...]:
    """Sections of a comparison, in the order of the paper."""
    return (
        Section(
            "separation",
            "How well heads separate what they select",
            "Mean Precision and Recall of each model against N, with their bounds.",
            tuple(
                _build_side_by_side(metric, name, paper, sources, partial(separation.build_bounded, metric=metric))
                for metric, name, paper in (
                    *(("precision", "Precision", "Figure 5, left"), ("recall", "Recall", "Figure 5, right")),
                )
            ),
        ),
        Section(
            "sink",
            "Effect of the sink",
            "Do heads whose sink is more similar to the other value states have higher Recall?",
            (_build_sink(sources),),
        ),
        Section(
            "kinds",
            "Kinds of heads",
            "Retrievers, Mixers, Reset heads and those that meet no rule, layer by layer.",
            (_build_side_by_side("kinds", "Kinds of heads over depth", "Figure 8", sources, taxonomy.build_depth),),
        ),
    )


def _build_side_by_side(
    key: str, title: str, paper: str, sources: Sequence[Source], figure_of: Callable[[Source], Figure]
) -> Figure:
    """Build one figure from the first chart of the same figure of every study; studies without one are named."""
    figures = {source.study: figure_of(source) for source in sources}
    shown = {study: figure for study, figure in figures.items() if not figure.empty}
    answer = _combine_answers({study: (figure.answer, figure.table) for study, figure in figures.items()})
    findings_of_studies = [
        f"{study}: {'' if study in shown else 'no chart. '}{figure.finding}" for study, figure in figures.items()
    ]
    draft, finding = Draft(key, title, answer), "\n".join(findings_of_studies)
    if not shown:
        return draft.leave_empty(finding)
    drawn = tuple(figure.charts[0].properties(title=study) for study, figure in shown.items())
    first = next(iter(shown.values()))
    return draft.show(
        finding,
        first.reading,
        charts=drawn,
        titled=True,
        paper=paper,
        marks=first.marks if len(first.charts) == 1 else "",
    )


def _build_sink(sources: Sequence[Source]) -> Figure:
    answers = {source.study: source.ask_query("sink_effect") for source in sources}
    draft = Draft(
        "sink-effect",
        "Correlation of Recall and ρ₀",
        _combine_answers({study: (pair, pair.table) for study, pair in answers.items()}),
    )
    if not numbers.drop_nulls(draft.rows, "correlation"):
        return draft.leave_empty("In no study do enough heads attend to the sink.")
    without = [study for study, pair in answers.items() if not numbers.drop_nulls(pair.rows(), "correlation")]
    return draft.show(
        numbers.join_sentences(
            sink.describe_sink_effects(draft.rows),
            f"Studies without a line: {', '.join(without)}." if without else "",
        ),
        "Pearson correlation over heads, each first averaged over sequences, with its 95 % interval over "
        "sequences. In the paper it peaks near N = 3, at about 0.6 for Gemma-7B and Mistral-7B.",
        charts=(sink.draw_effects(draft.rows).properties(title=draft.title),),
        paper="Figure 6",
        broad=True,
    )


def _combine_answers(answers: Mapping[str, tuple[Answer | None, pa.Table]]) -> Answer:
    """Combine the answers of several studies to one query, with the column study in front.

    The SQL is that of the first study; the other queries differ only in the name of the study.
    """
    tables = {
        study: table for study, (_, table) in answers.items() if table.num_rows
    }  # an empty one may have more columns
    named = [
        table.add_column(0, "study", pa.array([study] * table.num_rows, pa.string()))
        for study, table in (tables or {study: table for study, (_, table) in [*answers.items()][:1]}).items()
    ]
    first = next(answer for answer, _ in answers.values() if answer is not None)
    return replace(first, table=pa.concat_tables(named))


@unvalidated
def write_comparison(
    connection: duckdb.DuckDBPyConnection,
    studies: Sequence[str],
    path: Path,
    *,
    home: str,
    reports: dict[str, str],
    together: families.FamilySource | None = None,
) -> Path:
    """Write the comparison of several studies atomically; an existing file at ``path`` is replaced.

    ``home`` and ``reports`` are relative links to the index and to existing reports; ``together`` has the tables of a
    family of these studies, which are shown as those of a family without an axis.

    Raises
    ------
    UserError
        If the warehouse holds nothing of one of them, or the file cannot be written.
    """
    sources = [find_source(connection, study, map_n=1) for study in studies]
    claims = {source.study: source.ask_study("claims").rows() for source in sources}
    shared = set.intersection(*({row["claim"] for row in rows} for rows in claims.values()))
    claims = {study: [row for row in rows if row["claim"] in shared] for study, rows in claims.items()}
    answers = {
        source.study: headlines_findings.judge_separation(
            source.overview, source.ask_study("claims").rows(), source.ask_study("measures").rows()
        )
        for source in sources
    }
    html = render(
        "compare.html.j2",
        build_sections(sources) + (families.build_sections(together, ordered=False) if together else ()),
        name="+".join(studies),
        studies=[(source.study, reports.get(source.study)) for source in sources],
        home=home,
        answers=headlines_findings.describe_answers(answers),
        told=[
            *(families.tell_first(together) if together else []),
            claims_findings.describe_agreement(
                claims, {source.study for source in sources if source.overview["weights"] == "random"}
            ),
        ],
        claims=tabulate_studies(claims),
        settings=_tabulate_settings(
            {source.study: settings_findings.list_facts(source.overview) for source in sources}
        ),
    )
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path


def _tabulate_settings(facts: Mapping[str, Mapping[str, str]]) -> Listing:
    names = dict.fromkeys(name for settings_of in facts.values() for name in settings_of)
    return Listing(
        ("Setting", *facts),
        tuple((name, *(settings_of.get(name, DASH) for settings_of in facts.values())) for name in names),
    )
