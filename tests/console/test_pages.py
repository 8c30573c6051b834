"""Pages of adapters: there while the adapter runs, and at no other time."""

from typing import Any

from adapters.amqp.server import AmqpAdapter
from console.pages import all_pages


def test_an_adapters_page_is_there_only_while_it_runs() -> None:
    running: Any = object.__new__(AmqpAdapter)
    assert "amqp" not in all_pages({})
    page = all_pages({"amqp": running})["amqp"]
    assert (page.title, page.adapter) == ("AMQP", "amqp")
    assert page.folder is not None
    assert {"amqp.html", "amqp.js", "amqp_route.js"} <= {
        one.name for one in page.folder.iterdir()
    }
