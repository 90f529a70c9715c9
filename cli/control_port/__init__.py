"""The control port of ``rocketlet up --control-port``: the test fixture over HTTP, for tests in any language.

    requests, answers   what is said in JSON
    operations          what is done with the fixture
    routes              the table of both: which address is which operation
    openapi             the table as an OpenAPI document
    app, server         HTTP

It needs the extra ``control`` (starlette, uvicorn); nothing imports this folder before it is asked for.
"""
