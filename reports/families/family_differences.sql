-- grain:   one row per quantity of the model
-- inputs:  family_differences_model, family_members; $family
-- meaning: the quantities of the model of the last member that has landed, minus those of the first
WITH last AS (SELECT arg_max(study, member) AS study FROM family_members WHERE family = $family AND landed)
SELECT study, reference, quantity, difference, difference_low, difference_high, paired
FROM family_differences_model
JOIN last USING (study)
WHERE family = $family AND is_first AND layer IS NULL
ORDER BY quantity
