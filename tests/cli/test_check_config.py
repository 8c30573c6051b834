"""``headgate check-config``: what it prints is a config file that means the same."""

import tomllib
from pathlib import Path

import pytest

from gateway.config.loader import load_settings
from gateway.config.text import as_tables
from tests.cli.conftest import Run
from tests.support.certificates import make_certificate


def test_the_defaults_are_printed_and_nothing_is_marked(run: Run) -> None:
    done = run("check-config")
    assert done.status == 0
    assert "# default:" not in done.out
    warnings = [line for line in done.out.splitlines() if "# warning:" in line]
    assert [line for line in warnings if "already in use" not in line] == []  # of this machine
    assert tomllib.loads(done.out)["node"]["data_dir"] == "data"
    assert tomllib.loads(done.out)["adapters"]["kafka"]["bind"] == "127.0.0.1:9092"


def test_what_is_not_the_default_is_marked_with_the_default(run: Run) -> None:
    done = run("check-config", "--set", "storage.flush=never", "--set", "node.node_id=7")
    assert 'flush = "never"  # default: "group"' in done.out
    assert "node_id = 7  # default: 1" in done.out
    assert '# warning: storage.flush: with "never"' in done.out


def test_the_output_is_a_config_file_that_means_the_same(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "first.toml"
    file.write_text(
        '[storage]\nflush = "interval"\n'
        '[topic_defaults.configs]\n"retention.ms" = 86400000\n'
        '[[topics]]\nname = "orders"\nconfigs = {"segment.ms" = 5}\n'
        '[[auth.rules]]\nprincipal = "alice"\n'
        "[adapters.kafka]\nconnections_max = 5\n"
    )
    again = tmp_path / "second.toml"
    again.write_text(run("check-config", "--config", str(file)).out)
    assert as_tables(load_settings(file=again)) == as_tables(load_settings(file=file))


def test_a_key_that_must_be_set_has_no_default_to_be_marked_with(run: Run) -> None:
    setting = ["storage.adapter=s3", "storage.bucket=logs", "storage.flush_interval_ms=5"]
    done = run("check-config", *(part for one in setting for part in ("--set", one)))
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert 'adapter = "s3"  # default: "segment_log"' in lines
    assert 'bucket = "logs"' in lines
    assert "flush_interval_ms = 5  # default: 250" in lines


def test_json_holds_every_section(run: Run) -> None:
    tables = run("check-config", "--json").json
    assert tables["storage"]["adapter"] == "segment_log"
    assert tables["adapters"]["kafka"]["connections_max"] == 10_000


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("storage.flsh=never", "storage.flsh: unknown key; did you mean storage.flush?"),
        ("adapters.kafka.bnd=1", "adapters.kafka.bnd: unknown key"),
        ("adapters.kafk.bind=127.0.0.1:1", "did you mean 'kafka'?"),
        ("log.level=loud", "log.level: input should be"),
        ("adapters.mqtt.enabled=false", "leave the table [adapters.mqtt] out, and it is off"),
        ("adapters.mqtt.enabled=true", "the table [adapters.mqtt] turns the adapter on"),
    ],
)
def test_a_bad_setting_is_one_line_and_status_2(run: Run, assignment: str, words: str) -> None:
    done = run("check-config", "--set", assignment)
    assert done.status == 2
    assert done.out == ""
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_listening_to_others_is_warned_of(run: Run) -> None:
    done = run("check-config", "--set", "adapters.kafka.bind=0.0.0.0:9092")
    assert done.status == 0
    assert (
        "# warning: while nobody must log in, nothing starts: adapters.kafka.bind" in done.out
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '[[topics]]\nname = "good"\n[[topics]]\nname = "a b"\n',
            "topics[1].name: the name of a topic is 1 to 249 of a-zA-Z0-9._-, not 'a b'",
        ),
        ('[[queues]]\nname = "a/b"\n', "queues[0].name: the name of a topic is 1 to 249 of"),
        (
            '[[queues]]\nname = "a"\ndead_letter_topic = "a/b"\n',
            "queues[0].dead_letter_topic: the name of a topic is",
        ),
        (
            (
                '[adapters.kafka]\nbind = "127.0.0.1:19092"\n[adapters.mqtt]\n'
                'bind = "127.0.0.1:19092"\n'
            ),
            (
                "adapters.mqtt.bind: 127.0.0.1:19092 is taken by adapters.kafka.bind "
                "(127.0.0.1:19092); one of them needs another port"
            ),
        ),
    ],
)
def test_what_a_start_would_refuse_is_one_line_and_status_2(
    run: Run, tmp_path: Path, text: str, line: str
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    done = run("check-config", "--config", str(file))
    assert (done.status, done.out) == (2, "")
    assert line in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '[[topics]]\nname = "a"\nconfigs = {"retention.mss" = 1}\n',
            "topics[0].configs: unknown topic config 'retention.mss'; did you mean retention.ms?",
        ),
        (
            '[topic_defaults.configs]\n"cleanup.policy" = "shred"\n',
            "topic_defaults.configs: topic config cleanup.policy: 'shred' is not",
        ),
        (
            (
                '[[auth.rules]]\n[[auth.rules]]\nresource = "mqtt_topic"\npattern = "filter"\n'
                'name = "a#b"\n'
            ),
            "auth.rules[1]: 'a#b': '+' stands for a whole level",
        ),
    ],
)
def test_a_topic_config_or_rule_that_a_start_would_refuse_is_status_2(
    run: Run, tmp_path: Path, text: str, line: str
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    done = run("check-config", "--config", str(file))
    assert done.status == 2
    assert line in done.err
    assert len(done.err.splitlines()) == 1


def test_certificates_are_loaded(run: Run, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    setting = {"tls_cert": cert, "tls_key": key, "tls_client_ca": cert}
    arguments = [f"--set=adapters.kafka.{name}={file}" for name, file in setting.items()]
    assert run("check-config", *arguments).status == 0


@pytest.mark.parametrize("name", ["tls_cert", "tls_key", "tls_client_ca"])
def test_a_file_of_tls_that_is_not_there_is_named(run: Run, tmp_path: Path, name: str) -> None:
    cert, key = make_certificate(tmp_path)
    setting = {"tls_cert": cert, "tls_key": key, "tls_client_ca": cert}
    setting[name] = tmp_path / "nowhere.pem"
    arguments = [f"--set=adapters.kafka.{key}={file}" for key, file in setting.items()]
    done = run("check-config", *arguments)
    assert done.status == 2
    assert done.err == (
        f"headgate: adapters.kafka.{name}: {tmp_path}/nowhere.pem: No such file or directory\n"
    )


def test_a_certificate_with_the_key_of_another_is_refused(run: Run, tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    _, key = make_certificate(other)
    done = run(
        "check-config", f"--set=adapters.kafka.tls_cert={cert}",
        f"--set=adapters.kafka.tls_key={key}",
    )  # fmt: skip
    assert done.status == 2
    assert f"adapters.kafka.tls_cert: {cert} and {key} are not a certificate" in done.err
    assert len(done.err.splitlines()) == 1
