"""Responses of the console, with the headers that keep other pages out of it."""

from typing import Any, Final

from starlette.responses import HTMLResponse, RedirectResponse, Response

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Content Security Policy: nothing is loaded from elsewhere, nothing inline is run."""
# With "no-referrer" browsers would send ``Origin: null`` with the forms of login and logout.
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def page(text: str, status: int = 200, *, connects_to: str = "") -> Response:
    """Return a page, which is not stored. ``connects_to``: a further origin that it may open."""
    headers = {**HEADERS, "cache-control": "no-store"}
    if connects_to:
        own = "connect-src 'self'"
        headers["content-security-policy"] = POLICY.replace(own, f"{own} {connects_to}")
    return HTMLResponse(text, status, headers)


def see_other(url: str) -> Response:
    """Return a redirection that is fetched by GET."""
    return RedirectResponse(url, 303, {**HEADERS, "cache-control": "no-store"})


def set_session(response: Response, facts: Any, session_id: str) -> Response:  # noqa: ANN401
    """Set the session's cookie: for this host, invisible to scripts and to other sites."""
    response.set_cookie(
        facts.cookie_name,
        session_id,
        path="/",
        httponly=True,
        samesite="strict",
        secure=facts.scheme == "https",
    )
    return response
