"""How ncu measured: figures under other conditions are no trend. Runs by user and commit. Every run is read again."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("runs", sa.Column("conditions", sa.Text()))
    op.create_index("run_user", "runs", ["archive", "user"])
    op.create_index("run_git", "runs", ["archive", "git"])
    op.execute("UPDATE runs SET stamp = ''")
