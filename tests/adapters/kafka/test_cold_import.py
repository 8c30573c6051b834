"""kafka-python is imported when it is needed; a gateway of plain producers never needs it."""

import subprocess
import sys

import pytest

from adapters.kafka.handlers import APIS, Api

WITHOUT = [APIS[key] for key in (0, 1, 3, 18)]


@pytest.mark.parametrize("api", WITHOUT, ids=lambda api: api.name)
def test_the_hot_apis_do_not_bring_kafka_python_with_them(api: Api) -> None:
    program = (
        "import sys, adapters.kafka.server, adapters.kafka.cold\n"
        f"import adapters.kafka.handlers.{api.module}\n"
        "adapters.kafka.cold.is_flexible(3, 9)\n"
        "sys.exit('kafka' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
