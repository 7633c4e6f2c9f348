-- grain:   one row per (sequence, query, layer, head) that is impossible, or with selections and none
-- inputs:  attention_rows, selection_counts, studies, role_of
-- meaning: every quantity lies in its declared domain; every head with selections has a row; the query attends to itself
--          at least and to no later key, to the sink, which has a norm then alone, exactly if to all keys; its weights
--          and that of a learned sink, which is not negative, sum to 1 (up to float32: one rounding per key, and 1e-5;
--          up to 0.02 if a model read in two passes gave them in half precision), and the weights alone to more than 0;
--          the lengths of the rest sum to 0 if there is no rest; effective numbers are the exponentials of their
--          entropies (up to float32), top keys are keys of the query with the role of their position, half of the weight
--          is on one key exactly if that key has half, and the columns about contributions are all present or all
--          missing, and missing only if all contributions are 0
WITH allowed AS (
    SELECT if(provenance ->> '$.inputs.model.attention' = 'two-pass' AND dtype <> 'float32', 0.02, 1e-5) AS slack
    FROM studies
    WHERE study = $study
)
SELECT sequence, query, layer, head, n_keys, sink_attended, weight_sum, effective_keys, effective_contributors, norm_y_0
FROM attention_rows
WHERE
    study = $study
    AND (
        NOT n_keys BETWEEN 1 AND query + 1
        OR sink_attended <> (n_keys = query + 1)
        OR (norm_y_0 IS NULL) <> (NOT sink_attended)
        OR (total_rest > 0 AND n_keys <= CASE WHEN sink_attended THEN 2 ELSE 1 END)
        OR NOT (weight_sum > 0 AND learned_sink >= 0)
        OR NOT abs(weight_sum::DOUBLE + learned_sink - 1) <= (SELECT max(slack) FROM allowed) + n_keys * 2.0 ** -24
        OR abs(effective_keys - exp(entropy_keys::DOUBLE)) > 1e-5 * effective_keys
        OR top_position NOT BETWEEN query + 1 - n_keys AND query
        OR top_role <> role_of(top_position, query)
        OR (n_50 = 1) <> (top_weight >= 0.5) AND abs(top_weight - 0.5) > 1e-6
        OR (effective_contributors IS NULL AND norm_contributions > 0)
{% for name in concentration | selectattr("missing") | map(attribute="name") | list + ["top_contributor_position", "top_contributor_role"] %}
        OR ({{ name }} IS NULL) <> (effective_contributors IS NULL)
{% endfor %}
        OR coalesce(
            abs(effective_contributors - exp(entropy_contributors::DOUBLE)) > 1e-5 * effective_contributors
            OR top_contributor_position NOT BETWEEN query + 1 - n_keys AND query
            OR top_contributor_role <> role_of(top_contributor_position, query)
            OR (contributors_50 = 1) <> (top_contribution >= 0.5) AND abs(top_contribution - 0.5) > 1e-6,
            false
        )
        OR {{ violations(of_attention) }}
        OR {{ violations(concentration) }}
    )
UNION ALL
SELECT sequence, query, layer, head, n_keys, NULL, NULL, NULL, NULL, NULL
FROM selection_counts
ANTI JOIN attention_rows USING (study, sequence, query, layer, head)
WHERE study = $study AND n = 1
