"""Any word on the command line, any environment: what was asked for, or one line and its exit status."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fiprof.cli.main import OWN, cli
from tests.conftest import forks
from tests.fakes.recorded import recorded_bytes
from tests.recorded_runs import STUDY, profiled, replayed
from tests.test_study_resume import STUDY as SMALL_STUDY


def tree(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[click.Parameter]]]:
    """Every command with the words that name it, and its parameters."""
    ctx = click.Context(command, **cli.context_settings)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from tree(inner, (*words, name))
    else:
        yield words, command.get_params(ctx)


EVERY = [each for name in (*OWN, "jit") for each in tree(cli.get_command(click.Context(cli), name) or cli, (name,))]

ODD = [
    "", " ", "-", "--", "---", "=", ",", ":", "[", "(", "*", "%", "~", "~nobody/x", ".", "..", "\udcff", "a\udcff/b", "\x1b[31m", "\r\n", "\u202e",
    "x" * 5000, "/" * 5000, "9" * 5000, "-1", "1e999", "nan", "inf", "1_0", "²", "٣", "0x10", "1-0", "5-99999999", "true", "null",
    "latest", "run", "artifacts/run", "run:batch=1", "latest:\udcff", "[batch=1]", "decode", "decode[batch=1]", "decode[", "x.py:y", "x.py:", ":", "batch=", "batch>=x", "=1", "git:HEAD", "git::", "env:A=B", "env:A", "params:batch=1", "case:decode", "case:\udcff[batch=1]", "program:", "program:'", "program:true", "python:nothing", "here",
    "sqlite:///x", "sqlite://", "x://", "postgresql+psycopg://nobody@127.0.0.1:1/x", "nvtx:", "nvtx:\udcff", "0d", "99999999999d", "2026-13-41", "30%", "-5%", "/dev/null", "/dev/full", "/proc/self/mem",
    "file", "fifo", "link", "bytes\udcfe", "name,name", "cpu.sqlite", "--help", "--format", "-h", "@x", "\ufeff", "\U0010ffff", "e\u0301",
]  # fmt: skip


def harmless(word: str) -> bool:
    """Whether a word names no path outside the folder."""
    return word in ODD or not ("/" in word or ".." in word)


WORDS = st.one_of(
    st.sampled_from(ODD),
    st.binary(max_size=12).filter(lambda data: b"\0" not in data).map(os.fsdecode).filter(harmless),
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=12).filter(harmless),
    st.tuples(st.sampled_from(ODD), st.sampled_from([",", "=", ":", ".."]), st.sampled_from(ODD))
    .map("".join)
    .filter(harmless),
)

RUNS_THERE = ["latest", "run", "run", "artifacts/run", "artifacts�/r�n", "r�n", "run:1", "latest:batch=1", "lat"]
FITTING = {
    **dict.fromkeys(("run", "runs", "a", "b"), RUNS_THERE),
    **dict.fromkeys(("out", "folder", "bundle", "junit", "comment"), ("new", "n\udcffw", "artifacts", "made", "file", "n\udcffw/deeper", "link", "fifo")),
    **dict.fromkeys(("base", "now"), ("here", "git:HEAD", "program:tr\udcffe", "env:A=\udcff", "params:batch=2", "python:\udcff", "case:decode[batch=1]")),
    **dict.fromkeys(("kernel", "kernels"), ("decode", "prefill,decode", "flash", "rope")),
    **dict.fromkeys(("older_than", "since_", "duration_s", "delay_s"), ("0d", "30d", "1")),
    **dict.fromkeys(("where", "split", "metric", "metrics"), ("batch=1", "dtype", "kernel", "case_plain_us", "duration_us", "git", "user")),
    **dict.fromkeys(("against", "name", "keep_tags"), ("main", "m\udcff", "study", "study.toml", "flashinfer", "s\udcffy.toml", "damaged")),
    **dict.fromkeys(("names", "text"), ("release", "a\udcffb", "a,b", "x" * 200, "\x1b[31m", "\u202e", "é", "e\u0301", "\ufeff", "-x", "../x")),
    **dict.fromkeys(("commit", "only"), ("HEAD", "0" * 40, "decode", "-x", "\udcff")),
    "catalog": ("sqlite:///new.sqlite", "sqlite:///cpu.sqlite", "sqlite:///trace.sqlite", "sqlite:///file", "sqlite:///fifo"),
    "artifacts": ("artifacts", "artifacts\udcff", "new"),
    "files": ("raw\udcff.csv", "raw.csv", "trace.sqlite", "trace\udcff.sqlite", "file"),
}  # fmt: skip
"""Parameter -> words that it may take."""


def word(draw: Callable[[st.SearchStrategy[Any]], Any], parameter: click.Parameter) -> str:
    """A word for a parameter: mostly one that it takes."""
    kind, fitting = parameter.type, FITTING.get(str(parameter.name))
    if isinstance(kind, click.Choice):
        fitting = tuple(map(str, kind.choices))
    elif isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        fitting = ("1", "2", "10", "50", str(10**6), str(2**31), str(10**30))
    return str(draw(st.sampled_from([*fitting])) if fitting and draw(st.integers(0, 5)) else draw(WORDS))


@st.composite
def command_lines(draw: Any) -> list[str]:
    words, parameters = draw(st.sampled_from(EVERY))
    line = list(words)
    options = [each for each in parameters if isinstance(each, click.Option)]
    chosen = [each for each in options if each.required]
    if options:
        chosen += draw(st.lists(st.sampled_from(options), max_size=3))
    for option in chosen:
        name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        if option.is_flag:
            line.append(name)
        elif draw(st.booleans()) and name.startswith("--"):
            line.append(f"{name}={word(draw, option)}")
        else:
            line += [name, word(draw, option)]
    for each in parameters:
        if isinstance(each, click.Argument):
            many = each.nargs if each.nargs > 0 else draw(st.integers(1, 3))
            line += [word(draw, each) for _ in range(many - draw(st.sampled_from([0, 0, 0, 0, 1])))]
    if draw(st.integers(0, 20)) == 7:
        line.insert(draw(st.integers(0, len(line))), draw(WORDS))
    return line


ODD_VARIABLES = {
    "LC_ALL": ["C", "x", "\udcff"], "HOME": ["", "/proc/1/x", "/dev/null", "\udcff"], "TERM": ["dumb", "", "x\udcff"],
    "COLUMNS": ["0", "1", "-5", "x", "9" * 30, "\udcff"], "NO_COLOR": ["", "1"], "TZ": ["garbage", ":/dev/null", "\udcff"],
    "PATH": ["", ".", "\udcff"], "XDG_CACHE_HOME": ["relative", "\udcff", "/dev/null"], "TMPDIR": ["/dev/null", "\udcff"],
    "FIPROF_ARTIFACTS": ["", "artifacts\udcff", "file", "nothing"], "FIPROF_CATALOG": ["", "x", "sqlite:///\udcff", "sqlite:///new"],
    "FIPROF_NSYS": ["", "file", "\udcff", "/dev/null"], "FIPROF_NCU": ["", "file", "\udcff"], "FIPROF_PYTHON": ["", "file", "\udcff"],
    "GIT_DIR": ["nothing", "\udcff"], "GITHUB_ACTIONS": ["true"], "GITHUB_STEP_SUMMARY": ["\udcff", "/dev/full"],
    "CUDA_VISIBLE_DEVICES": ["", "-1", "x\udcff"], "A_TOKEN": ["secret\udcffsecret"],
}  # fmt: skip
PLAIN = {"PATH": "/nowhere", "HOME": "home", "COLUMNS": "100"}
ENVIRONMENTS = st.lists(
    st.sampled_from([(name, text) for name, texts in ODD_VARIABLES.items() for text in texts]), max_size=2
).map(lambda odd: {**PLAIN, **dict(odd)})
CLOSED: list[tuple[int, ...]] = [(), (), (), (), (0,), (1,), (2,), (0, 1, 2)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of one run, to be copied; and files of several kinds."""
    folder = tmp_path_factory.mktemp("words")
    shutil.copytree(replayed("decode").path, folder / "artifacts/run")
    for name in ("run", "r\udcfen"):
        shutil.copytree(profiled("vectors").path, folder / "artifacts\udcff" / name)
    for name in ("ncu/raw.csv", "nsys/trace.sqlite"):
        data = recorded_bytes(folder / "artifacts/run" / name)
        (folder / Path(name).name).write_bytes(data)
        (folder / Path(name).name.replace(".", "\udcff.")).write_bytes(data)
    made = folder / "made"
    shutil.copytree(STUDY, made, ignore=shutil.ignore_patterns("2*", "reports"))
    (made / "site.json").write_text("{}")
    for name in ("study.toml", "s\udcffy.toml"):
        (folder / name).write_text(SMALL_STUDY)
    (folder / "artifacts/baselines").mkdir()
    kept = {"name": "main", "run": "run", "commit": None, "set_at": "2026-11-22T10:00:00+00:00", "set_by": "a@b"}
    (folder / "artifacts/baselines/main.json").write_text(json.dumps(kept))
    (folder / "artifacts/baselines/damaged.json").write_text("{")
    (folder / "file").write_text("text")
    (folder / os.fsdecode(b"bytes\xfe")).write_text("text")
    (folder / "link").symlink_to("nothing")
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.fault("any word on any command line: not UTF-8, empty, huge, controls, an option", "done, or one line")
@pytest.mark.fault("no HOME, PATH or TMPDIR of use, odd locale, TERM, COLUMNS, TZ, FIPROF_*", "done, or one line")
@pytest.mark.fault("standard input, output or error closed by the shell", "the exit status is the same")
@pytest.mark.fault("archives, runs and files whose names are not UTF-8", "read and written like any other")
@settings(
    max_examples=int(os.environ.get("FIPROF_TEST_WORDS", "30")),
    derandomize="FIPROF_TEST_WORDS" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(line=command_lines(), env=ENVIRONMENTS, closed=st.sampled_from(CLOSED))
@example(line=["profile", "--", "\r\n"], env=PLAIN, closed=())
@example(line=["runs", "--limit", str(10**30), "--kernel", "rope"], env=PLAIN, closed=())
@example(line=["report", "latest"], env={**PLAIN, "A_TOKEN": "secret\udcffsecret"}, closed=())
def test_any_command_line(line: list[str], env: dict[str, str], closed: tuple[int, ...], archive: Path) -> None:
    """FIPROF_TEST_WORDS: that many, others each time."""
    folder = archive.with_name("now")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-r", str(archive), str(folder)], check=True)
    ended = forks().run(line, folder, env, closed)
    assert ended.in_order, (ended.status, ended.stderr[-1500:])


@pytest.mark.fault("words, notes, files and folders that are not UTF-8", "recorded as `\\xff`; the note is shown so")
def test_what_is_not_utf_8_is_kept(archive: Path, fakes: dict[str, str]) -> None:
    new = "new\udcff"
    env = {**os.environ, **fakes, "LC_ALL": "C", "HOME": "/nowhere", "A_TOKEN": "secretsecret"}
    options = ("--tool", "nsys", "--artifacts", new, "--quiet")
    program = ("profile", *options, "--", "sh", "-c", ": a\udcffb \udcfe secretsecret")
    for line in (
        program,
        ("note", "artifacts\udcff/r\udcfen", "a\udcffb"),
        ("report", "artifacts\udcff/r\udcfen", "--bundle", "b\udcff.zip"),
        ("import", "raw\udcff.csv", "--artifacts", new),
    ):
        ended = forks().run(line, archive, env)
        assert (ended.status, "Traceback" in ended.stderr) == (0, False), ended
    run, imported = sorted((archive / new).glob("[!.]*/run.json"), key=lambda path: "raw" in str(path))
    assert json.loads(run.read_text())["environment"]["program"]["command"][-1] == r": a\xffb \xfe ***"
    assert json.loads(imported.read_text())["imported"][0]["source"].endswith(r"/raw\xff.csv")
    published = forks().run(("publish", "site", "--artifacts", "artifacts\udcff"), archive, env)
    assert published.status == 1 and "r\\xfen is left out: " in published.stderr
    shown = forks().run(("runs", "--artifacts", "artifacts\udcff", "--format", "json"), archive, env)
    assert r"a\xffb" in [note["text"] for row in json.loads(shown.stdout)["rows"] for note in row["notes"]]
