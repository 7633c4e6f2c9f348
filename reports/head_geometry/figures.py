"""Geometry of one head of each kind: s_N, the contribution of each token, and the directions of value states."""

from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa

from reports.figures import NOT_ANALYSED, NOTHING_SELECTED, Draft, Figure, Section, Source
from reports.findings import numbers
from reports.head_geometry import charts, findings
from reports.queries import Answer


def build_section(source: Source) -> Section:
    """Geometry of single heads."""
    return Section(
        "geometry",
        "One head of each kind",
        "The clearest head of each kind: how s_N grows and turns as more keys are selected, which keys contribute to "
        "it, and how many directions its value states use.",
        (_build_diagnostics(source), _build_contributions(source), _build_spheres(source), _build_dimensions(source)),
        appendix=True,
    )


@dataclass(frozen=True)
class _Example:
    """One head that represents its kind, and the answer of a query about it."""

    place: pa.Table
    """The head as one row of ``label_examples``."""
    answer: Answer

    @cached_property
    def head(self) -> numbers.Row:
        row: numbers.Row = self.place.to_pylist()[0]
        return row

    @property
    def title(self) -> str:
        return findings.name_example(self.head)

    @property
    def rows(self) -> list[numbers.Row]:
        return self.answer.rows()

    @property
    def table(self) -> pa.Table:
        """Its rows, with the head in front."""
        table = self.answer.table
        for name in ("head", "layer", "label"):
            if name not in table.column_names:
                table = table.add_column(0, name, pa.chunked_array(self.place[name].chunks * table.num_rows))
        return table.combine_chunks()


def _find_examples(source: Source, query: str, *, of_query: bool = True) -> list[_Example]:
    """Find the head of each kind with the largest margin, with its rows of ``query``, which may be none."""
    ask = source.ask_query if of_query else source.ask_study
    heads = source.ask_query("label_examples").table
    places = [heads.slice(index, 1) for index in range(heads.num_rows)]
    return [_Example(at, ask(query, layer=at["layer"][0].as_py(), head=at["head"][0].as_py())) for at in places]


def _combine_tables(examples: list[_Example]) -> pa.Table:
    return pa.concat_tables([example.table for example in examples])


def _explain_missing(examples: list[_Example], shown: list[_Example], why: str) -> str:
    """Say which kinds are absent, and which examples are not shown and ``why``."""
    hidden = [example.title for example in examples if example not in shown]
    return numbers.join_sentences(
        findings.describe_absent([example.head for example in examples]),
        f"Not shown, because {why}: {'; '.join(hidden)}." if hidden else "",
    )


def _join_paragraphs(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _build_diagnostics(source: Source) -> Figure:
    draft = Draft("diagnostics", "How s_N grows and turns", source.ask_query("label_examples"))
    examples = _find_examples(source, "diagnostics_of_head")
    shown = [example for example in examples if example.answer.table.num_rows]
    if not shown:
        why = NOT_ANALYSED if source.last_n else NOTHING_SELECTED
        return draft.leave_empty(why)
    domain = numbers.find_span([row for example in shown for row in example.rows], findings.COSINES, most=0.1)
    turning = [one for one in shown if any(numbers.drop_nulls(one.rows, column) for column in findings.COSINES)]
    panels = []
    for example in shown:
        panels.append(charts.norms(example.rows, title=example.title))
        if example in turning:
            panels.append(
                charts.cosines(example.rows, title=f"Cosines: {numbers.name_head(example.head)}", domain=domain)
            )
    return draft.show(
        _join_paragraphs(
            findings.describe_examples([example.head for example in shown]),
            _explain_missing(examples, shown, "it attends to one key"),
            *(f"{one.title}: {findings.describe_cosines(one.rows)}" for one in shown if one not in turning),
        ),
        "Means over sequences. Margin: by how much the score of the label exceeds the next one, that of Other being 0; "
        "below 0 where it does not. In the paper a Retriever’s norm drops sharply without the "
        "last token, whose direction s_N keeps at every N; in a Mixer s_N turns from v₀ to v_L and the two norms "
        "converge; in a Reset head the sink’s part is the larger one and cos(s_N, v_L) stays low until N is very "
        "large.",
        answer=shown[0].answer,
        part=_combine_tables(shown),
        paper="Figure 7",
        marks="Of each head: norm of s_N, and without the sink or the last token; its cosines with their value states.",
        tab="The sum",
        charts=tuple(panels),
        stacked=len(panels) == 2 * len(shown),
    )


def _build_contributions(source: Source) -> Figure:
    draft = Draft("contributions", "Contribution of each token, by context size", source.ask_query("label_examples"))
    examples = _find_examples(source, "contributions_of_head", of_query=False)
    shown = [example for example in examples if any(row["mean_norm_y"] for row in example.rows)]
    if not shown:
        why = "No key contributes anything." if any(example.rows for example in examples) else NOT_ANALYSED
        return draft.leave_empty(why)
    largest = _find_largest_cosine([row for example in shown for row in example.rows])
    return draft.show(
        _join_paragraphs(
            *(
                numbers.join_sentences(
                    f"{example.title}.",
                    findings.describe_contributions(example.rows),
                    findings.describe_hidden(example.rows),
                )
                for example in shown
            ),
            _explain_missing(examples, shown, "its keys contribute nothing"),
        ),
        "A column has at most about 200 keys besides the sink and the last token: the largest, and an even selection "
        "of the others. In the paper the last token dominates in a Retriever, lies between sink and content in a "
        "Mixer, and does not stand out in a Reset head, whose mass is spread broadly.",
        answer=shown[0].answer,
        part=_combine_tables(shown),
        paper="Figure 10",
        marks="Each mark is a key: mean over sequences of the norm of its weighted value state, in columns from the "
        "first key to the last token. Colour: cosine of its value state with the last token’s.",
        tab="Contributions",
        charts=tuple(charts.contributions(example.rows, title=example.title, largest=largest) for example in shown),
    )


def _find_largest_cosine(keys: list[numbers.Row]) -> float:
    """Largest absolute cosine of a key with the last token, at least 0.1."""
    others = [row for row in numbers.drop_nulls(keys, "mean_cos_last") if row["role"] != "last"]
    return max([0.1, *(abs(float(row["mean_cos_last"])) for row in others)])


def _build_spheres(source: Source) -> Figure:
    draft = Draft("spheres", "Value states of heads on a sphere", source.ask_query("label_examples"))
    heads = source.ask_study("principal_directions_by_head").rows()
    of_kv_head = {(row["layer"], row["kv_head"]): row for row in numbers.drop_nulls(heads, "effective_dimension")}
    examples = _find_examples(source, "directions_of_head")
    directions = [(example, of_kv_head.get((example.head["layer"], example.head["kv_head"]))) for example in examples]
    shown = [(example, row) for example, row in directions if row and example.rows]
    if not shown:
        why = findings.describe_dimensions(heads) if heads and not of_kv_head else NOT_ANALYSED
        return draft.leave_empty(why)
    n = max(source.n, 1)
    draw = partial(charts.sphere, n=n)
    return draft.show(
        _join_paragraphs(
            *(f"{e.title}. {findings.describe_directions(row)}" for e, row in shown),
            _explain_missing(examples, [e for e, _ in shown], "its value states have norm 0"),
        ),
        "The first direction points towards the reader, to the left and down. A value state within the three "
        "directions lies on the sphere; the others lie inside, the deeper the more they point elsewhere. The dashed "
        "circle is the typical length (root mean square). Keys nearer to the reader are larger and stronger. The paper "
        "draws heads as spheres in three dimensions, without data.",
        answer=shown[0][0].answer,
        part=_combine_tables([example for example, _ in shown]),
        paper="Figure 9",
        marks="Value states of sequence 0, divided by their norm, along the first three principal directions of their "
        "KV head; filled: keys of the largest mean weight.",
        tab="Directions",
        charts=tuple(draw(e.rows, title=e.title, of_kv_head=row) for e, row in shown),
    )


def _build_dimensions(source: Source) -> Figure:
    draft = Draft(
        "effective-dimension", "Effective dimension by layer", source.ask_study("principal_directions_by_head")
    )
    if not numbers.drop_nulls(draft.rows, "effective_dimension"):
        return draft.leave_empty(findings.describe_dimensions(draft.rows) if draft.rows else NOT_ANALYSED)
    return draft.show(
        findings.describe_dimensions(draft.rows),
        "One over the sum of the squared shares of all principal directions: 1 if all value states lie along one line, "
        "and the number of their components if they spread evenly. The paper has no such figure.",
        charts=(charts.dimensions(draft.rows),),
        broad=True,
        marks="Stroke: one KV head; dot: mean of the layer.",
        tab="Dimension",
    )
