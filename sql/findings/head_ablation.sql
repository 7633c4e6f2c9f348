-- grain:   one row, or none if nothing was measured
-- inputs:  head_ablation
-- meaning: the head that matters most, in a sentence
SELECT
    format(
        'replacing layer {} head {} by {} raises the loss most, by {:.3f} nats a token',
        arg_max(layer, delta_loss),
        arg_max(head, delta_loss),
        arg_max(CASE kind WHEN 'zero' THEN 'zeros' WHEN 'mean' THEN 'its mean' ELSE 'the sink''s value state' END, delta_loss),
        max(delta_loss)
    ) AS finding
FROM head_ablation
HAVING count(*) > 0
