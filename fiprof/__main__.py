"""``python -m fiprof`` is the same program as ``fiprof``."""

from fiprof.orchestrator.cli import main

if __name__ == "__main__":
    main()
