# SPDX-License-Identifier: Apache-2.0
"""What the service says about itself: the start page, its schema, profiles, versions."""

from __future__ import annotations

import html
import json
import re

import pytest
from tests.server.bodies import mma, post, product

import mmaemu
from mmaemu import calls, profiles, wire
from mmaemu.testing import assert_bitwise_equal
from mmaemu_server import page, schemas
from mmaemu_server.problems import TITLES


def test_the_example_of_the_start_page_works_as_pasted(service):
    text = html.unescape(service.get("/").text)
    command = re.search(r"curl -s (\S+) -H '([^']*)' -d '([^']*)'", text)
    assert command
    url, header, body = command.groups()
    assert url == "http://testserver/v1/mma"
    name, _, value = header.partition(": ")
    reply = service.post(url, content=body, headers={name: value})
    wanted = calls.run(wire.call_from_json("mma", body.encode())).tensors["d"]
    assert_bitwise_equal(wire.reply_from_json(reply.content).tensors["d"], wanted)


def test_the_start_page_names_every_door(service):
    text = service.get("/").text
    for path in service.get("/openapi.json").json()["paths"]:
        assert path.partition("/{")[0] in text


def test_the_start_page_loads_nothing_and_runs_nothing(service):
    reply = service.get("/")
    assert "<script" not in reply.text and "src=" not in reply.text and "@import" not in reply.text
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")


def test_the_start_page_escapes_the_address_that_it_is_asked_by():
    assert "<script" not in page.render('http://a"><script>alert(1)</script>/')


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_pages_that_load_scripts_from_elsewhere_are_off(service, path):
    assert service.get(path).status_code == 404


def test_versions(service):
    assert service.get("/v1/version").json() == {"engine_version": mmaemu.__version__, "wire": 1}


def test_backends_come_with_reasons(service):
    found = service.get("/v1/backends").json()
    assert set(found) == set(mmaemu.backends_status())
    assert found["reference"]["available"] is True and all(status["reason"] for status in found.values())


def test_profiles_are_all_listed(service):
    found = service.get("/v1/profiles").json()
    assert [profile["name"] for profile in found["profiles"]] == profiles.names()
    assert found["default"] == profiles.default_name() and found["presets"] == profiles.preset_names()


@pytest.mark.parametrize("name", profiles.names())
def test_a_profile_is_shown_with_source_and_confidence(service, name):
    found = service.get(f"/v1/profiles/{name}").json()
    assert found["digest"] == profiles.get(name).digest
    facts = [fact for row in found["instructions"] for fact in row["facts"].values()]
    facts += (found["gemm"] or {}).values()
    assert facts and all(fact["confidence"] and fact["source"] and fact["meaning"] for fact in facts)


def test_the_schema_describes_what_the_wire_takes(service):
    known = service.get("/openapi.json").json()["components"]["schemas"]
    for op, operation in wire.OPERATIONS.items():
        described = set(known[schemas.CALLS[op][0].__name__]["properties"])
        assert described == {*operation.tensors, *operation.options}


def test_the_schema_names_every_problem(service):
    text = service.get("/openapi.json").text
    assert all(f"urn:mmaemu:problem:{code}" in text for code in TITLES)


def validator(service, name):
    jsonschema = pytest.importorskip("jsonschema")
    components = service.get("/openapi.json").json()["components"]
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


@pytest.mark.parametrize("op", schemas.CALLS)
def test_the_schema_accepts_its_own_example(service, op):
    validator(service, schemas.CALLS[op][0].__name__).validate(schemas.EXAMPLES[op])


@pytest.mark.parametrize("call", [product(), product(op="accumulate"), product(op="explain", cells=[[0, 0]]), mma()])
def test_the_schema_accepts_real_calls_and_replies(service, call):
    body, reply = schemas.CALLS[call.op]
    known = {name: bits for name, bits in call.tensors.items() if name in wire.OPERATIONS[call.op].tensors}
    sent = wire.call_to_json(wire.Call(call.op, known, call.options))
    validator(service, body.__name__).validate(json.loads(sent))
    answer = post(service, call, wire.JSON_TYPE).json()
    validator(service, reply.__name__).validate(answer)


def test_the_schema_accepts_a_real_problem(service):
    validator(service, "Problem").validate(post(service, product(profile="h9000")).json())


def test_the_request_id_comes_back(service):
    assert service.get("/healthz", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "<x>"])
def test_a_request_id_that_is_not_plain_is_replaced(service, given):
    found = service.get("/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", found)
