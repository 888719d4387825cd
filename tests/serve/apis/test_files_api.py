"""The list of files, in pages and by purpose, as OpenAI's clients ask for it."""

import openai
import pytest


@pytest.fixture(scope="module")
def files(talking):
    """Ids of three documents."""
    texts = {f"paged_{number}.txt": f"Page {number} of the log. " * 20 for number in range(3)}
    return [talking.read(name, text.encode())["id"] for name, text in texts.items()]


def ids(page):
    return [each["id"] for each in page["data"]]


def test_pages_follow_one_another_in_both_orders(talking, files):
    every = talking.client.get("/v1/files").json()
    assert set(files) <= set(ids(every))
    assert (every["first_id"], every["last_id"], every["has_more"]) == (ids(every)[0], ids(every)[-1], False)
    for order, whole in (("desc", ids(every)), ("asc", ids(every)[::-1])):
        found, after = [], {}
        while page := ids(
            answer := talking.client.get("/v1/files", params={"order": order, "limit": 2, **after}).json()
        ):
            found, after = [*found, *page], {"after": page[-1]}
            assert answer["has_more"] == (found != whole)
        assert found == whole
    with openai.OpenAI(base_url=f"{talking.url}/v1", api_key="none") as client:
        assert [file.id for file in client.files.list(limit=1)] == ids(every)


def test_a_page_comes_before_a_file(talking, files):
    every = ids(talking.client.get("/v1/files").json())
    before = talking.client.get("/v1/files", params={"before": every[-1], "limit": 1}).json()
    assert (ids(before), before["has_more"]) == ([every[-2]], True)


@pytest.mark.parametrize(("purpose", "listed"), [("user_data", True), ("assistants", True), ("batch", False)])
def test_files_serve_the_purposes_of_documents(talking, files, purpose, listed):
    found = ids(talking.client.get("/v1/files", params={"purpose": purpose}).json())
    assert (set(files) <= set(found), bool(found)) == (listed, listed)


@pytest.mark.parametrize(
    "parameters", [{"limit": "0"}, {"limit": "-1"}, {"limit": "many"}, {"order": "newest"}, {"after": "x"}]
)
def test_wrong_parameters_are_refused(talking, parameters):
    answer = talking.client.get("/v1/files", params=parameters)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(parameters)))
