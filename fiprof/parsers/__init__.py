"""What the tools wrote, as tables; the tools' own names stop here."""

if not __name__.startswith("fiprof."):
    # The link at the checkout's top is there to be seen: imported, it would be a second copy of this package.
    raise ImportError(f"{__name__} at the top of the checkout is a link into fiprof: import fiprof.{__name__}")
