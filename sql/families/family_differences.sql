-- grain:   one row per (family, study, reference, quantity, layer{{ ", head" if not model }})
-- inputs:  the same numbers of the sequences of two members as family_trends{{ "_model" if model }}
-- meaning: how each quantity of {{ "the model and of each of its layers" if model else "each head" }} differs between members of a family: from the member before that
--          has landed, and from the first
CREATE TABLE family_differences{{ "_model" if model }} (
{{ key_columns("family", "study") }}
    reference VARCHAR NOT NULL, -- study that it is compared with
    is_first BOOLEAN NOT NULL, -- whether the reference is the first member that has landed
    is_previous BOOLEAN NOT NULL, -- whether it is the one before
    quantity VARCHAR NOT NULL, -- as in family_trends{{ "_model" if model }}
    layer SMALLINT{{ "" if model else " NOT NULL" }}, -- layer, from 0{{ "; NULL for the whole model" if model }}
{% if not model %}
{{ key_columns("head") }}
{% endif %}
    paired BOOLEAN NOT NULL, -- whether the sequences are the same, token by token; if not, the interval is Welch's
{{ interval_columns("difference", "value of the study minus that of the reference; of a correlation of Fisher's z, of a ratio of logarithms", "(-inf, inf)") }}
)
