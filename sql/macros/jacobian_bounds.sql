-- grain:   one structure of four numbers
-- inputs:  temperature of sensitivity
-- meaning: what the spectral norm of the Jacobian of softmax(l / T) is held against: quarter, 1/(4T), which bounds each of
--          its entries but not the norm; half, 1/(2T), which always holds, with equality where two keys share all the
--          weight; root, the square root of 2; reported, the lesser of quarter and root, the bound as accounts of arXiv
--          2508.17821 give it
CREATE MACRO jacobian_bounds(temperature) AS {
    'quarter': 1 / (4 * temperature::DOUBLE),
    'half': 1 / (2 * temperature::DOUBLE),
    'root': sqrt(2.0::DOUBLE),
    'reported': least(1 / (4 * temperature::DOUBLE), sqrt(2.0::DOUBLE))
}
