"""The one exception that reaches the user."""

from fiprof.text import escape_control


class FiprofError(Exception):
    """Something the user can act on.

    Raised anywhere, printed once by the CLI as ``fiprof: MESSAGE`` and, on a second line, the remedy.

    message: what went wrong and where; one line, whatever the names in it.
    remedy: what to do about it, likewise; empty when the message says it all.
    exit_code: 1 failed, 2 wrong use.
    why: a finding that says why, which the CLI words behind the message; None for none.
    """

    def __init__(self, message: str, remedy: str = "", *, exit_code: int = 1, why: object = None) -> None:
        self.message, self.remedy = escape_control(message), escape_control(remedy)
        super().__init__(self.message)
        self.exit_code = exit_code
        self.why = why

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


INTERRUPTED_EXIT = 130  # as a shell reports a program that Ctrl-C ended


class Interrupted(FiprofError):
    """Somebody asked the work to end."""

    def __init__(self, remedy: str = "what was collected is kept") -> None:
        super().__init__("interrupted", remedy, exit_code=INTERRUPTED_EXIT)
