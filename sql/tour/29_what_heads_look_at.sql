-- grain:   one row per (layer, head, label), of the ten with the largest lift of each label
-- inputs:  head_labels; $study
-- meaning: Which heads are previous-token heads, induction heads, or look at another known place, and how many times
--          chance is that?
FROM head_labels
SELECT label, layer, head, share, share_low, share_high, chance, lift
WHERE study = $study
QUALIFY row_number() OVER (PARTITION BY label ORDER BY lift DESC, layer, head) <= 10
ORDER BY label, lift DESC, layer, head
