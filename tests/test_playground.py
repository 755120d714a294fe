"""The playground's files: served whole, kept by browsers, nothing from elsewhere."""

import re

import httpx
import pytest
from plotly.offline import get_plotlyjs

from server import ROOT, shared_client, shared_server

STATIC = ROOT / "service" / "static"
FILES = sorted(
    path.relative_to(STATIC).as_posix()
    for path in STATIC.rglob("*")
    if path.is_file() and path.suffix != ".html"
)


def page() -> str:
    return shared_client().get("/").text


def assets() -> str:
    """The folder that the page takes its files from."""
    found = re.search(r'"(/playground/[0-9a-f]{16}/)main.js"', page())
    assert found is not None
    return found[1]


def test_the_page_is_asked_for_again_and_not_sent_again() -> None:
    response = shared_client().get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["cache-control"] == "no-cache"
    again = shared_client().get("/", headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = shared_client().get("/", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize("name", FILES)
def test_its_files_are_served_and_kept(name: str) -> None:
    response = shared_client().get(assets() + name)
    assert response.content == (STATIC / name).read_bytes()
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_file_of_another_edition_is_served_but_not_kept() -> None:
    response = shared_client().get("/playground/0123456789abcdef/main.js")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["none.js", "index.html/", "../app.py", "%2e%2e/app.py", ""])
def test_nothing_else_is_served(name: str) -> None:
    response = httpx.get(f"{shared_server().url}{assets()}{name}")
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


def test_plotly_is_that_of_the_python_package() -> None:
    found = re.search(r'src="([^"]*plotly.min.js)"', page())
    assert found is not None
    response = shared_client().get(found[1])
    assert response.text == get_plotlyjs()
    assert "immutable" in response.headers["cache-control"]
    plain = shared_client().get(found[1], headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == response.content
    assert plain.headers["etag"] != response.headers["etag"]


def test_the_policy_lets_in_nothing_from_elsewhere_and_nothing_inline() -> None:
    response = shared_client().get("/")
    policy = response.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "style-src 'self'" in policy
    assert "unsafe-inline" not in response.headers["content-security-policy"]
    assert "unsafe-eval" not in response.headers["content-security-policy"]
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_another_site(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}


def test_the_page_names_no_other_site() -> None:
    assert "http" not in re.sub(r"127\.0\.0\.1", "", page())


def test_its_modules_are_a_screen_or_two() -> None:
    for name in FILES:
        assert len((STATIC / name).read_text(encoding="utf-8").splitlines()) <= 400
