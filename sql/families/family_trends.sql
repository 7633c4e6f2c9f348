-- grain:   one row per (family, study, quantity, layer{{ ", head" if not model }})
{% if model %}
-- inputs:  measures, head_ablation_by_sequence, and family_trends averaged over heads in each sequence
-- meaning: each quantity of the model and of each of its layers over the members of a family; measures of the study as in
--          measures, quantities of heads as means over heads; recall_compared_of_twin and auc_compared_of_twin are those of
--          the twins of random weights; loss is the mean next-token cross entropy in nats, where heads are replaced
{% else %}
-- inputs:  attention_rows, selection_counts, kinds_by_sequence, head_patterns and tokens of the members
-- meaning: each quantity of each head over the members of a family, mean over sequences; at the last query, except shares
--          of measured queries (top_…) and patterns
{% endif %}
CREATE TABLE family_trends{{ "_model" if model }} (
{{ key_columns("family", "study") }}
    quantity VARCHAR NOT NULL, -- {{ "name in measures, or " if model }}sink_weight, effective_keys, recall[4], the share of sequences of each kind, the shares of the measured queries whose top key is the previous position (top_previous) or follows an earlier copy of the query's token (top_induction), and of all queries the mean weight on a pattern of head_patterns (pattern_sink, pattern_previous, pattern_local, pattern_duplicate, pattern_induction)
    layer SMALLINT{{ "" if model else " NOT NULL" }}, -- layer, from 0{{ "; NULL for the whole model" if model }}
{% if not model %}
{{ key_columns("head") }}
{% endif %}
    sequences INTEGER NOT NULL, -- number of sequences that have it [0, inf)
{{ interval_columns("value", "the quantity; NULL if it does not exist", "(-inf, inf)") }}
)
