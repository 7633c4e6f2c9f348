-- grain:   one row per (family, study)
-- inputs:  studies.yaml, the databases of the members
-- meaning: the studies of a family in order, and whether each has landed; a member that has not, because it failed or was
--          not run, has no rows in the other tables of families
CREATE TABLE family_members (
{{ key_columns("family", "study") }}
    member INTEGER NOT NULL, -- place in the order of the family, from 0 [0, inf)
    axis VARCHAR NOT NULL, -- what the members differ in, such as 'revision'; '' for studies that are only compared
    value VARCHAR NOT NULL, -- value on the axis
    landed BOOLEAN NOT NULL, -- whether the study has landed
    sequences INTEGER, -- number of sequences; NULL if it has not landed [1, inf)
    alike BOOLEAN, -- whether its sequences are those of the first member that has landed, token by token, so that differences are paired; NULL if it has not landed
    origin VARCHAR -- digest of what the database of the study, and these tables, were made from; NULL if it has not landed
)
