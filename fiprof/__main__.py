"""``python -m fiprof`` is the same program as ``fiprof``."""

import gc
import os
import sys


def main() -> None:
    """The entry point of ``fiprof``: a Ctrl-C while it starts ends it without a word."""
    if sys.getfilesystemencoding() != "utf-8":
        # Names and texts are UTF-8, whatever the locale says. Not by the environment, which programs inherit.
        os.execv(sys.executable, (sys.executable, "-X", "utf8", *sys.orig_argv[1:]))
    # What is imported, or a page is made of, is in use: looking it through for garbage takes a tenth of the time.
    gc.set_threshold(200_000)
    from fiprof import interrupts

    interrupts.end_at_once()
    from fiprof.cli.main import main as run

    run()


if __name__ == "__main__":
    # As ``fiprof`` does: nothing is imported from the current folder, which may be anybody's.
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():
        del sys.path[0]
    main()
