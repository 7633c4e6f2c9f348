-- grain:   one row per (quantity, layer, head) of a family
-- inputs:  family_members, onsets; $family
-- meaning: the quantities that come to exceed their threshold over the members, and the members between which they do; and
--          those of which this is undecided, without members
WITH members AS (SELECT study, value, member FROM family_members WHERE family = $family)
SELECT
    quantity, layer, head, threshold, state,
    onset.value AS onset,
    below.value AS last_below,
    above.value AS first_above
FROM onsets
LEFT JOIN members AS onset USING (study)
LEFT JOIN members AS below ON below.study = onsets.last_below
LEFT JOIN members AS above ON above.study = onsets.first_above
WHERE family = $family AND state IN ('appears', 'undecided')
ORDER BY state, onset.member, quantity, layer NULLS FIRST, head NULLS FIRST
