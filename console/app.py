"""Application of the console: login, pages and static files.

It is loaded at the first request for a page. Pages are filled in by ES modules, which call the
REST interface with the session's cookie.
"""

import hashlib
import mimetypes
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console import responses
from console.endpoints import endpoint_for
from console.pages import STATIC, TEMPLATES, Page, all_pages
from gateway import errors
from gateway.admin.error_answers import STATUS, error_answer
from gateway.admin.gate import request_facts
from gateway.admin.roles import Caller, Role
from gateway.admin.sessions import RequestFacts, Session, Sessions, is_open
from gateway.admin.state import AdminState
from gateway.installation import installed_version

FORM_BYTES_MAX: Final = 16_384
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_START: Final = "/console/overview"


class Console:
    """Console of a node."""

    def __init__(self, state: AdminState, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions
        self._pages = all_pages(state.adapters)
        folders = {one.name: one.folder for one in self._pages.values() if one.folder}
        self._folders = folders
        self._environment = Environment(
            loader=ChoiceLoader(
                [
                    FileSystemLoader(TEMPLATES),
                    PrefixLoader({name: FileSystemLoader(at) for name, at in folders.items()}),
                ]
            ),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self._start),
            Route("/console", self._start),
            Route("/console/login", self._login, methods=["GET", "POST"]),
            Route("/console/logout", self._logout, methods=["POST"]),
            Route("/console/static/{file:path}", self._static),
            Route("/console/{page}", self._page),
            Route("/console/{page}/{item:path}", self._page),
        ]

    async def _start(self, _: Request) -> Response:
        return responses.see_other(_START)

    # --- login

    async def _login(self, request: Request) -> Response:
        facts = _facts(request)
        target = _local_path(request.query_params.get("next"))
        if request.method == "GET":
            return self._login_page(target)
        self._sessions.check_origin(facts.headers, facts.scheme)
        form = await _form(request)
        user = form.get("user", "").strip()
        kernel = self._state.running()
        try:
            session_id, _ = await self._sessions.log_in(
                user, form.get("password", ""), facts.host, kernel
            )
        except (errors.Unauthenticated, errors.Unauthorized, errors.Overloaded) as error:
            kind = next(one for one in type(error).__mro__ if one in STATUS)
            return self._login_page(target, user=user, error=str(error), status=STATUS[kind])
        self._sessions.close(facts.session_id)
        return responses.set_session(responses.see_other(target), facts, session_id)

    def _login_page(
        self, target: str, *, user: str = "", error: str = "", status: int = 200
    ) -> Response:
        text = self._render("login.html", next=target, user=user, error=error)
        return responses.page(text, status)

    async def _logout(self, request: Request) -> Response:
        facts = _facts(request)
        session = self._sessions.find(facts.session_id, self._state.running())
        if session is not None:
            self._sessions.check_origin(facts.headers, facts.scheme)
            self._sessions.check_csrf(session, (await _form(request)).get("csrf"))
            self._sessions.close(facts.session_id)
        response = responses.see_other("/console/login")
        response.delete_cookie(facts.cookie_name, path="/")
        return response

    # --- pages

    async def _page(self, request: Request) -> Response:
        facts, kernel = _facts(request), self._state.running()
        session_id = facts.session_id
        session = self._sessions.find(session_id, kernel)
        is_new = session is None
        if session is None:
            if not (facts.is_local and is_open(kernel)):
                asked = request.url.path + (
                    f"?{request.url.query}" if request.url.query else ""
                )
                return responses.see_other(f"/console/login?next={quote(asked)}")
            session_id, session = self._sessions.open("", "local", kernel)
        caller = self._sessions.caller(session, facts.host, kernel)
        response = self._page_for(request, session, caller)
        if is_new and session_id is not None:
            responses.set_session(response, facts, session_id)
        return response

    def _page_for(self, request: Request, session: Session, caller: Caller) -> Response:
        page = self._pages.get(request.path_params["page"])
        item = request.path_params.get("item", "")
        if page is None or (item and not page.item):
            return self._message(session, caller, 404, "There is no such page.")
        if caller.role < page.role:
            text = f"This page needs the role {page.role.title}; yours is {caller.role.title}."
            return self._message(session, caller, 403, text)
        name = page.item if item else page.name
        prefix = f"{page.name}/" if page.folder else ""
        adapter: object = self._state.adapters.get(page.adapter)
        endpoint = endpoint_for(adapter, request.headers.get("host", ""))
        text = self._render(
            f"{prefix}{name}.html",
            **self._shell(session, caller, page),
            module=f"/console/static/{prefix}{name}.js",
            item=item,
            endpoint_url=endpoint.url,
        )
        return responses.page(text, connects_to=endpoint.origin)

    def _message(self, session: Session, caller: Caller, status: int, text: str) -> Response:
        shell = self._shell(session, caller, None)
        return responses.page(self._render("message.html", **shell, text=text), status)

    def _shell(self, session: Session, caller: Caller, page: Page | None) -> dict[str, object]:
        """Return the values of the layout."""
        kernel = self._state.running()
        return {
            "pages": [one for one in self._pages.values() if one.role <= caller.role],
            "page": page,
            "title": page.title if page else "Headgate",
            "user": caller.principal.name,
            "role": caller.role.title,
            "is_operator": caller.role >= Role.OPERATOR,
            "is_admin": caller.role >= Role.ADMIN,
            "can_log_out": session.kind != "local",
            "csrf": session.csrf,
            "node": f"node {kernel.placement.node_id}",
            "version": installed_version(),
        }

    def _render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)

    # --- static files

    async def _static(self, request: Request) -> Response:
        name = request.path_params["file"]
        first, _, rest = name.partition("/")
        folder = self._folders.get(first) if rest else STATIC
        path = None if folder is None else folder / (rest or name)
        if path is None or not _is_served(path):
            return Response(status_code=404, headers=responses.HEADERS)
        data = path.read_bytes()
        tag = f'"{hashlib.sha256(data).hexdigest()[:20]}"'
        headers = {**responses.HEADERS, "cache-control": "no-cache", "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
        return Response(data, headers=headers, media_type=kind)


def build_app(state: AdminState, sessions: Sessions) -> Starlette:
    """Return the console of a node."""
    return Starlette(
        routes=Console(state, sessions).routes(),
        exception_handlers={errors.GatewayError: _answer_error},
    )


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.GatewayError)
    response = error_answer(error)
    response.headers.update(responses.HEADERS)
    return response


def _is_served(path: Path) -> bool:
    """Say whether a file is one for browsers; the name has no folder in it."""
    return (
        path.suffix in _TYPES
        and path.parent.resolve() == path.resolve().parent
        and path.is_file()
    )


def _facts(request: Request) -> RequestFacts:
    return request_facts(request.scope, dict(request.scope["headers"]))


def _local_path(text: str | None) -> str:
    """Return a path of the console to go to after the login, never another site's."""
    parts = urlsplit(text or "")
    if parts.scheme or parts.netloc or not parts.path.startswith("/console/"):
        return _START
    return text or _START


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Errors: ``InvalidRequest``."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > FORM_BYTES_MAX:
            raise errors.InvalidRequest(f"the form is larger than {FORM_BYTES_MAX} bytes")
    try:
        fields = parse_qs(data.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise errors.InvalidRequest("the form cannot be read") from error
    return {name: values[0] for name, values in fields.items()}
