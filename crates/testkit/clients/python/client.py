"""What a Python program gets from the metadata server through google-auth: see ../README.md.

The library is used as its users use it; nothing about the server is patched in.
"""

import json
import sys
import time
import traceback

import google.auth
import google.auth.exceptions
import google.auth.transport.requests
from google.auth.compute_engine import _metadata
from google.oauth2 import id_token

PREFIX = "https://www.googleapis.com/auth/"

request = google.auth.transport.requests.Request()
found = {}


def credentials(scope="cloud-platform"):
    """What a machine without a key file has. A program that was refused asks again; one that was not keeps them."""
    if scope not in found:
        found[scope], _ = google.auth.default(scopes=[PREFIX + scope])
    return found[scope]


def project(_):
    return google.auth.default()[1]


def zone(_):
    return _metadata.get(request, "instance/zone")


def token(scope):
    credentials(scope).refresh(request)
    assert credentials(scope).valid
    return credentials(scope).token


def email(_):
    credentials().refresh(request)
    return credentials().service_account_email


def universe(_):
    return credentials().universe_domain


def identity(audience):
    return id_token.fetch_id_token(request, audience)


def say(**line):
    print(json.dumps(line), flush=True)


def ask(question, step, word):
    begun = time.monotonic()
    try:
        result = {"value": question(word)}
    # As a program that does not catch it shows it: with what it was raised from.
    except google.auth.exceptions.GoogleAuthError as error:
        result = {"error": "".join(traceback.format_exception_only(error))}
    say(step=step, milliseconds=int((time.monotonic() - begun) * 1000), **result)
    return "value" in result


say(step="begin")
for step in sys.argv[2:]:
    if step == "wait":
        say(step=step)
        sys.stdin.readline()
        continue
    name, _, word = step.removeprefix("until:").partition("=")
    tries = 20 if step.startswith("until:") else 1
    while not ask(globals()[name], step, word) and (tries := tries - 1):
        time.sleep(1)
