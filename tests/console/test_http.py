"""The console over HTTP, without a browser: roles, CSRF, Host, Origin, and what pages may load."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.admin.sessions import AGE_MS_MAX, IDLE_MS_MAX, SESSIONS_MAX, Sessions
from gateway.admin.token import read_token
from gateway.auth.ports import CLUSTER, Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.clock import ManualClock
from gateway.model import DEFAULT_NAMESPACE, TopicName
from tests.console.http_client import Browser
from tests.gateway.admin.kernel_with_admin import Setup, running_admin

FAST = ("auth.sha256_iterations=4096", "auth.sha512_iterations=4096")


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path, *FAST, "auth.failure_delay_ms=0") as found:
        yield found


async def add_users(setup: Setup) -> None:
    """Add the administrator ada, the operator otto, the viewer vera, and norma without rules."""
    users, rules = setup.kernel.authenticator, setup.kernel.authorizer
    assert isinstance(users, StoredUsers)
    assert isinstance(rules, RuleBook)
    for name in ("ada", "otto", "vera", "norma"):
        await users.add_user(name, f"{name}-secret")
    for name, operation in (("otto", Operation.ALTER), ("vera", Operation.DESCRIBE)):
        await rules.add_rules(
            [Rule(name, operation, ResourceType.CLUSTER, PatternKind.LITERAL, CLUSTER)]
        )


async def logged_in(setup: Setup, name: str) -> Browser:
    browser = Browser(setup.server)
    assert (await browser.log_in(name, f"{name}-secret")).status == 303
    assert (await browser.open()).status == 200
    return browser


async def test_this_machine_needs_no_login_while_there_are_no_users(setup: Setup) -> None:
    browser = Browser(setup.server)
    assert (await browser.get("/")).headers["location"] == "/console/overview"
    page = await browser.open()
    assert page.status == 200
    assert "admin" in page.text
    made = await browser.call("POST", "topics", {"name": "orders"})
    assert made.status == 201


async def test_a_session_without_a_login_ends_with_the_first_user(setup: Setup) -> None:
    browser = Browser(setup.server)
    await browser.open()
    assert (await browser.get("/v1/topics")).status == 200
    await add_users(setup)
    assert (await browser.get("/v1/topics")).status == 401
    assert (await browser.open()).headers["location"].startswith("/console/login")


@pytest.mark.parametrize(
    "headers",
    [{"x-forwarded-for": "203.0.113.7"}, {"host": "node-1:9644"}, {"forwarded": "for=1.2.3.4"}],
)
async def test_what_comes_by_a_proxy_must_log_in(setup: Setup, headers: dict[str, str]) -> None:
    page = await Browser(setup.server).open(**headers)
    assert page.headers["location"] == "/console/login?next=/console/overview"


async def test_the_token_opens_the_console(setup: Setup) -> None:
    await add_users(setup)
    browser = Browser(setup.server)
    assert (await browser.log_in("", "wrong")).status == 401
    assert (await browser.log_in("", read_token(setup.data_dir))).status == 303
    await browser.open()
    assert (await browser.get("/v1/users")).status == 200


async def test_the_cookie_is_hidden_from_scripts_and_other_sites(setup: Setup) -> None:
    cookie = (await Browser(setup.server).open()).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith(f"headgate_session_{setup.server.url.rpartition(':')[2]}=")


async def test_a_wrong_password_is_refused_and_counted(setup: Setup) -> None:
    await add_users(setup)
    browser = Browser(setup.server)
    answer = await browser.log_in("vera", "wrong")
    assert answer.status == 401
    assert "wrong user name or password" in answer.text
    assert setup.kernel.logins.refused["console"] == 1
    assert browser.cookies == {}


async def test_a_user_without_a_role_cannot_log_in(setup: Setup) -> None:
    await add_users(setup)
    answer = await Browser(setup.server).log_in("norma", "norma-secret")
    assert answer.status == 403
    assert "alter (operator) or describe (viewer)" in answer.text


@pytest.mark.parametrize(
    ("name", "statuses"),
    [("vera", (200, 403, 403)), ("otto", (200, 201, 403)), ("ada", (200, 201, 200))],
)
async def test_roles_bound_what_a_session_may_do(
    setup: Setup, name: str, statuses: tuple[int, int, int]
) -> None:
    await add_users(setup)
    browser = await logged_in(setup, name)
    found = (
        (await browser.get("/v1/topics")).status,
        (await browser.call("POST", "topics", {"name": "orders"})).status,
        (await browser.get("/v1/users")).status,
    )
    assert found == statuses


async def test_messages_need_the_right_to_the_topic(setup: Setup) -> None:
    await add_users(setup)
    for name in ("open", "shut"):
        await setup.kernel.topics.create(TopicName(DEFAULT_NAMESPACE, name))
    rules = setup.kernel.authorizer
    assert isinstance(rules, RuleBook)
    await rules.add_rules(
        [Rule("otto", Operation.ALL, ResourceType.TOPIC, PatternKind.LITERAL, "open")]
    )
    browser = await logged_in(setup, "otto")
    sent, search = {"value": "x"}, {"browse": True}
    assert (await browser.call("POST", "topics/open/records", sent)).status == 201
    assert (await browser.call("POST", "topics/open/find", search)).json["matches"]
    assert (await browser.call("POST", "topics/open/follow", {})).status == 200
    for path, body in (("records", sent), ("find", search), ("follow", {})):
        answer = await browser.call("POST", f"topics/shut/{path}", body)
        assert answer.status == 403
        assert "otto may not" in answer.json["message"]


async def test_the_config_and_what_decides_are_for_administrators(setup: Setup) -> None:
    await add_users(setup)
    question = "/v1/rules/explain?user={}&operation=alter&resource=cluster&name=kafka-cluster"
    for name in ("vera", "otto"):
        browser = await logged_in(setup, name)
        assert (await browser.get("/v1/config")).status == 403
        assert (await browser.get(question.format("vera"))).status == 403
        assert (await browser.get("/console/access")).status == 403
    ada = await logged_in(setup, "ada")
    keys = {one["key"]: one for one in (await ada.get("/v1/config")).json["keys"]}
    assert keys["node.data_dir"]["origin"] == "--set node.data_dir"
    assert keys["log.level"]["origin"] is None
    assert keys["auth.failure_delay_ms"]["is_default"] is False
    assert keys["node.insecure"]["is_default"] is True
    answers = {
        name: (await ada.get(question.format(name))).json
        for name in ("ada", "otto", "vera", "")
    }
    assert [answers[name]["allowed"] for name in answers] == [True, True, False, False]
    assert answers["ada"]["reason"] == "the user is an administrator"
    assert answers["otto"]["rules"][0]["operation"] == "alter"
    assert answers[""]["reason"] == "login is required"


async def test_no_session_may_write_files_by_a_backup(setup: Setup) -> None:
    browser = Browser(setup.server)
    await browser.open()
    answer = await browser.call("POST", "backup", {"target": "/nowhere"})
    assert answer.status == 403
    assert "needs the token" in answer.json["message"]


async def test_a_role_that_is_taken_away_ends_at_once(setup: Setup) -> None:
    await add_users(setup)
    browser = await logged_in(setup, "otto")
    rules = setup.kernel.authorizer
    assert isinstance(rules, RuleBook)
    await rules.delete_rules(list(rules.stored_rules()))
    assert (await browser.get("/v1/topics")).status == 403


async def test_a_new_password_ends_the_sessions_of_the_old_one(setup: Setup) -> None:
    await add_users(setup)
    browser = await logged_in(setup, "otto")
    users = setup.kernel.authenticator
    assert isinstance(users, StoredUsers)
    await users.add_user("otto", "another-secret")
    assert (await browser.get("/v1/topics")).status == 401


async def test_a_change_needs_the_csrf_token_of_its_session(setup: Setup) -> None:
    browser, other = Browser(setup.server), Browser(setup.server)
    await browser.open()
    await other.open()
    for token in ("", "wrong", other.csrf):
        answer = await browser.call("POST", "topics", {"name": "a"}, **{"x-csrf-token": token})
        assert answer.status == 403
        assert "CSRF" in answer.json["message"]
    assert setup.kernel.topics.topics() == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example.com"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_other_pages_can_neither_change_nor_read(
    setup: Setup, headers: dict[str, str]
) -> None:
    browser = Browser(setup.server)
    await browser.open()
    assert (await browser.call("POST", "topics", {"name": "a"}, **headers)).status == 403
    assert (await browser.get("/v1/topics", **headers)).status == 403
    assert (await browser.log_in("ada", "ada-secret", **headers)).status == 403


@pytest.mark.parametrize("path", ["/", "/console/overview", "/v1/topics", "/console/login"])
async def test_a_name_that_was_made_to_point_here_is_refused(setup: Setup, path: str) -> None:
    browser = Browser(setup.server)
    await browser.open()
    assert (await browser.get(path, host="evil.example.com")).status == 403


@pytest.mark.parametrize(
    "path",
    ["/console/overview", "/console/login", "/console/static/core.js", "/console/static/no.js"],
)
async def test_pages_load_nothing_from_elsewhere(setup: Setup, path: str) -> None:
    headers = (await Browser(setup.server).get(path)).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


async def test_static_files_are_checked_anew_and_sent_once(setup: Setup) -> None:
    browser = Browser(setup.server)
    first = await browser.get("/console/static/core.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = await browser.get(
        "/console/static/core.js", **{"if-none-match": first.headers["etag"]}
    )
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "app.py", "%2e%2e/templates/layout.html", "x/y.js", ""]
)
async def test_no_other_file_is_served(setup: Setup, path: str) -> None:
    assert (await Browser(setup.server).get(f"/console/static/{path}")).status == 404


@pytest.mark.parametrize(
    "target", ["//evil.example.com/console/", "https://evil.example.com", "/v1/topics", ""]
)
async def test_a_login_leads_to_the_console_only(setup: Setup, target: str) -> None:
    browser = Browser(setup.server)
    body = f"user=&password={read_token(setup.data_dir)}".encode()
    answer = await browser.request(
        "POST", f"/console/login?next={target}", headers={"origin": browser.origin}, body=body
    )
    assert answer.headers["location"] == "/console/overview"


async def test_text_of_a_request_never_becomes_markup(setup: Setup) -> None:
    await add_users(setup)
    answer = await Browser(setup.server).log_in("<b>&", "x")
    assert "&lt;b&gt;&amp;" in answer.text
    assert "<b>" not in answer.text


async def test_logging_out_needs_the_csrf_token_and_ends_the_session(setup: Setup) -> None:
    await add_users(setup)
    browser = await logged_in(setup, "vera")
    kept = dict(browser.cookies)
    headers = {"origin": browser.origin}
    assert (await browser.request("POST", "/console/logout", headers=headers)).status == 403
    form = f"csrf={browser.csrf}".encode()
    answer = await browser.request("POST", "/console/logout", headers=headers, body=form)
    assert answer.headers["location"] == "/console/login"
    browser.cookies = kept
    assert (await browser.get("/v1/topics")).status == 401


async def test_changes_are_audited_with_the_user_of_the_session(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    await add_users(setup)
    browser = await logged_in(setup, "otto")
    await browser.call("POST", "topics", {"name": "orders"})
    line = next(one for one in capsys.readouterr().out.splitlines() if "topic.create" in one)
    assert "otto" in line
    assert "console" in line


async def test_a_session_ends_when_it_is_idle_or_old(setup: Setup) -> None:
    clock = ManualClock()
    kernel = replace(setup.kernel, clock=clock)
    sessions = Sessions("secret", ())
    session_id, session = sessions.open("", "local", kernel)
    clock.advance(IDLE_MS_MAX)
    assert sessions.find(session_id, kernel) is session
    clock.advance(IDLE_MS_MAX + 1)
    assert sessions.find(session_id, kernel) is None
    session_id, session = sessions.open("", "local", kernel)
    for _ in range(AGE_MS_MAX // IDLE_MS_MAX):
        clock.advance(IDLE_MS_MAX)
        assert sessions.find(session_id, kernel) is session
    clock.advance(1)
    assert sessions.find(session_id, kernel) is None


async def test_sessions_are_bounded_and_the_least_used_goes(setup: Setup) -> None:
    sessions = Sessions("secret", ())
    ids = [sessions.open("", "local", setup.kernel)[0] for _ in range(SESSIONS_MAX)]
    sessions.find(ids[0], setup.kernel)
    sessions.open("", "local", setup.kernel)
    assert sessions.find(ids[0], setup.kernel) is not None
    assert sessions.find(ids[1], setup.kernel) is None
