"""The processes of a comparison, in the order of time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import fiprof.workloads
from fiprof.model.layout import MEASUREMENTS
from fiprof.orchestrator.compare.request import CompareRequest
from fiprof.orchestrator.compare.sides import Checkout
from fiprof.orchestrator.process import Command
from fiprof.workloads.nvtx import RANGES_VARIABLE


@dataclass(frozen=True)
class Commands:
    """The command of each process, for one request and one run folder."""

    request: CompareRequest
    path: Path
    """The run folder."""
    scratch: Path
    """Folder for what does not outlive the run."""
    checkouts: Mapping[str, Checkout | None]
    """A and B; None for a side that is no commit."""

    def all(self) -> list[Command]:
        """A1, B1, B2, A2, …"""
        numbers = {"A": 0, "B": 0}
        found = []
        for letter in self.request.schedule:
            numbers[letter] += 1
            found.append(self._command(letter, f"{letter}{numbers[letter]}"))
        return found

    def first(self) -> list[Command]:
        """A0 and B0 of two programs, which do not count: what they compile and read from disk is there after them."""
        return [self._command(letter, f"{letter}0") for letter in "AB" if self.request.side(letter).program]

    def orders(self, name: str) -> Path:
        """The FIFO that a process takes its orders from."""
        return self.scratch / f"{name}.orders"

    def _command(self, letter: str, name: str) -> Command:
        side, out = self.request.side(letter), self.path / MEASUREMENTS / f"{name}.jsonl"
        env = self.environment(letter)
        if side.program:
            env[RANGES_VARIABLE] = str(out)
        argv = side.program or self._workload(letter, name, out)
        log = self.path / "logs" / f"{name}.log"
        return Command(name, argv, log, env, self.request.timeout_s, makes=(out,))

    def environment(self, letter: str) -> dict[str, str]:
        """What a side's processes have set."""
        env = dict(self.request.side(letter).env)
        if self.request.gpu is not None:
            # nvidia-smi counts in PCI order; CUDA by default does not.
            env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(self.request.gpu)}
        if checkout := self.checkouts[letter]:
            before = env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (*map(str, checkout.paths), before)))
        return env

    def cases(self, letter: str) -> list[str]:
        """A side's cases, as the runner takes them; those of a file in a checkout, of the commit's file."""
        checkout = self.checkouts[letter]
        return [
            f"{checkout.workload(case.workload) if checkout else case.workload}[{case.argument.partition('[')[2]}"
            for case in self.request.cases(letter)
        ]

    def _workload(self, letter: str, name: str, out: Path) -> tuple[str, ...]:
        request, checkout = self.request, self.checkouts[letter]
        return (
            request.side(letter).python or request.python,
            # By path: what a side imports may have a fiprof of its own.
            str(Path(fiprof.workloads.__path__[0]) / "__main__.py"),
            "rounds",
            *(word for case in self.cases(letter) for word in ("--case", case)),
            f"--measure-iterations={request.iterations}",
            f"--budget-ms={request.budget_ms:g}",
            f"--warmup={request.warmup}",
            f"--seed={request.seed}",
            *((f"--imports-from={checkout.files}",) if checkout else ()),
            f"--orders={self.orders(name)}",
            f"--out={out}",
        )
