-- grain:   one row per (family, member)
-- inputs:  family_members, family_trends_model
-- meaning: How does Recall develop over the members of a family, beside that of random keys, shuffled value states and
--          twins of random weights? A member without results is missing
SELECT
    family, member,
    members.value AS axis_value,
    max(trends.value) FILTER (quantity = 'recall_compared') AS recall,
    max(value_low) FILTER (quantity = 'recall_compared') AS recall_low,
    max(value_high) FILTER (quantity = 'recall_compared') AS recall_high,
    max(trends.value) FILTER (quantity = 'recall_of_random') AS of_random,
    max(trends.value) FILTER (quantity = 'recall_of_shuffled') AS of_shuffled,
    max(trends.value) FILTER (quantity = 'recall_compared_of_twin') AS of_twin
FROM family_members AS members
LEFT JOIN family_trends_model AS trends USING (family, study)
WHERE layer IS NULL
GROUP BY ALL
ORDER BY family, member
