-- inputs:  concentration
-- meaning: means of each number over the sequences that have it
SELECT
    study,
    query,
    layer,
    head,
    count(*)::INTEGER AS sequences,
    avg(n_keys) AS n_keys,
{% for quantity in concentration %}
    avg({{ quantity.name }}::DOUBLE) AS {{ quantity.name }},
{% endfor %}
FROM concentration
WHERE study = $study
GROUP BY study, query, layer, head
