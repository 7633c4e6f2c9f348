-- grain:   one row, or none if nothing was measured
-- inputs:  contributions
-- meaning: how much of the weighted norm the sink contributes, in a sentence
SELECT
    format('the sink contributes {:.3g} % of the weighted norms of a head', 100 * avg(share)) AS finding
FROM (
    SELECT layer, head, sum(mean_norm_y) FILTER (WHERE position = 0) / sum(mean_norm_y) AS share
    FROM contributions
    WHERE query = (SELECT max(query) FROM contributions)
    GROUP BY layer, head
    HAVING sum(mean_norm_y) > 0
)
WHERE share IS NOT NULL
HAVING count(*) > 0
