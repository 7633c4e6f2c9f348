-- grain:   one structure of four numbers
-- inputs:  temperature of sensitivity
-- meaning: bounds that the spectral norm of the Jacobian of softmax(l / T) is compared with: quarter, 1/(4T), which
--          bounds each of its entries but not the norm; half, 1/(2T), which always holds, with equality if two keys
--          share all the weight; root, the square root of 2; reported, the smaller of quarter and root, the bound as
--          secondary accounts of arXiv 2508.17821 give it
CREATE MACRO jacobian_bounds(temperature) AS {
    'quarter': 1 / (4 * temperature::DOUBLE),
    'half': 1 / (2 * temperature::DOUBLE),
    'root': sqrt(2.0::DOUBLE),
    'reported': least(1 / (4 * temperature::DOUBLE), sqrt(2.0::DOUBLE))
}
