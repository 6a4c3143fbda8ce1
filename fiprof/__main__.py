"""``python -m fiprof`` is the same program as ``fiprof``."""

from fiprof.cli.main import main

if __name__ == "__main__":
    main()
