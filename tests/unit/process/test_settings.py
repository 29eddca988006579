"""Flags, environment, defaults."""

from __future__ import annotations

import dataclasses

import pytest

from kbatch.process.settings import LeaderSettings, SettingsError, flag, parse, parse_duration, parse_or_exit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(LeaderSettings):
    """An example process."""

    schedule_period: float = flag(1.0, "between two cycles")


def read(*argv: str, **environ: str) -> Example:
    return parse(Example, prog="example", argv=argv, environ=environ)


def test_the_flags_of_the_chart_are_understood() -> None:
    settings = read(
        "--bind-address=10.0.0.1", "--health-port=8081", "--metrics-port=8080", "--log-level=debug",
        "--log-format=text", "--scheduler-name=other", "--lease-namespace=kbatch-system", "--lease-name=kbatch-example",
        "--identity=pod-1", "--lease-duration=20s", "--renew-deadline=15s", "--retry-period=500ms",
        "--schedule-period=2m",
    )  # fmt: skip
    assert (settings.bind_address, settings.health_port, settings.metrics_port) == ("10.0.0.1", 8081, 8080)
    assert (settings.log_level, settings.log_format, settings.scheduler_name) == ("debug", "text", "other")
    assert (settings.resolved_lease_namespace(), settings.resolved_identity()) == ("kbatch-system", "pod-1")
    assert (settings.lease_duration, settings.renew_deadline, settings.retry_period) == (20.0, 15.0, 0.5)
    assert settings.schedule_period == 120.0


def test_a_flag_goes_before_the_environment_and_that_before_the_default() -> None:
    environ = {"KBATCH_HEALTH_PORT": "1", "KBATCH_METRICS_PORT": "2", "KBATCH_LEADER_ELECT": "false"}
    settings = read("--health-port=3", **environ)
    assert (settings.health_port, settings.metrics_port, settings.leader_elect) == (3, 2, False)
    assert read().metrics_port == 9090
    assert read("--no-leader-elect").leader_elect is False
    assert read().leader_elect is True


@pytest.mark.parametrize(
    ("argv", "environ", "words"),
    [
        (["--health-prot=1"], {}, ["unknown flag --health-prot", "--health-port"]),
        (["--health=1"], {}, ["unknown flag --health"]),
        (["serve"], {}, ["unexpected argument 'serve'"]),
        (["--health-port=many"], {}, ["--health-port", "'many' is not a whole number"]),
        (["--health-port=-1"], {}, ["--health-port", "negative"]),
        (["--metrics-port=70000"], {}, ["--metrics-port", "70000 is not a port"]),
        (["--schedule-period=5"], {}, ["--schedule-period", "'5' is not a duration"]),
        (["--log-level=loud"], {}, ["--log-level", "'loud'", "debug, info, warning, error"]),
        ([], {"KBATCH_METRICS_PORT": "tcp://10.0.0.1:80"}, ["KBATCH_METRICS_PORT", "tcp://10.0.0.1:80"]),
        ([], {"KBATCH_LEADER_ELECT": "perhaps"}, ["KBATCH_LEADER_ELECT", "'perhaps' is neither true nor false"]),
    ],
)
def test_what_cannot_be_understood_is_said_with_its_name(
    argv: list[str], environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        read(*argv, **environ)
    for word in words:
        assert word in str(raised.value)


def test_an_unknown_flag_ends_the_process_with_status_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse_or_exit(Example, prog="kbatch-example", argv=["--lease-nam=x"])
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert said == "kbatch-example: unknown flag --lease-nam; the nearest known one is --lease-name\n"


def test_help_names_flag_default_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse_or_exit(Example, prog="kbatch-example", argv=["--help"])
    assert raised.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--schedule-period DURATION between two cycles (default: 1s; KBATCH_SCHEDULE_PERIOD)" in said
    assert "--leader-elect, --no-leader-elect" in said


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("1s", 1.0), ("1.5s", 1.5), ("5m", 300.0), ("4.1m", 246.0), ("8.2m", 492.0), ("1h", 3600.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1", "-1s", "1d", "1 s", "1s1", "infs", "١s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
