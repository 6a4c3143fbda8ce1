"""What the tools wrote, as tables; the tools' own names stop here."""
