"""fiprof/model/settings.py: a declaration is enough for the option, the study's key, the manifest, the report and the guide."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
import pytest

from fiprof.cli.options import setting_option
from fiprof.errors import FiprofError
from fiprof.model import settings
from fiprof.model.settings import CollectSettings, Settings, StudySettings, settings_of, tool_words
from fiprof.orchestrator.study import load


@dataclass(frozen=True)
class Declared(CollectSettings):
    """With further settings."""

    mode: Literal["kernel", "range"] = "kernel"
    interval: int | None = None
    wide: bool = False
    way: Literal["a", "b"] | None = None


settings.ROWS |= {
    f"Declared.{name}": {**dict.fromkeys(settings.ROWS["seed"], ""), **said}
    for name, said in {
        "mode": {"help": "What ncu replays.", "tool": "ncu", "passed_as": "--replay-mode"},
        "interval": {"help": "Sampling.", "low": "0", "high": "31", "tool": "ncu", "passed_as": "--interval"},
        "wide": {"help": "Wide."},
        "way": {"help": "A way, or the tool's own."},
    }.items()
}


def parsed(*words: str) -> dict[str, object]:
    """What a command with the options of the declarations is given."""
    found: dict[str, object] = {}
    declared = [each for each in settings_of(Declared) if each.option]
    command = click.Command("c", params=[setting_option(each) for each in declared], callback=found.update)
    command.main(list(words), standalone_mode=False)
    return found


def test_a_declaration_makes_an_option_of_its_type() -> None:
    defaults = {each.name: each.default for each in settings_of(Declared) if each.option}
    assert parsed() == defaults
    given = parsed(
        "--mode", "range", "--interval", "3", "--wide", "--way", "b", "--no-check", "--tool", "ncu", "--timeout", "2.5"
    )
    changed = {
        "mode": "range",
        "interval": 3,
        "wide": True,
        "way": "b",
        "check": False,
        "tools": ("ncu",),
        "timeout_s": 2.5,
    }
    assert given == {**defaults, **changed}


@pytest.mark.fault("a time limit that is 0, negative, nan or infinite", "refused, exit status 2")
@pytest.mark.parametrize(
    "words",
    [
        ("--mode", "x"),
        ("--interval", "32"),
        ("--tool", ""),
        ("--seed", "a"),
        *(("--timeout", value) for value in ("0", "-1", "nan", "inf")),
    ],
)
def test_what_a_declaration_refuses(words: tuple[str, ...]) -> None:
    with pytest.raises(click.BadParameter):
        parsed(*words)


def test_a_setting_that_names_a_tools_option_goes_on_to_it() -> None:
    assert tool_words(Declared(mode="range", interval=0), "ncu")[-4:] == ("--replay-mode", "range", "--interval", "0")
    assert "--interval" not in tool_words(Declared(), "ncu")
    assert tool_words(Declared(), "nsys") == tool_words(CollectSettings(), "nsys")


def test_the_words_of_a_guide_ask_for_the_same_again() -> None:
    given = Declared(seed=7, check=False, tools=("ncu",), gpu=3, rounds=6)
    words = list(settings.option_words(settings.recorded(given), CollectSettings))
    assert parsed(*words) == {**parsed(), "seed": 7, "check": False, "tools": ("ncu",)}
    assert settings.from_manifest(settings.recorded(given)) == CollectSettings(
        seed=7, check=False, tools=("ncu",), gpu=3, rounds=6
    )
    assert settings.from_manifest({}) == CollectSettings()


def test_a_study_takes_the_settings_of_a_collect(tmp_path: Path) -> None:
    """Every one that both have, and refuses what its declaration refuses."""
    cases = '[[cases]]\nworkload = "rope"\n'
    for each in settings_of(StudySettings):
        given = "" if each.default is None else f"{each.name} = {json.dumps(each.default)}"
        (tmp_path / "study.toml").write_text(f'name = "x"\n[settings]\n{given}\n{cases}')
        assert load(str(tmp_path / "study.toml")).settings == StudySettings()
        low = each.low
        if low is not None:
            (tmp_path / "study.toml").write_text(f'name = "x"\n[settings]\n{each.name} = {int(low) - 1}\n{cases}')
            with pytest.raises(FiprofError, match=f"{each.name} is below {low:g}"):
                load(str(tmp_path / "study.toml"))
    assert {each.name for each in settings_of(Settings)} <= {each.name for each in settings_of(StudySettings)}
