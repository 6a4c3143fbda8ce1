"""``fiprof show``: times, use of the hardware, and limits; occupancy, memory and the rest by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fiprof.cli import options
from fiprof.cli.options import Chosen, Command, reading_options

if TYPE_CHECKING:
    from fiprof.model.run import Run
    from fiprof.reports.view import Format


@click.command(cls=Command, epilog="Example: fiprof show latest --kernel decode --occupancy")
@click.option("--times", is_flag=True, help="Time by ncu and nsys, spread, grid, block; the least work and bytes.")
@click.option("--compute", is_flag=True, help="Operations a second, share of the roof, tensor cores, threads.")
@click.option("--memory", is_flag=True, help="SM, L1, L2, DRAM; hit rates; sectors a request, bank conflicts, spills.")
@click.option("--occupancy", is_flag=True, help="Achieved and theoretical occupancy, its limits, and what lifts it.")
@click.option("--waves", is_flag=True, help="How the grid fills the GPU, and what the last wave costs.")
@reading_options
def command(run: Run, chosen: Chosen, format_: Format, **sections: bool) -> None:
    """The time of each kernel, how much of the hardware it uses, and what limits it."""
    from fiprof.analysis.show import show
    from fiprof.analysis.verdict.verdict import limits
    from fiprof.reports.show import MOST_ROWS, SECTIONS, document
    from fiprof.reports.verdict_words import short_title

    def limits_of(launches: tuple[int, ...]) -> dict[int, str]:
        judged = [launch for launch in run.launches if launch.launch in launches]
        return {launch.launch: short_title(found) for launch, found in zip(judged, limits(run, judged), strict=True)}

    figures = show(run, wanted=chosen.wanted)
    named = [section for section in SECTIONS if chosen.every or sections[section]]
    made = document(
        figures,
        limits=limits_of,
        overview=chosen.every or not named,
        sections=named,
        most=chosen.most(MOST_ROWS),
    )
    options.show(made, format_, run=run)
