"""The first link of the chain: ``store.py`` makes these tables whole, and makes those of older versions again."""

revision = "0004"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
