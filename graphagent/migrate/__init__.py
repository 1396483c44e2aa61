"""Read the stored data of other libraries: conversations of LangChain, pydantic-ai, the OpenAI Agents SDK and smolagents, notes of crewAI, mem0 and the MCP memory server."""
