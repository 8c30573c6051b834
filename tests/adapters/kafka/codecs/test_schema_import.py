"""kafka-python is imported on demand; Produce, Fetch and Metadata do not need it."""

import subprocess
import sys

import pytest

from adapters.kafka.handlers import APIS, Api

WITHOUT = [APIS[key] for key in (0, 1, 3, 18)]


@pytest.mark.parametrize("api", WITHOUT, ids=lambda api: api.name)
def test_frequent_apis_do_not_import_kafka_python(api: Api) -> None:
    program = (
        "import sys, adapters.kafka.server, adapters.kafka.codecs.schema_codec\n"
        f"import adapters.kafka.handlers.{api.module}\n"
        "adapters.kafka.codecs.schema_codec.is_flexible(3, 9)\n"
        "sys.exit('kafka' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_first_requests_of_many_apis_may_come_at_once() -> None:
    """Handlers are imported in threads, and kafka-python's modules import each other."""
    program = (
        "import sys, threading\n"
        "from adapters.kafka import handlers\n"
        "sys.setswitchinterval(1e-5)\n"
        "apis = [api for key, api in handlers.APIS.items() if key >= 8][:8]\n"
        "begun, loaded = threading.Barrier(len(apis)), []\n"
        "def work(api):\n"
        "    begun.wait()\n"
        "    loaded.append(handlers.load(api).handle)\n"
        "threads = [threading.Thread(target=work, args=(api,)) for api in apis]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "sys.exit(len(loaded) != len(apis))\n"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
