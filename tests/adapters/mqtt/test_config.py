"""Values that a config of the MQTT endpoint may have, and warnings of ``check-config``."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from adapters.mqtt.config import MqttConfig
from gateway.config.loader import load_settings
from gateway.config.settings import Settings, TopicConfig
from tests.adapters.mqtt.live import running


def said(config: MqttConfig, **configs: str) -> str:
    topics = (TopicConfig(name="mqtt", configs=configs),) if configs else ()
    return "\n".join(config.warnings(Settings(topics=topics)))


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("[node]\nnode_id = 7\n", "127.0.0.1:8083"),
        ("[adapters.mqtt]\nbind = '127.0.0.1:0'\n", None),
        ("[adapters.mqtt.websocket]\n", "127.0.0.1:8083"),
        ("[adapters.mqtt]\nwebsocket.bind = '127.0.0.1:9'\n", "127.0.0.1:9"),
    ],
)
def test_websocket_is_there_by_its_table_or_where_nothing_is_configured(
    tmp_path: Path, text: str, bind: str | None
) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    config = load_settings(file=file).adapters["mqtt"]
    assert isinstance(config, MqttConfig)
    assert (config.websocket.bind if config.websocket else None) == bind


async def test_without_its_table_nothing_listens_for_websocket(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"websocket": None}) as live:
        assert [one.name for one in live.adapter.endpoints()] == ["mqtt"]
        await live.connected()


def test_a_receiver_is_cut_off_above_where_it_is_slow() -> None:
    config = {"receiver_bytes_max": 200_000, "receiver_bytes_hard_max": 200_000}
    MqttConfig.model_validate(config)
    with pytest.raises(ValidationError, match="receiver_bytes_hard_max: 199999 is below"):
        MqttConfig.model_validate({**config, "receiver_bytes_hard_max": 199_999})


def test_sessions_that_outlive_what_they_wait_for_are_warned_of() -> None:
    assert "session.expiry_s_max" not in said(MqttConfig())
    assert "topic mqtt keeps messages for 60 s" in said(
        MqttConfig(), **{"retention.ms": "60000"}
    )
    assert "session.expiry_s_max" not in said(MqttConfig(), **{"retention.ms": "-1"})


def test_limits_of_receivers_that_leave_no_room_between_them_are_warned_of() -> None:
    assert "receiver_bytes_hard_max" not in said(MqttConfig())
    tight = MqttConfig(receiver_bytes_max=65_536, receiver_bytes_hard_max=1_000_000)
    assert "slow receivers are cut off" in said(tight)


def test_packets_that_a_declared_topic_does_not_take_are_warned_of() -> None:
    large = MqttConfig(packet_bytes_max=2 << 20)
    assert "packet_bytes_max" not in said(large)  # the topic is made to fit
    assert "topic mqtt takes 1048588" in said(large, **{"retention.ms": "-1"})
    fitting = {"max.message.bytes": str(large.message_bytes)}
    assert "packet_bytes_max" not in said(large, **fitting)
