"""Two sides measured beside each other: what they are, in which order, and the run that measures them."""
