"""The step of weights by position: how much attention each position gets, on average over sequences.

Holds its rows.
"""

from dagster_project.analysis.curves import average_layers
from dagster_project.analysis.sources import Rows, Sources
from storage.warehouse.rows import build_position_rows


def compute_attention_by_position(sources: Sources) -> Rows:
    """Mean over sequences of the weight that each head gives to each position; one layer in memory."""
    from tqdm import tqdm

    tensors = sources.tensors
    first_key = tensors.read("first_key", slice(None)).max(axis=0)
    queries = tqdm(sources.queries, desc="weights by position", unit="query", disable=None)
    for index, query in enumerate(queries):
        rows = build_position_rows(
            average_layers(tensors, "attention", query=index, key=slice(query + 1)),
            sequences=tensors.sizes["sequence"],
            head="head",
            quantity="weight",
            first=first_key[index],
            constant={"query": query},
        )
        yield from (("attention_by_position", batch) for batch in rows)
