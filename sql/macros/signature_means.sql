-- grain:   one row per (study, query, layer, head)
-- inputs:  a relation with the columns of head_signatures
-- meaning: mean of each column over the sequences that have it
CREATE MACRO signature_means(signatures) AS TABLE
SELECT
    study,
    query,
    layer,
    head,
    count(*)::INTEGER AS sequences,
{% for column in signature %}
    avg({{ column }}) AS {{ column }}{{ "," if not loop.last }}
{% endfor %}
FROM query_table(signatures)
GROUP BY study, query, layer, head
