"""The live page: `sensewise serve`. Needs the extra `web` (FastAPI and uvicorn)."""
