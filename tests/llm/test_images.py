"""What is accepted as an image, wherever one is passed in, and what is refused there."""

from __future__ import annotations

import base64
import copy
import io
import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Pillow

from graphagent import END, START, Agent, Strategy, node, tool
from graphagent.llm import Image, Message, ToolCall, ToolResult
from graphagent.llm._tools import call_tool
from graphagent.memory import ActionStep, RunMemory, TaskStep
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


def picture(mode="RGB"):
    return Pillow.new(mode, (2, 2))


def file_of(kind):
    file = io.BytesIO()
    picture().save(file, format=kind)
    return file.getvalue()


def cut_off():
    """Return an image of Pillow whose file ends too early, which shows when its pixels are needed."""
    file = io.BytesIO()
    Pillow.effect_noise((64, 64), 50).save(file, format="PNG")
    return Pillow.open(io.BytesIO(file.getvalue()[:500]))


KINDS = {f"image/{kind}": file_of(kind) for kind in ("png", "jpeg", "gif", "webp")}
PNG = KINDS["image/png"]
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo"
    path.write_bytes(KINDS["image/jpeg"])
    return path


@node
async def keep(ctx, task: str) -> str:
    return task


def keeping():
    return Agent(Strategy("keep", START >> keep >> END))


def started(images):
    return keeping().start("Look.", images=images).memory.steps[0].task_images


def assigned(images):
    step = ActionStep()
    step.observations_images = images
    return step.observations_images


def reassigned(images):
    step = TaskStep("Look.")
    step.task_images = images
    return step.task_images


ENTRANCES = {
    "Agent.start": started,
    "TaskStep": lambda images: TaskStep("Look.", task_images=images).task_images,
    "TaskStep.task_images": reassigned,
    "ActionStep": lambda images: ActionStep(observations_images=images).observations_images,
    "ActionStep.observations_images": assigned,
    "ToolResult": lambda images: ToolResult("1", "look", "", images=images).images,
}
everywhere = pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)


@everywhere
def test_every_form_of_an_image_becomes_an_image(entrance, photo):
    """Paths, Pillow's images, bytes of all kinds and URLs are accepted beside each other, in their order."""
    given = [
        str(photo), photo, picture(), PNG, bytearray(PNG), memoryview(PNG), DATA_URL, "https://example.org/a.png",
        "http://127.0.0.1/a.png", Image(b"any", "image/avif"),
    ]  # fmt: skip
    jpeg, png = Image(KINDS["image/jpeg"], "image/jpeg"), Image(PNG, "image/png")
    assert entrance(given) == (
        jpeg, jpeg, png, png, png, png, png, Image(url="https://example.org/a.png"), Image(url="http://127.0.0.1/a.png"),
        Image(b"any", "image/avif"),
    )  # fmt: skip


@everywhere
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ([PNG, 7], TypeError, r"\w+\[1\] is an int; an image is an Image, a path, bytes, an image of Pillow, or a 'data:'"),
        ([None], TypeError, r"\w+\[0\] is None; an image is"),
        ([b"GIF"], ValueError, r"\w+\[0\] is bytes that are no PNG, JPEG, GIF or WebP; convert it, or write Image\(data"),
        ([b""], ValueError, r"\w+\[0\] is bytes that are empty"),
        (["ftp://example.org/a.png"], ValueError, r"\w+\[0\] is a URL of the kind 'ftp'; servers load 'https:' URLs"),
        (["https:///a.png"], ValueError, r"\w+\[0\] is a URL without a host"),
        (["data:text/plain;base64,aGk="], ValueError, r"\w+\[0\] is a 'data:' URL of the media type 'text/plain', which"),
        (["data:image/png;base64,a"], ValueError, r"\w+\[0\] is a 'data:' URL without data that can be decoded"),
        (["data:image/png;base64"], ValueError, r"\w+\[0\] is a 'data:' URL without data"),
        (["data:;base64,aGk="], ValueError, r"\w+\[0\] is a 'data:' URL with data that is no PNG"),
        (["a" * 300], ValueError, r"\w+\[0\] is text of 300 characters, which is neither a URL nor a path; base64 is"),
        (["a\0b"], ValueError, r"\w+\[0\] is text of 3 characters, which is neither"),
        (["missing.png"], FileNotFoundError, r"\w+\[0\] cannot be read: No such file or directory: 'missing\.png'"),
        ([os.sep], OSError, r"\w+\[0\] cannot be read: Is a directory"),
        ("photo.png", TypeError, r"(\w+) is a list of images, not a str; write \1=\[image\]"),
        (PNG, TypeError, r"(\w+) is a list of images, not a bytes; write \1=\[image\]"),
        (Image(PNG), TypeError, r"(\w+) is a list of images, not an Image; write \1=\[image\]"),
        (picture(), TypeError, r"(\w+) is a list of images, not an Image; write \1=\[image\]"),
        (5, TypeError, r"(\w+) is a list of images, not an int; write \1=\[image\]"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_where_it_is_passed_in(entrance, given, error, said):
    """The error says which it is, what was given and what is accepted."""
    with pytest.raises(error, match=said):
        entrance(given)


@everywhere
def test_a_file_of_another_kind_is_refused(entrance, tmp_path):
    """The error names the file."""
    (tmp_path / "notes.txt").write_text("not an image")
    with pytest.raises(ValueError, match=r"\w+\[0\] is the file '.*notes\.txt', which is no PNG, JPEG, GIF or WebP"):
        entrance([tmp_path / "notes.txt"])


def test_no_images_are_none():
    """As in smolagents, None stands for no images."""
    assert TaskStep("Look.", task_images=None) == TaskStep("Look.")
    assert ActionStep(observations_images=None).observations_images == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_bytes_decide_the_media_type(kind):
    """A media type that is given counts more; bytes of an unknown kind pass for PNG in an Image alone."""
    assert Image(KINDS[kind]).media_type == kind
    assert Image(KINDS[kind], "image/x").media_type == "image/x"
    assert Image(b"unknown").media_type == "image/png"


def test_an_image_is_made_of_what_is_accepted_as_one(photo):
    """`Image(…)` accepts the same as every other place, and its parts can still be given by position."""
    assert Image(photo) == Image(str(photo)) == Image(KINDS["image/jpeg"], "image/jpeg")
    assert Image(picture()) == Image(DATA_URL) == Image(url=DATA_URL) == Image(PNG)
    assert Image("https://example.org/a.png") == Image(b"", "image/png", "https://example.org/a.png")
    assert Image(Image(PNG)) == Image(PNG)
    assert Image(photo, "image/x").media_type == "image/x"
    assert Image("data:image/svg+xml,%3Csvg/%3E") == Image(b"<svg/>", "image/svg+xml")
    for wrong in (5, None, {"a": 1}):
        with pytest.raises(TypeError, match=r"Image\(…\) is .*; an image is"):
            Image(wrong)
    with pytest.raises(TypeError, match="url=…\\) is text, not an int"):
        Image(url=5)
    with pytest.raises(FileNotFoundError, match=r"Image\(…\) cannot be read: .*: 'missing\.png'"):
        Image("missing.png")


def test_what_becomes_of_a_file_later_does_not_matter(photo):
    """It is read at once; so is an image of Pillow."""
    image, shown = Image(photo), picture()
    second = Image(shown)
    photo.unlink()
    shown.putpixel((0, 0), (255, 0, 0))
    assert image.data == KINDS["image/jpeg"]
    assert second == Image(PNG)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16", "CMYK", "YCbCr", "HSV", "LAB"])
def test_images_of_pillow_become_png_in_every_mode(mode):
    """A mode that PNG lacks is converted; the pixels of the others stay."""
    back = Pillow.open(io.BytesIO(Image(picture(mode)).data))
    assert (back.format, back.size) == ("PNG", (2, 2))


def test_an_image_of_pillow_that_cannot_be_saved_is_refused():
    """The error says which image, and what Pillow said."""
    with pytest.raises(ValueError, match=r"images\[0\] is an image of Pillow that cannot be saved as PNG: .*truncated"):
        started([cut_off()])


def test_an_image_is_immutable_and_does_not_show_its_data():
    """It can be compared, hashed, copied, pickled and replaced like any value."""
    image = Image(PNG)
    assert repr(image) == "Image(media_type='image/png', url='')"
    assert "iVBOR" not in repr(Image(url=DATA_URL))
    with pytest.raises(AttributeError):
        image.data = b""
    assert {image, Image(PNG), copy.copy(image), pickle.loads(pickle.dumps(image))} == {image}
    assert replace(image, media_type="image/x") == Image(PNG, "image/x")


def test_an_error_does_not_show_an_image():
    """Base64 without a header, and a URL that cannot be used, are not repeated."""
    for text in (base64.b64encode(bytes(3000)).decode(), f"data:image/png;base64,{'A' * 3001}"):
        with pytest.raises(ValueError, match="images") as caught:
            started([text])
        assert "AAAA" not in str(caught.value)


async def test_a_run_shows_images_of_every_form_to_the_model(photo):
    """They are read in a worker thread, while the event loop goes on, and sent with the task."""
    threads = []

    class Watched(type(photo)):
        def __fspath__(self):
            threads.append(threading.current_thread())
            return super().__fspath__()

    model = ScriptedModel(["A tram."])
    await Agent(single_run(), model=model).run("What is this?", images=(each for each in [Watched(photo), picture()]))
    assert model.requests[0].messages[0].images == (Image(photo), Image(PNG))
    assert threads
    assert threading.current_thread() not in threads


async def test_a_run_with_a_wrong_image_does_not_begin():
    """Nothing is executed."""
    model = ScriptedModel([])
    with pytest.raises(FileNotFoundError, match=r"images\[1\].*missing\.png"):
        await Agent(single_run(), model=model).run("What is this?", images=[PNG, "missing.png"])
    assert model.requests == []


def test_a_message_of_the_user_takes_images_of_every_form(photo):
    """Text stays text: a path in a message is a Path."""
    message = Message.user("What is", photo, "beside", picture(), b"GIF89a", "a.png?")
    assert message.images == (Image(photo), Image(PNG), Image(b"GIF89a", "image/gif"))
    assert message.text == "What isbesidea.png?"
    with pytest.raises(TypeError, match="part 2 of the message is an int"):
        Message.user("What is", 5)


@pytest.mark.parametrize(
    ("returned", "content", "images"),
    [
        (picture(), "(an image)", 1),
        (["Two:", picture(), Image(PNG), {"n": 2}], 'Two:\n{"n":2}', 2),
        ((picture(), picture()), "(2 images)", 2),
        ("photo.png", "photo.png", 0),
        (Path("photo.png"), '"photo.png"', 0),
        (b"abc", '"YWJj"', 0),
    ],
)
async def test_a_tool_may_return_images_of_pillow(returned, content, images):
    """Alone or beside text; a path, text and bytes are results like any other."""

    @tool
    async def look():
        """Look."""
        return returned

    result = await call_tool(look, ToolCall("look"))
    assert (result.is_error, result.content, result.images) == (False, content, (Image(PNG),) * images)
    assert result.value is returned


async def test_an_image_that_a_tool_returns_and_that_cannot_be_saved_is_an_error_for_the_model():
    """The model is told, and the run goes on."""

    @tool
    async def look():
        """Look."""
        return [cut_off()]

    result = await call_tool(look, ToolCall("look"))
    assert result.is_error
    assert "ValueError: the result is an image of Pillow that cannot be saved as PNG" in result.content


async def test_images_of_pillow_survive_the_journal(tmp_path):
    """From the task, a tool, a callback and a deferred result: a resumed run has the same, and so has a saved transcript."""

    @tool
    async def look() -> object:
        """Look."""
        return ["Here:", picture()]

    @tool(deferred=True)
    async def ask() -> object:
        """Ask for an image."""

    def show(step: ActionStep) -> None:
        if step.tool_calls and step.tool_calls[0].name == "look":
            step.observations_images = [*step.observations_images, picture()]

    def agent(model):
        store = SqliteStore(tmp_path / "runs.db")
        return Agent(single_run(), model=model, tools=[look, ask], store=store, step_callbacks=[show])

    model = ScriptedModel([ToolCall("look"), ToolCall("ask", id="c1"), "Done."])
    first = await agent(model).run("Look.", images=[picture()], run_id="r")
    assert first.status == "waiting"
    result = await agent(model).resume("r", results={"c1": ["It is", picture()]})
    image = Image(PNG)
    task, looked, asked, *_ = result.memory.steps
    assert (task.task_images, looked.observations_images, asked.observations_images) == (
        (image,),
        (image, image),
        (image,),
    )
    assert asked.observations == "It is"
    again = await agent(model).read("r")
    assert again.memory == result.memory
    assert RunMemory.from_json(result.memory.to_json()) == result.memory
    assert [len(part.images) for part in model.requests[2].messages[-1].parts] == [1]
