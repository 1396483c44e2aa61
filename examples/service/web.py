"""The web application: it takes messages, tells what becomes of them, and has colleagues decide. Workers do the rest.

A gateway in front of it has checked who is there: it puts the customer into the header x-customer, and lets colleagues alone ask
for /questions. Everything is kept in the store, so a process that dies is nothing but a client that connects again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
from pydantic import BaseModel, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.service.agent import desk
from graphagent.errors import AnswerError, RunExistsError, RunNotFoundError, StoreError, ThreadFullError
from graphagent.work import RunHandle

SILENCE = 15.0
"""Seconds after which a stream says that it is still there: proxies cut silent connections, and a client that left is noticed."""
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # proxies pass on each event at once


class Message(BaseModel):
    id: str = Field(min_length=1)
    """Made by the client, so that a message that is sent again is the same one."""
    text: str


class Decision(BaseModel):
    customer: str
    message: str
    question: str
    answer: bool


def customer_of(request: Request) -> str:
    if customer := request.headers.get("x-customer"):
        return customer
    raise HTTPException(401, "the gateway names the customer in x-customer")


async def send(request: Request) -> Response:
    """POST /messages: have a message answered, after those that this customer sent before."""
    message = Message.model_validate_json(await request.body())
    handle = await desk.submit(message.text, run_id=message.id, owner=customer_of(request), thread="desk")
    return JSONResponse({"events": f"/messages/{handle.run_id}/events"}, 202)


async def follow(request: Request) -> Response:
    """GET /messages/ID/events: tell what becomes of a message. A client that was cut off continues after the last event it has."""
    handle = desk.handle(request.path_params["id"], owner=customer_of(request))
    seen = request.headers.get("last-event-id", "0")
    if seen == "end":
        return Response(status_code=204)  # an EventSource connects no more
    await handle.status()  # a message that does not exist is an error before anything is sent
    if request.method == "HEAD":  # of which the server sends no event, and would wait for the last one
        return Response(media_type="text/event-stream", headers=HEADERS)
    return StreamingResponse(told(handle, int(seen)), media_type="text/event-stream", headers=HEADERS)


async def told(handle: RunHandle[str], seen: int) -> AsyncIterator[str]:
    """Yield the events of a run until it is over, or waits: then the client comes back after the time of `retry`."""
    yield "retry: 2000\n\n"
    entries = handle.events()
    while True:
        entry = None
        with anyio.move_on_after(SILENCE) as scope:
            entry = await anext(entries, None)
        if scope.cancelled_caught:
            yield ": still there\n\n"
        elif entry is None:
            break
        elif entry.number > seen:
            yield event(entry.kind, {"node": entry.node or entry.where, "what": entry.key}, id=entry.number)
    result = await handle.result()
    if result.status == "waiting":
        yield event("waiting", {"questions": [each.question for each in result.questions], "until": str(result.due)})
    else:
        yield event(result.status, {"answer": result.output}, id="end")


def event(name: str, data: dict[str, Any], **fields: object) -> str:
    lines = [f"event: {name}", f"data: {json.dumps(data)}", *(f"{key}: {value}" for key, value in fields.items())]
    return "\n".join(lines) + "\n\n"


async def questions(request: Request) -> Response:
    """GET /questions: what waits for a colleague."""
    waiting = await desk.questions()
    return JSONResponse(
        [
            {
                "customer": each.owner, "message": each.run_id, "question": each.question.id, "text": each.question.question,
                "until": str(each.question.deadline),
            }
            for each in waiting
        ]
    )  # fmt: skip


async def decide(request: Request) -> Response:
    """POST /questions: answer one. It is refused if somebody has answered it, or its time is over."""
    decision = Decision.model_validate_json(await request.body())
    handle = desk.handle(decision.message, owner=decision.customer)
    await handle.answer(answers={decision.question: decision.answer})
    return Response(status_code=204)


async def health(request: Request) -> Response:
    """GET /health: this process answers. Whether the database does, is not for a restart of this process to change."""
    return PlainTextResponse("ok")


async def refused(request: Request, error: Exception, *, status: int) -> Response:
    return JSONResponse({"error": str(error)}, status)


STATUS: dict[type[Exception], int] = {
    ValidationError: 422, ValueError: 422, RunNotFoundError: 404, RunExistsError: 409, AnswerError: 409, ThreadFullError: 429,
    StoreError: 503,
}  # fmt: skip
app = Starlette(
    routes=[
        Route("/messages", send, methods=["POST"]),
        Route("/messages/{id}/events", follow),
        Route("/questions", questions),
        Route("/questions", decide, methods=["POST"]),
        Route("/health", health),
    ],
    exception_handlers={kind: partial(refused, status=status) for kind, status in STATUS.items()},
)
