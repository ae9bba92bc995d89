"""Requests made from the page's own OpenAPI, right and wrong ones: every answer is one that the schema names."""

import functools
import tempfile
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from apps.web_fixtures import write_assets
from sensewise.apps.web.app import DOWNLOADS, create_app
from sensewise.apps.web.recorder import Recorder

OPERATIONS = [("/api/catalog", "GET"), ("/api/images", "GET"), ("/api/acquire", "POST"), ("/api/pixel", "POST")]
OPERATIONS += [(f"/api/{name}", "POST") for name in ("stream", *DOWNLOADS)]
RIGHT, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
TRIALS = [(path, method, mode) for path, method in OPERATIONS for mode in (RIGHT, WRONG)]
TRIALS.remove(("/api/catalog", "GET", WRONG))  # it takes nothing that could be wrong
EXAMPLES = [20, pytest.param(2000, marks=pytest.mark.slow)]


@functools.cache
def schema():
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(write_assets(Path(folder)))
        recorder.warm_up()
        for exhibit in recorder.exhibits.values():
            exhibit.warm_up()  # loaded before the folder goes
    app = create_app(recorder, hosts=("testserver", "localhost"))

    @app.get("/openapi.json", include_in_schema=False)
    async def served() -> dict:
        return app.openapi()

    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_every_operation_is_tried():
    found = {(operation.ok().path, operation.ok().method.upper()) for operation in schema().get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("path", "method", "mode"), TRIALS)
def test_answers_are_as_the_schema_says(path, method, mode, examples):
    operation = schema()[path][method]

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case):
        answer = case.call()
        others = {"positive_data_acceptance"}  # an order may fit the schema and name no prior
        if answer.status_code == 413:
            others.add("negative_data_rejection")  # which does not know that code
        case.validate_response(answer, excluded_checks=[CHECKS.get_one(name) for name in others])

    try_one()
