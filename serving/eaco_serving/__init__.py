"""Floor 5: the faces.

::

    schemas    wire models (pydantic), strict
    convert    wire <-> domain
    problems   every error as application/problem+json
    routes     the REST calls                     app       the application factory
    settings   one frozen BaseSettings            runner    the service as a process
    cli        the root command, composition root commands  one module a sub-command
    demo       the service started, asked and stopped
"""
