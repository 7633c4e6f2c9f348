-- grain:   one row per (layer, head)
-- inputs:  heads, head_labels; $study
-- meaning: heads in the order in which a page has room for what they do at every query: those that are known to look at
--          something other than the sink first, of these the ones of largest share
SELECT layer, head
FROM heads
LEFT JOIN (FROM head_labels WHERE study = $study AND label <> 'sink') AS known USING (layer, head)
WHERE heads.study = $study
GROUP BY layer, head
ORDER BY max(share) DESC NULLS LAST, layer, head
