"""Give each protected function of the shop to one framework, which calls it twice.

`python -m tests.system.frameworks.program FRAMEWORK` prints the answers and what has run, as JSON.
Only the environment of these tests has the frameworks.
"""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.system.frameworks import shop

ORDER = 0  # pydantic-ai's model for tests knows no other number
ARGUMENTS = {"order": ORDER}


async def fastmcp(function: Any) -> list[Any]:
    from fastmcp import Client, FastMCP

    server = FastMCP("shop")
    server.tool(function)
    async with Client(server) as client:
        return [(await client.call_tool(function.__name__, ARGUMENTS)).data for _ in range(2)]


async def mcp(function: Any) -> list[Any]:
    from mcp import Client
    from mcp.server import MCPServer

    server = MCPServer("shop")
    server.tool()(function)
    async with Client(server) as client:
        found = [await client.call_tool(function.__name__, ARGUMENTS) for _ in range(2)]
    return [one.content[0].text for one in found]


async def openai_agents(function: Any) -> list[Any]:
    from agents import function_tool
    from agents.tool_context import ToolContext

    tool = function_tool(function)
    text = json.dumps(ARGUMENTS)
    calls = [
        ToolContext(None, tool_name=tool.name, tool_call_id=f"{number}", tool_arguments=text)
        for number in range(2)
    ]
    return [await tool.on_invoke_tool(call, text) for call in calls]


async def langchain(function: Any) -> list[Any]:
    from langchain_core.tools import tool

    made = tool(function)
    return [await made.ainvoke(ARGUMENTS) for _ in range(2)]


async def pydantic_ai(function: Any) -> list[Any]:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    agent = Agent(TestModel(), tools=[function])
    said = [(await agent.run("Do it.")).output for _ in range(2)]
    return [json.loads(one)[function.__name__] for one in said]


async def apscheduler(function: Any) -> list[Any]:
    from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    scheduler = AsyncIOScheduler()
    ended: asyncio.Queue[Any] = asyncio.Queue()
    scheduler.add_listener(ended.put_nowait, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    scheduler.start()
    for _ in range(2):
        scheduler.add_job(function, kwargs=ARGUMENTS, misfire_grace_time=None)
    found = [await ended.get() for _ in range(2)]
    scheduler.shutdown()
    return [repr(one.exception) if one.exception else one.retval for one in found]


async def cloudpickle(function: Any) -> list[Any]:
    """Call it as Dask and joblib do, which pickle what they send to their workers."""
    from cloudpickle import dumps, loads

    found = []
    for _ in range(2):
        made = loads(dumps(function))(ORDER)
        found.append(await made if asyncio.iscoroutine(made) else made)
    return found


FRAMEWORKS: dict[str, Callable[[Any], Any]] = {
    one.__name__: one
    for one in (fastmcp, mcp, openai_agents, langchain, pydantic_ai, apscheduler, cloudpickle)
}


async def main(name: str) -> None:
    """Print the answers of each function by its name, and what has run."""
    answers = {one.__name__: await FRAMEWORKS[name](one) for one in shop.EVERY}
    sys.stdout.write(json.dumps({"answers": answers, "ran": shop.ran}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
