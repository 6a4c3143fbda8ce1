"""``python -m fiprof`` is the same program as ``fiprof``."""

from fiprof import interrupts


def main() -> None:
    """The entry point of ``fiprof``: a Ctrl-C while it starts ends it without a word."""
    interrupts.end_at_once()
    from fiprof.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
