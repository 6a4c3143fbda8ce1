"""``python -m fiprof`` is the same program as ``fiprof``."""

import os
import sys


def main() -> None:
    """The entry point of ``fiprof``: a Ctrl-C while it starts ends it without a word."""
    from fiprof import interrupts

    interrupts.end_at_once()
    from fiprof.cli.main import main as run

    run()


if __name__ == "__main__":
    # As ``fiprof`` does: nothing is imported from the current folder, which may be anybody's.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]
    main()
