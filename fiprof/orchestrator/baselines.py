"""How a run becomes a baseline, and what a gate measures of it."""

import platform
from collections.abc import Collection
from pathlib import Path

import psutil

from fiprof import clock
from fiprof.analysis.comparison.measured_result import Decision, GatedCase, read_comparison
from fiprof.errors import FiprofError
from fiprof.model.baselines import NamedBaseline, require_name, write_baseline
from fiprof.model.manifest import CaseEntry, Manifest, read_manifest
from fiprof.orchestrator.compare import SideSpec
from fiprof.orchestrator.environment import DIRTY, ask_git, full_commit
from fiprof.orchestrator.run_folder import Archive
from fiprof.workloads.base import format_value
from fiprof.workloads.case import Case, make_cases


def set_baseline(archive: Archive, name: str, folder: Path, commit: str | None = None) -> tuple[Path, NamedBaseline]:
    """Make a run of the archive a baseline, in the place of another of the name. Returns its file too.

    commit: whose tree it stands for; that of the run where it is None.
    Raises FiprofError for a run of another archive, without cases or of changes that are in no commit (exit status 2
    for a name or a commit that is none), and where the file cannot be written.
    """
    require_name(name)
    manifest = read_manifest(folder)
    cases = measured_cases(folder, manifest)
    if folder.resolve().parent != archive.root.resolve():
        raise FiprofError(f"{folder} lies outside the archive {archive.root}", "name its archive with --artifacts DIR")
    if manifest.status != "complete":
        raise FiprofError(f"{folder.name} is no baseline: the run {manifest.status}", "collect it again")
    if not cases:
        what = f"{folder.name} is no baseline: it names no case that could be measured again"
        raise FiprofError(what, "fiprof collect and fiprof compare --measure make runs with cases")
    if commit is not None:
        stands_for = full_commit(Path.cwd(), commit)
        if stands_for is None:
            raise FiprofError(f"git knows no commit {commit} here", "git log --oneline lists them", exit_code=2)
    else:
        stands_for = read_comparison(folder).b.commit if manifest.kind == "comparison" else None
        stands_for = stands_for or manifest.environment.get("git")
        if stands_for and stands_for.endswith(DIRTY):
            what = f"{manifest.name} was made of {stands_for.removesuffix(DIRTY)} with changes that are in no commit"
            remedy = "commit them and collect it again, or name the commit that it stands for: --commit REV"
            raise FiprofError(what, remedy)
        # In full where this checkout has it.
        stands_for = stands_for and (full_commit(Path.cwd(), stands_for) or stands_for)
    run, who = folder.resolve().name, f"{psutil.Process().username()}@{platform.node()}"
    baseline = NamedBaseline(name, run, stands_for, clock.now_text("seconds"), who)
    return write_baseline(archive.root, baseline), baseline


def measured_cases(folder: Path, manifest: Manifest) -> list[CaseEntry]:
    """The cases of a run; of a comparison those of side B."""
    if manifest.kind != "comparison":
        return manifest.cases
    now = {case.b for case in read_comparison(folder).cases}
    return [case for case in manifest.cases if case.id in now]


def pairs_against(
    archive: Archive, baseline: NamedBaseline, a: SideSpec, b: SideSpec, wanted: Collection[Case] = ()
) -> tuple[tuple[tuple[Case, Case], ...], list[GatedCase]]:
    """A baseline's cases as its run has them (A) and as the present tree does (B), and those that only one of them has.

    wanted: only these; empty for all.
    Raises FiprofError where its run is not there, names a file that nobody vouches for, or no case is left.
    """
    folder = archive.root / baseline.run
    vouched = {case.workload for case in wanted}
    pairs: dict[Case, tuple[Case, Case]] = {}
    others = []
    for entry in measured_cases(folder, read_manifest(folder)):
        words = {name: [format_value(value)] for name, value in entry.params.items()}
        # The archive may be a stranger's: a file that it names has to be of this checkout.
        file = Path(entry.workload.rpartition(":")[0])
        foreign = entry.workload not in vouched and file.suffix == ".py" and file.exists()
        if foreign and not ask_git(Path.cwd(), "ls-files", "--error-unmatch", "--", str(file)):
            what = f"the baseline {baseline.name} names the workload {entry.workload}, whose file git does not track"
            raise FiprofError(what, f"look at it; --workload {entry.workload} measures it")
        try:
            (now,) = make_cases(entry.workload, words)
        except FiprofError as error:
            others.append(GatedCase(entry.id, Decision.GONE, reason=error.message))
            continue
        before = Case(entry.workload, tuple(entry.params.items()))
        pairs[now] = a.cases([before])[0], b.cases([now])[0]
    others += [GatedCase(case.id, Decision.NEW) for case in wanted if case not in pairs]
    chosen = tuple(dict.fromkeys(pair for now, pair in pairs.items() if not wanted or now in wanted))
    if not chosen:
        remedy = f"fiprof baseline show {baseline.name} lists them; a workload's file is looked for from this folder"
        raise FiprofError(f"no case of the baseline {baseline.name} can be measured here", remedy)
    return chosen, others
