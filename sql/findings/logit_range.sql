-- grain:   one row, or none if nothing was measured
-- inputs:  logit_range
-- meaning: the range of logits that the norms of queries and keys allow, in a sentence
SELECT
    format(
        'norms of queries and keys allow logits up to {:.1f} in the median head',
        median(query_norm * key_norm)
    ) AS finding
FROM logit_range
WHERE query = (SELECT max(query) FROM logit_range) AND query_norm IS NOT NULL
HAVING count(*) > 0
