"""The web console: pages over a cluster, rocketlet's or Apache's, which it knows through the client alone.

It imports no server and no store. Needs the extra ``console`` (starlette, jinja2, uvicorn); nothing else imports this
folder before it is asked for.
"""
