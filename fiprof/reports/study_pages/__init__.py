"""The documents of a study: findings, claims and fits as functions of its cases."""
