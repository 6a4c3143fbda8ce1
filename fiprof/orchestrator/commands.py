"""The commands of nsys and ncu that profile, capture and import have in common, for one run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiprof.model.layout import NCU_PAGES, NCU_REPORT, NSYS_REPORT, NSYS_SQLITE, Page, numbered
from fiprof.orchestrator import ncu, nsys
from fiprof.orchestrator.process import Command
from fiprof.orchestrator.tools import Tool


@dataclass(frozen=True)
class Commands:
    """The commands for the reports of a run folder; a run of several reports counts them."""

    path: Path
    """The run folder."""
    tools: Mapping[str, Tool]
    timeout_s: float
    """Seconds that a command may take."""

    def trace_export(self, number: int = 0, report: Path | None = None) -> Command:
        """The SQLite of nsys's report. report: where it lies, if not in the run."""
        tool, sqlite = self.tools["nsys"], self.path / numbered(NSYS_SQLITE, number)
        argv = nsys.export_argv(tool.path, report or self.path / numbered(NSYS_REPORT, number), sqlite, tool.version)
        return self.command(numbered("nsys-export", number), argv, makes=(sqlite,))

    def page(self, page: Page, number: int = 0, report: Path | None = None) -> Command:
        """A page of ncu's report as CSV. report: where it lies, if not in the run."""
        argv = ncu.export_argv(self.tools["ncu"].path, report or self.path / numbered(NCU_REPORT, number), page)
        return self.command(numbered(f"ncu-{page}", number), argv, stdout=self.path / numbered(NCU_PAGES[page], number))

    def command(self, step: str, argv: tuple[str, ...], **options: Any) -> Command:
        """A command with its log. options: further fields of the command."""
        return Command(step, argv, self.path / "logs" / f"{step}.log", **{"timeout_s": self.timeout_s, **options})
