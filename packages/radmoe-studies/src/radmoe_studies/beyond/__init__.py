"""Studies of what the paper does not have, one module each. Their numbers go on from the paper's."""
