"""Read what other libraries have stored: steps of smolagents, notes of crewAI, mem0 and the MCP memory server."""
