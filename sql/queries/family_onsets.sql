-- grain:   one row per (quantity, layer, head) of a family
-- inputs:  family_members, onsets; $family
-- meaning: the quantities that come to exceed their threshold over the members, and the members between which they do
SELECT quantity, layer, head, threshold, onset.value AS onset, below.value AS last_below, above.value AS first_above
FROM onsets
JOIN family_members AS onset USING (family, study)
JOIN family_members AS below ON below.family = onsets.family AND below.study = onsets.last_below
JOIN family_members AS above ON above.family = onsets.family AND above.study = onsets.first_above
WHERE family = $family AND state = 'appears'
ORDER BY onset.member, quantity, layer NULLS FIRST, head NULLS FIRST
