"""Pages of the console: its own, and those that the running adapters bring."""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from gateway.admin.roles import Role
from gateway.contributions import Contribution
from gateway.kernel import ProtocolAdapter

_HERE: Final = Path(__file__).parent
TEMPLATES: Final = _HERE / "templates"
STATIC: Final = _HERE / "static"


class Page(NamedTuple):
    """A page at ``/console/<name>``: the template ``<name>.html`` and the module ``<name>.js``.

    ``item`` names those of ``/console/<name>/<thing>``, where there are such. ``folder`` holds
    the files of ``adapter``; None for the console's own.
    """

    name: str
    title: str
    role: Role = Role.VIEWER
    item: str = ""
    folder: Path | None = None
    adapter: str = ""

    @property
    def key(self) -> str:
        """Letter after ``g`` that leads to the page."""
        return KEYS.get(self.name, "")


PAGES: Final = (
    Page("overview", "Overview"),
    Page("topics", "Topics", item="topic"),
    Page("queues", "Queues", item="queue"),
    Page("groups", "Groups", item="group"),
    Page("report", "Report"),
    Page("access", "Access", Role.ADMIN),
    Page("config", "Config", Role.ADMIN),
)
KEYS: Final[Mapping[str, str]] = {
    "overview": "o",
    "topics": "t",
    "queues": "q",
    "groups": "g",
    "mqtt": "m",
    "amqp": "x",
    "access": "a",
    "config": "c",
    "report": "r",
}


def all_pages(adapters: Mapping[str, ProtocolAdapter]) -> dict[str, Page]:
    """Return the pages by name, in the order of the navigation."""
    own = [page for page in PAGES if page.role is Role.VIEWER]
    rest = [page for page in PAGES if page.role is not Role.VIEWER]
    names = {page.name for page in PAGES}
    brought = [page for page in _brought(adapters) if page.name not in names]
    return {page.name: page for page in (*own, *brought, *rest)}


def _brought(adapters: Mapping[str, ProtocolAdapter]) -> Iterable[Page]:
    for name, adapter in sorted(adapters.items()):
        contribution = getattr(type(adapter), "CONTRIBUTION", None)
        if isinstance(contribution, Contribution):
            for page in contribution.console_pages:
                folder = Path(str(files(page.package)))
                yield Page(page.name, page.title, folder=folder, adapter=name)
