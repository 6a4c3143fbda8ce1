"""How Alembic runs the migrations: over the connection that the catalogue gives it, in its transaction."""

from alembic import context

from fiprof.model.catalogue.store import METADATA, version

context.configure(context.config.attributes["connection"], target_metadata=METADATA, version_table=version.name)
context.run_migrations()
