-- grain:   one row per kind of heads
-- inputs:  none
-- meaning: the labels of the taxonomy of heads, in the order in which ties are broken and charts show them
CREATE MACRO kinds() AS TABLE
SELECT label, place
FROM (VALUES ('Retriever', 1), ('Mixer', 2), ('Reset', 3)) AS named (label, place)
