"""The whole way: in by MQTT, kept in S3, out of a lake table, every message once and as it was."""

from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from deltalake import DeltaTable
from paho.mqtt.enums import CallbackAPIVersion

from tests.pipeline.archive.archives import options
from tests.pipeline.running import Jobs
from tests.support.mqtt_gateway import MqttGateway
from tests.support.s3_servers import REGION, S3Server, versitygw

pytestmark = [pytest.mark.java, pytest.mark.go, pytest.mark.xdist_group("spark-2")]

_MESSAGES = 3_000
_TOPICS = 7
_WAIT_S = 60


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with versitygw(tmp_path) as running:
        for name, value in running.env.items():
            monkeypatch.setenv(name, value)
        yield running


def _publish(gateway: MqttGateway, numbers: range) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    sent = [
        client.publish(f"plant/{number % _TOPICS}/temp", f"{number}", qos=1)
        for number in numbers
    ]
    for one in sent:
        one.wait_for_publish(_WAIT_S)
    assert all(one.is_published() for one in sent)
    client.disconnect()
    client.loop_stop()


def test_what_was_published_by_mqtt_is_in_the_table_once(
    jobs: Jobs, server: S3Server, tmp_path: Path
) -> None:
    env = {**server.env, "AWS_ENDPOINT_URL": server.endpoint_url, "AWS_REGION": REGION}
    settings = {**server.settings(prefix="gw/"), "storage.flush_interval_ms": 20}
    lake = f"s3://{server.new_bucket()}/messages"
    more = [f"--set={name}={value}" for name, value in settings.items()]
    with MqttGateway(tmp_path / "data", settings) as gateway:
        archive = ["archive", *options(gateway.data_dir, "mqtt", lake, "--json", *more)]
        _publish(gateway, range(_MESSAGES))
        first = jobs.run(*archive, env=env)
        gateway.kill()
        gateway.start()
        _publish(gateway, range(_MESSAGES, _MESSAGES + 100))
        second = jobs.run(*archive, env=env)

    assert first.json["rows"] == _MESSAGES
    assert second.json["rows"] == 100
    table = DeltaTable(lake, storage_options={**env, "aws_allow_http": "true"})
    rows = table.to_pyarrow_table(columns=["offset", "key", "value"]).to_pylist()
    rows.sort(key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == list(range(_MESSAGES + 100))
    assert [int(row["value"]) for row in rows] == list(range(_MESSAGES + 100))
    assert all(
        row["key"] == f"plant/{int(row['value']) % _TOPICS}/temp".encode() for row in rows
    )
