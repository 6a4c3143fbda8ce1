"""A PostgreSQL server of the tests' own, on the loopback interface, in a folder that goes with the session."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

BINARIES = "/usr/lib/postgresql/*/bin"
"""Where Debian has them, beside PATH."""


def program(name: str) -> str | None:
    """initdb or pg_ctl; None where there is none."""
    return shutil.which(name) or max(map(str, Path("/").glob(f"{BINARIES}/{name}"[1:])), default=None)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A server with no database of ours yet, for the length of a block: its URL without a database's name.

    PostgreSQL refuses to run as root, who starts it as another user.
    """
    folder = Path(tempfile.mkdtemp(prefix="fiprof-postgres-", dir="/tmp"))
    user = _user()
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)

    def run(name: str, *words: str) -> None:
        command = program(name)
        assert command
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        with (folder / "log").open("a") as log:
            argv = [command, "-D", str(folder / "data"), *words]
            subprocess.run(argv, check=True, stdout=log, stderr=log, cwd=folder, **identity)  # type: ignore[call-overload]

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        run("initdb", "--username=fiprof", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        options = f"-p {port} -h 127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=50"
        run("pg_ctl", "--wait", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://fiprof@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "--mode=immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> pwd.struct_passwd | None:
    """Who runs it instead of root."""
    if os.getuid():
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None
