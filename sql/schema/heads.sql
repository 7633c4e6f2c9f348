-- grain:   one row per (study, layer, head)
-- inputs:  sizes of the tensor store
-- meaning: which KV head's value states each query head reads; layers without softmax attention have no rows
-- rows:    heads
CREATE TABLE heads (
{{ key_columns("study") }}
    layer SMALLINT NOT NULL, -- layer, from 0; its number in the model, counting layers without attention
{{ key_columns("head") }}
    kv_head SMALLINT NOT NULL, -- KV head whose value states the query head weights, from 0
    head_dim INTEGER NOT NULL -- d, length of one value state of this head
)
