-- grain:   one row per (family, study, reference, layer, head, n)
-- inputs:  top_keys of the members
-- meaning: how many of the N selected keys of a head two members share, exactly, at the last query on the same sequences,
--          up to the 16 keys of largest weight; of the previous member that has landed; no rows where the tokens differ
CREATE TABLE family_overlaps (
{{ key_columns("family", "study") }}
    reference VARCHAR NOT NULL, -- study that it is compared with
{{ key_columns("layer", "head", "n") }}
    sequences INTEGER NOT NULL, -- number of sequences [1, inf)
    alike INTEGER NOT NULL, -- number of sequences in which all N are the same [0, inf)
{{ interval_columns("shared", "share of the N keys that both select, mean over sequences", "[0, 1]") }}
)
