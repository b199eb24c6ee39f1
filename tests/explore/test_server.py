"""Who the explorer answers, and with what: requests to the application, and the command in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from urllib.parse import urlencode

import pytest
from helpers.asgi import ask

import dpsieve as ds
from dpsieve.errors import InvalidValue
from dpsieve.explore import server
from dpsieve.explore.saved import Files

ADDRESS = "127.0.0.1:8765"
HOST = ("Host", ADDRESS)


@pytest.fixture
def session(tmp_path):
    return server.Session(Files(tmp_path))


@pytest.fixture
def app(session):
    made = server.application(session)
    yield made
    made.state.ahead.prepare(())  # nothing is made in the background of other tests


@pytest.fixture
def own(session):
    """The headers of the browser that brought the token."""
    return [HOST, ("Cookie", f"{session.cookie_name}={session.cookie}")]


def test_the_token_is_exchanged_for_a_cookie_once(app, session):
    first = ask(app, query=f"token={session.token}", headers=[HOST])
    assert first.status == 303 and first.headers["location"] == "/"
    name, value = re.match(
        r"([\w-]+)=([\w-]+); HttpOnly; Path=/; SameSite=strict", first.headers["set-cookie"]
    ).groups()
    again = ask(app, query="token=" + session.address.split("token=")[1], headers=[HOST])
    assert again.status == 403 and "set-cookie" not in again.headers
    assert ask(app, headers=[HOST, ("Cookie", f"{name}={value}")]).status == 200


def test_cookies_of_other_servers_of_this_machine_do_no_harm(app, session):
    """Cookies of a host are shared by its ports, and another page there may set any, also one of this name."""
    own = f"{session.cookie_name}={session.cookie}"
    for other in ('theme={"dark": true}', "a b", "x[1]=2", "\xe9=1", "=", "", 'a="', f"{session.cookie_name}=wrong"):
        assert ask(app, headers=[HOST, ("Cookie", f"{other}; {own}")]).status == 200, other
        assert ask(app, headers=[HOST, ("Cookie", f"{own}; {other}")]).status == 200, other


def test_without_the_secret_nothing_is_answered(app, session):
    cookies = [f"{session.cookie_name}={session.token}", f"{session.cookie_name}=", "other=1", "\x00;;=", ""]
    for path in ("/", "/views", "/views/plan", "/explore.js", "/nothing", "/histogram"):
        for cookie in cookies:
            answer = ask(app, path, headers=[HOST, ("Cookie", cookie)])
            assert answer.status == 403 and "printed" in answer.body
    for query in ("", "token=", "token=wrong", "token=wrong&token=" + session.token):
        assert ask(app, query=query, headers=[HOST]).status == 403
    assert ask(app, "/views", query=f"token={session.token}", headers=[HOST]).status == 403
    assert ask(app, query=f"token={session.token}", headers=[HOST]).status == 303, "the token is still good"


def test_other_hosts_origins_and_machines_are_refused(app, own):
    cookie = own[1]
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:80", "localhost:80", "127.0.0.1:8765.evil.example", "",
                 "localhost.:8765", "127.1:8765", "0.0.0.0:8765", "[::1]:8765", f"{ADDRESS}@evil.example"):  # fmt: skip
        assert ask(app, headers=[("Host", host), cookie]).status == 421, host
    assert ask(app, headers=[cookie]).status == 421
    assert ask(app, headers=[*own, HOST]).status == 421, "two hosts"
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:80"):
        assert ask(app, "/views", headers=[*own, ("Origin", origin)]).status == 403, origin
    for site in ("cross-site", "same-site"):
        assert ask(app, "/views", headers=[*own, ("Sec-Fetch-Site", site)]).status == 403
    for client in (("10.0.0.7", 1), ("8.8.8.8", 1), ("a name", 1), None):
        assert ask(app, headers=own, client=client).status == 403
    assert (
        ask(app, "/views", headers=[*own, ("Origin", f"http://{ADDRESS}"), ("Sec-Fetch-Site", "same-origin")]).status
        == 200
    )
    assert ask(app, headers=[("Host", "localhost:8765"), cookie], client=("::1", 1)).status == 200


def test_every_answer_has_the_headers_that_keep_others_out(app, own):
    for path, status in (("/", 200), ("/views", 200), ("/views/plan", 200), ("/explore.js", 200), ("/nothing", 404)):
        answer = ask(app, path, headers=own)
        assert answer.status == status
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store" and answer.headers["referrer-policy"] == "no-referrer"
    assert ask(app, "/", headers=[]).headers["x-content-type-options"] == "nosniff"


def test_other_methods_and_views_do_not_exist(app, own):
    for method in ("POST", "PUT", "DELETE"):
        assert ask(app, "/views/plan", method=method, headers=own).status == 405
    assert ask(app, "/histogram", headers=own).status == 405
    for path in ("/views/secrets", "/views/plan/", "/explore.js/", "/views/../explore.js", "//evil.example", "/../x"):
        assert ask(app, path, headers=own).status == 404, path


def asked(app, own, view, **values):
    answer = ask(app, f"/views/{view}", query=urlencode(values), headers=own)
    return answer.status, json.loads(answer.body)


def test_messages_name_inputs_as_the_page_does(app, own):
    for values, argument, words in [
        ({"epsilon": "much"}, "epsilon", "epsilon is not a number. Pass one such as epsilon 1."),
        ({"epsilon": "-1"}, "epsilon", "epsilon -1 is not between"),
        ({"max_keys_per_unit": "0"}, "max_keys_per_unit", "max keys per unit 0 is not between"),
        ({"max_keys_per_unit": "2.5"}, "max_keys_per_unit", "max keys per unit is not a whole number"),
        ({"method": "magic"}, "method", "method is not known"),
        ({"delta": ""}, "delta", "delta is blank"),
        ({"distinct_keys": "0"}, "distinct_keys", "distinct keys 0 is not between"),
        ({"histogram": "0"}, "histogram", "Choose its file again"),
        ({"exponent": "-1"}, "exponent", "exponent is not between"),
        ({"mistyped": "1"}, "mistyped", "mistyped is not an input of this view"),
    ]:
        status, answer = asked(app, own, "plan", **values)
        assert (status, answer["argument"]) == (400, argument) and words in answer["error"], answer
    assert asked(app, own, "budget")[1]["error"].startswith("ledger is none of those given")
    assert asked(app, own, "clients", rate="0.5", threshold="1")[0] == 400


def test_an_unexpected_error_says_nothing_of_its_message(app, own, monkeypatch):
    monkeypatch.setattr(Files, "release", lambda *_: 1 / 0)
    status, answer = asked(app, own, "published")
    assert status == 500 and answer["error"] == "internal error: ZeroDivisionError. Please report it."


def test_a_large_delta_is_warned_of_each_time(app, own):
    for _ in range(2):
        assert any("delta" in note for note in asked(app, own, "plan", delta="0.01", against="none")[1]["notes"])


def test_only_what_is_inside_of_the_folder_is_opened(app, own, tmp_path, session):
    made = ds.channels.optimal(1.0, 1e-8).release(["tea"], [500])
    made.save(tmp_path / "inside")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    made.save(outside)
    (tmp_path / "link").symlink_to(outside)
    assert asked(app, own, "published", release="inside")[0] == 200
    for name in (f"../{outside.name}", str(outside), "link", "inside/../../" + outside.name, "/etc", "../nothing"):
        status, answer = asked(app, own, "published", release=name)
        assert status == 400 and "is outside of the folder" in answer["error"], name
        assert asked(app, own, "published", release="inside", other=name)[0] == 400
    for name in ("nothing", "inside/release.json", "a\0b", "", "x" * 300, "x" * 5000):
        assert asked(app, own, "published", release=name)[0] == 400, name
    session.files.root = None
    assert "needs a folder" in asked(app, own, "published", release="inside")[1]["error"]


def test_a_histogram_is_sent_once_and_named(app, own):
    def send(body):
        return ask(app, "/histogram", method="POST", headers=own, body=body)

    sent = send(b"key,count\ntea,500\nmilk,1\nsugar,0\n")
    name = json.loads(sent.body)["histogram"]
    assert asked(app, own, "plan", histogram=name)[1]["tiles"][2][1] == "1" and sent.status == 200
    for body in (b"", b"tea,many\nmilk,few", b"1\n-2", b"0\n0", b"1.5\n2.5", b"\xff\xfe", b"9" * 14):
        assert send(body).status == 400, body
    assert send(b"1\n" * (server.LONGEST_UPLOAD // 2 + 1)).status == 413


def test_a_port_in_use_is_told(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidValue, match=r"port=\d+ cannot be used \(.*\). Pass port=0"):
            server.bind(taken.getsockname()[1])


def test_without_a_port_another_one_is_taken(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(server, "PORT", taken.getsockname()[1])
        with server.bind(None) as bound:
            assert bound.getsockname()[0] == "127.0.0.1" and bound.getsockname()[1] != server.PORT


def test_the_command_serves_until_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "dpsieve", "explore", tmp_path, "--port", "0", "--no-browser"]
    quiet = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=quiet) as process:
        try:
            host, token = re.search(r"http://(\S+)/\?token=(\S+)", process.stderr.readline()).groups()
            connection = HTTPConnection(host, timeout=30)
            connection.request("GET", f"/?token={token}")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 303 and "server" not in {name.lower() for name, _ in answer.getheaders()}
            cookie = {"Cookie": answer.getheader("Set-Cookie").split(";")[0]}
            for forged in (
                {"X-Forwarded-For": "127.0.0.1"},
                {"Origin": "null"},
                {"Host": f"127.1:{host.split(':')[1]}"},
            ):
                connection.request("GET", "/views", headers=forged)
                refused = connection.getresponse()
                assert refused.status in (403, 421) and b"explore" in refused.read()
            # No header of a proxy changes who asks.
            connection.request("GET", "/views", headers={**cookie, "X-Forwarded-For": "192.0.2.1"})
            assert set(json.loads(connection.getresponse().read())) >= {"plan", "budget"}
            process.send_signal(signal.SIGINT)
            connection.close()
            assert process.wait(30) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
