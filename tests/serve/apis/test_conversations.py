"""OpenAI's conversations, by its own client and by plain HTTP."""

import openai
import pytest
from helpers.served import serving
from helpers.talking_model import ANSWER

RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"


@pytest.fixture(scope="module")
def client(talking):
    with openai.OpenAI(base_url=f"{talking.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def texts(items):
    return [item.content[0].text for item in items]


def test_responses_continue_a_conversation(client):
    conversation = client.conversations.create(metadata={"topic": "ships"})
    assert (conversation.object, conversation.metadata) == ("conversation", {"topic": "ships"})
    first = client.responses.create(model="any", input="Hello.", conversation=conversation.id)
    assert (first.conversation.id, first.output_text) == (conversation.id, ANSWER)
    second = client.responses.create(model="any", input="And now?", conversation={"id": conversation.id}, store=False)
    whole = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "And now?"},
    ]
    assert second.usage.input_tokens == client.responses.input_tokens.count(model="any", input=whole).input_tokens
    with client.responses.stream(model="any", input="Why?", conversation=conversation.id) as stream:
        assert stream.get_final_response().output_text == ANSWER
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    assert texts(items) == ["Hello.", ANSWER, "And now?", ANSWER, "Why?", ANSWER]
    newest = client.conversations.items.list(conversation.id, limit=1)
    assert (newest.data[0].id, newest.has_more, newest.last_id) == (items[-1].id, True, items[-1].id)


def test_items_are_added_found_and_removed(client):
    begun = [{"type": "message", "role": "user", "content": "One."}]
    conversation = client.conversations.create(items=begun)
    added = client.conversations.items.create(
        conversation.id, items=[{"role": "user", "content": [{"type": "input_text", "text": "Two."}]}]
    )
    [two] = added.data
    assert client.conversations.items.retrieve(two.id, conversation_id=conversation.id).content[0].text == "Two."
    assert client.conversations.items.delete(two.id, conversation_id=conversation.id).id == conversation.id
    assert texts(client.conversations.items.list(conversation.id)) == ["One."]
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(two.id, conversation_id=conversation.id)


def test_a_conversation_is_changed_and_deleted(client):
    conversation = client.conversations.create()
    changed = client.conversations.update(conversation.id, metadata={"a": "b"})
    assert client.conversations.retrieve(conversation.id) == changed
    assert changed.metadata == {"a": "b"}
    assert client.conversations.delete(conversation.id).deleted
    for gone in (
        lambda: client.conversations.retrieve(conversation.id),
        lambda: client.conversations.delete(conversation.id),
        lambda: client.conversations.items.list(conversation.id),
        lambda: client.responses.create(model="any", input="Hello.", conversation=conversation.id),
    ):
        with pytest.raises(openai.NotFoundError, match="There is no conversation"):
            gone()


def test_a_conversation_remembers_its_documents(talking):
    file = talking.read("april.txt", b"The keeper saw 90 ships in April. " * 20)
    made = talking.post(CONVERSATIONS)
    talking.post(RESPONSES, input="Hello.", conversation=made["id"], document=file["id"])
    again = talking.post(RESPONSES, input="And now?", conversation=made["id"])
    assert again["basis"]["kind"] == "document"
    assert again["usage"]["input_tokens_details"]["cached_tokens"] >= file["tokens"]


@pytest.mark.parametrize("name", ["conv_none", "../prompts", "conv_" + "0" * 32, ""])
def test_an_unknown_conversation_is_refused(talking, name):
    for conversation in (name, {"id": name}):
        status, error = talking.refused(RESPONSES, input="Hello.", conversation=conversation)
        assert (status, error["code"]) == (404, "not_found")


def test_one_thing_is_continued(talking):
    first = talking.post(RESPONSES, input="Hello.")
    made = talking.post(CONVERSATIONS)
    more = {"previous_response_id": first["id"], "conversation": made["id"]}
    status, error = talking.refused(RESPONSES, input="Hello.", **more)
    assert (status, error["param"]) == (400, "conversation")


def test_a_refused_turn_leaves_no_trace(talking):
    made = talking.post(CONVERSATIONS)
    assert talking.refused(RESPONSES, input="x" * 50_000, conversation=made["id"])[0] == 400
    assert talking.client.get(f"{CONVERSATIONS}/{made['id']}/items").json()["data"] == []


@pytest.mark.parametrize("content", ["{", '{"items": {}}', "[]"])
def test_conversations_outlive_the_server_and_a_damaged_one_can_be_deleted(tiny_model, tmp_path, content):
    with serving(tiny_model, tmp_path) as first:
        kept, damaged = (first.post(CONVERSATIONS, items=[{"role": "user", "content": "One."}]) for _ in range(2))
    [file] = tmp_path.rglob(f"{damaged['id']}.json")
    assert file.stat().st_mode & 0o77 == 0
    file.write_text(content)
    with serving(tiny_model, tmp_path) as second:
        [item] = second.client.get(f"{CONVERSATIONS}/{kept['id']}/items").json()["data"]
        assert item["content"] == [{"type": "input_text", "text": "One."}]
        answer = second.client.get(f"{CONVERSATIONS}/{damaged['id']}")
        assert (answer.status_code, "delete it" in answer.json()["error"]["message"]) == (500, True)
        assert second.client.delete(f"{CONVERSATIONS}/{damaged['id']}").json()["deleted"]
        assert second.client.get(f"{CONVERSATIONS}/{damaged['id']}").status_code == 404
