-- grain:   one row per (sequence, query, layer, head) whose concentration is impossible
-- inputs:  attention_rows, role_of
-- meaning: every quantity lies in its declared domain, effective
--          numbers are the exponentials of their entropies (up to float32), top keys are keys of the query with the
--          role of their position, half of the weight is on one key exactly if that key has half, and the columns about
--          contributions are all present or all missing, and missing only if all contributions are 0
SELECT sequence, query, layer, head, effective_keys, effective_contributors
FROM attention_rows
WHERE
    study = $study
    AND (
        abs(effective_keys - exp(entropy_keys::DOUBLE)) > 1e-5 * effective_keys
        OR top_position NOT BETWEEN query + 1 - n_keys AND query
        OR top_role <> role_of(top_position, query)
        OR (n_50 = 1) <> (top_weight >= 0.5) AND abs(top_weight - 0.5) > 1e-6
        OR (effective_contributors IS NULL AND norm_contributions > 0)
{% for quantity in concentration if quantity.missing %}
        OR ({{ quantity.name }} IS NULL) <> (effective_contributors IS NULL)
{% endfor %}
        OR (top_contributor_position IS NULL) <> (effective_contributors IS NULL)
        OR (top_contributor_role IS NULL) <> (effective_contributors IS NULL)
        OR coalesce(
            abs(effective_contributors - exp(entropy_contributors::DOUBLE)) > 1e-5 * effective_contributors
            OR top_contributor_position NOT BETWEEN query + 1 - n_keys AND query
            OR top_contributor_role <> role_of(top_contributor_position, query)
            OR (contributors_50 = 1) <> (top_contribution >= 0.5) AND abs(top_contribution - 0.5) > 1e-6,
            false
        )
        OR {{ violations(concentration) }}
    )
