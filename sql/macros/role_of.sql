-- grain:   one word
-- inputs:  position of a key, position of the query
-- meaning: role of the key for the query: 'last' (the query's own position, even if that is the sink's), 'sink' or
--          'other'
CREATE MACRO role_of("position", query) AS
    CASE "position" WHEN query THEN 'last' WHEN 0 THEN 'sink' ELSE 'other' END
