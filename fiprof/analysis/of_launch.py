"""What every analysis of a launch has: which launch it is."""

from __future__ import annotations

from dataclasses import dataclass

from fiprof.model.run import Launch


@dataclass(frozen=True)
class OfLaunch:
    """The launch that something was found about."""

    row: Launch

    @property
    def launch(self) -> int:
        """ncu's ID."""
        return self.row.launch

    @property
    def case(self) -> str | None:
        """Case id; None outside the cases' ranges."""
        return self.row.case

    @property
    def label(self) -> str:
        """The case in short."""
        return self.row.label

    @property
    def iteration(self) -> int | None:
        return self.row.iteration

    @property
    def kernel(self) -> str:
        return self.row.kernel

    @property
    def kernel_full(self) -> str:
        return self.row.kernel_full

    @property
    def grid(self) -> str:
        return self.row.grid

    @property
    def block(self) -> str:
        return self.row.block

    @property
    def repeated(self) -> bool:
        """Whether the run has this kernel of this case more than once."""
        return self.row.repeated

    @property
    def duration_us(self) -> float | None:
        """By ncu."""
        return self.row.duration_us
