"""Studies that the paper does not have, one module each. Their numbers follow those of the paper's studies."""
