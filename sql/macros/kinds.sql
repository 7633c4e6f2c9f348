-- grain:   one row per label of heads
-- inputs:  none
-- meaning: the labels of the taxonomy of heads, in the order in which ties are broken and charts show them; 'Other', which
--          meets no rule, comes last
CREATE MACRO kinds() AS TABLE
SELECT label, place
FROM (
    VALUES
{% for kind in kinds %}
        ('{{ kind.label }}', {{ loop.index }}),
{% endfor %}
        ('{{ other }}', {{ kinds | length + 1 }})
) AS named (label, place)
