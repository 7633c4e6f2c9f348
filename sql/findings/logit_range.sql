-- grain:   one row, or none where nothing was measured
-- inputs:  logit_range
-- meaning: the range that the norms of queries and keys allow, in a sentence
SELECT
    format(
        'norms of queries and keys allow logits up to {:.1f} in the median head',
        median(query_norm * key_norm)
    ) AS finding
FROM logit_range
WHERE query = (SELECT max(query) FROM logit_range) AND query_norm IS NOT NULL
HAVING count(*) > 0
