"""How a verdict is found: rules, ncu's own advice, next steps."""
