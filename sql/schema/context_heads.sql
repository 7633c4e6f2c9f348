-- grain:   one row per (study, sequence, layer, head, context, n)
-- inputs:  context_means of the tensor store
-- meaning: means of Precision, Recall and specificity at one N over the queries of a sequence whose context has more than
--          half of so many keys, at most so many, and more than N; no rows unless every_query is set
CREATE TABLE context_heads (
{{ key_columns("study", "sequence", "layer", "head") }}
    context INTEGER NOT NULL, -- most keys of the queries, a power of two: they have more than half of it [2, inf)
{{ key_columns("n") }}
{% for name, meaning in of_contexts.items() %}
    {{ name }} FLOAT NOT NULL{{ "," if not loop.last }} -- mean over these queries of the {{ meaning }} [0, 1]
{% endfor %}
)
