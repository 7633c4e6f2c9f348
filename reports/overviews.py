"""Pages about several studies, their index, comparisons and families, and the catalogue of tables, views and macros."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa

from reports import settings as settings_findings
from reports.claims.figures import tabulate_studies
from reports.families import figures as families
from reports.figures import Figure, Section, Source, find_source
from reports.findings import claims as claims_findings
from reports.findings.listings import DASH, Listing
from reports.findings.numbers import NAMES, Row, drop_nulls, join_sentences
from reports.headlines import findings as headlines_findings
from reports.kinds import figures as kinds
from reports.kinds import labels as kind_labels
from reports.queries import Answer, ask, find_queries, read_query
from reports.rendering import render, unvalidated
from reports.separation import figures as separation
from reports.sink import figures as sink
from storage.errors import UserError
from storage.files.staging import write_atomically
from storage.warehouse.documentation import KINDS, SCHEMA_COMMAND, Relation, find_names, list_relations

_DOMAIN = re.compile(r" (?P<left>[\[(])(?P<low>-?(?:inf|[\d.]+)), (?P<high>inf|[\d.-]+)(?P<right>[\])])$")
_UNIT = re.compile(r"\bin (model units|nats|tokens|keys|positions|bits|bytes|seconds|radians|degrees)\b")


def render_catalogue() -> str:
    """The page as HTML, which is the same for all warehouses of this version."""
    relations = {relation.name: relation for relation in list_relations()}
    inputs = {name: [read for read in find_names(one.inputs) if read in relations] for name, one in relations.items()}
    questions = [read_query(name) for name in find_queries()]
    return render(
        "catalogue.html.j2",
        further=("catalogue.js",),
        style="catalogue.css",
        relations={kind: [one for one in relations.values() if one.kind == kind] for kind in KINDS},
        inputs=inputs,
        readers={name: [other for other, read in inputs.items() if name in read] for name in relations},
        shown_by={name: [one.meaning for one in questions if name in find_names(one.inputs)] for name in relations},
        columns={  # name, type, meaning and unit
            name: [
                (column, kind.lower(), _DOMAIN.sub("", text), _find_unit(column, text, inputs[name], relations))
                for column, kind, text in one.columns
            ]
            for name, one in relations.items()
        },
        command=SCHEMA_COMMAND,
    )


def _find_unit(column: str, comment: str, origins: Sequence[str], relations: Mapping[str, Relation]) -> str:
    """The unit of a column and the range of its values, or of the column of this name in what it is made from."""
    column = re.sub("_(low|high)$", "", column)
    same = (text for origin in origins for other, _, text in relations[origin].columns if other == column)
    return next((unit for text in (comment, *same) if (unit := describe_unit(text))), "")


def describe_unit(comment: str) -> str:
    """The unit of a column and the range of its values, as its comment tells them; empty if it does not."""
    domain, unit = _DOMAIN.search(comment), _UNIT.search(comment)
    parts = [unit[1]] if unit else []
    if domain:
        low, high = domain["low"], domain["high"]
        least = f"{'≥' if domain['left'] == '[' else '>'} {low}" if low != "-inf" else ""
        most = f"{'≤' if domain['right'] == ']' else '<'} {high}" if high != "inf" else ""
        parts.append(f"{low} to {high}" if least and most else least or most)
    return ", ".join(filter(None, parts)).replace("-", "−")


def write_index(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    reports: Mapping[str, str],
    comparisons: Mapping[str, str],
    families: Mapping[str, str],
) -> Path:
    """Write the index of the studies of a warehouse atomically; an existing file at ``path`` is replaced.

    The others are relative links to existing pages: reports by study, comparisons and families by their names.
    """
    studies = [
        {
            **row,
            "report": reports.get(row["study"]),
            "twin_report": reports.get(row["twin"]),
            "kinds": _count_kinds(row),
            "picture": _place_sinks(row),
        }
        for row in sorted(ask(connection, "studies_overview").rows(), key=lambda row: _split_numbers(row["study"]))
        if not row["is_twin"]
    ]
    html = render("index.html.j2", studies=studies, comparisons=comparisons, families=families)
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """The parts of a name, by which step32 comes before step128."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _place_sinks(study: Row) -> list[tuple[int, int, float]]:
    """Place the attention on the sink of every head on a grid: column, row and share (``studies_overview``)."""
    places, columns = [], Counter[int]()
    rows = {layer: row for row, layer in enumerate(sorted(set(study["sink_layers"] or [])))}
    for layer, share in zip(study["sink_layers"] or [], study["sinks"] or [], strict=True):
        if share is not None:
            places.append((columns[layer], rows[layer], share))
        columns[layer] += 1
    return places


def _count_kinds(study: Row) -> list[tuple[str, int]]:
    shares = {label: study[f"{label.lower()}_share"] for label in kind_labels.LABELS}
    return [
        (label, round(share * study["all_heads"])) for label, share in shares.items() if None not in shares.values()
    ]


def compare_studies(sources: Sequence[Source]) -> tuple[Section, ...]:
    """Sections of a comparison, in the order of the paper."""
    return (
        Section(
            "separation",
            "How well heads separate what they select",
            "Mean Precision and Recall of each model against N, with their bounds.",
            tuple(
                _build_side_by_side(
                    metric, NAMES[metric], paper, sources, partial(separation.build_bounded, metric=metric)
                )
                for metric, paper in separation.PAPERS.items()
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
            (_build_side_by_side("kinds", "Kinds of heads over depth", "Figure 8", sources, kinds.build_depth),),
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
    draft, finding = Figure(key, title, answer), "\n".join(findings_of_studies)
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
    draft = Figure(
        "sink-effect",
        "Correlation of Recall and ρ₀",
        _combine_answers({study: (pair, pair.table) for study, pair in answers.items()}),
    )
    if not drop_nulls(draft.rows, "correlation"):
        return draft.leave_empty("In no study do enough heads attend to the sink.")
    without = [study for study, pair in answers.items() if not drop_nulls(pair.rows(), "correlation")]
    return draft.show(
        join_sentences(
            sink.describe_sink_effects(draft.rows), f"Studies without a line: {', '.join(without)}." if without else ""
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
    together: families.AskFamily | None = None,
) -> Path:
    """Write the comparison of several studies atomically; an existing file at ``path`` is replaced.

    ``home`` and ``reports`` are relative links to the index and to existing reports; ``together`` has the tables of a
    family of these studies, which are shown as those of a family without an axis.
    """
    sources = [find_source(connection, study, map_n=1) for study in studies]
    claims = {source.study: source.ask_study("claims").rows() for source in sources}
    shared = set.intersection(*({row["claim"] for row in rows} for rows in claims.values()))
    claims = {study: [row for row in rows if row["claim"] in shared] for study, rows in claims.items()}
    answers = {
        source.study: headlines_findings.judge_separation(
            source.overview, source.ask_study("claims").rows(), source.ask_study("measures").rows()
        ).answer.lower()
        for source in sources
    }
    html = render(
        "compare.html.j2",
        compare_studies(sources) + (families.build_sections(together, ordered=False) if together else ()),
        name="+".join(studies),
        studies=[(source.study, reports.get(source.study)) for source in sources],
        home=home,
        answers=f"{headlines_findings.QUESTION} {'; '.join(f'{study}: {one}' for study, one in answers.items())}.",
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


@unvalidated
def write_family(
    connection: duckdb.DuckDBPyConnection,
    family: str,
    path: Path,
    *,
    home: str,
    reports: Mapping[str, str],
    origin: str = "",
) -> Path:
    """Write the page of a family atomically; an existing file at ``path`` is replaced.

    ``home`` and ``reports`` are relative links to the index and to existing reports; the page keeps ``origin``, what it
    is made from, as JSON.
    """
    of_family = partial(ask, connection, family=family)
    members = of_family("family_members").rows()
    if not members:
        raise UserError(
            f"The warehouse holds nothing of the family '{family}'; run it first: attention-geometry run {family}"
        )
    claims = (families.build_claims(of_family),)
    verdicts = Section("verdicts", "Claims of the paper", "The verdict of each study.", claims)
    html = render(
        "family.html.j2",
        (*families.build_sections(of_family, ordered=members[0]["axis"] != "model"), verdicts),
        name=family,
        family=family,
        members=[(row["study"], row["value"], row["landed"], reports.get(row["study"])) for row in members],
        home=home,
        origin=origin,
        told=families.tell_first(of_family),
        lead=families.describe_members(members),
        listing=families.tabulate_members(members, reports),
    )
    write_atomically(path, html.encode(), remedy="name another folder with --home DIR")
    return path
