-- grain:   one row per (layer, head, label)
-- inputs:  head_labels; $study
-- meaning: what every head is known to look at, that of the largest lift first
SELECT layer, head, label, text, sequences, share, share_low, share_high, lift
FROM head_labels
WHERE study = $study
ORDER BY layer, head, lift DESC NULLS LAST, label
