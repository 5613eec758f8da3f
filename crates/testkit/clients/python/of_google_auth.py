"""What google-auth is asked."""

import google.auth
import google.auth.exceptions
import google.auth.transport.requests
from google.auth.compute_engine import _metadata
from google.oauth2 import id_token

PREFIX = "https://www.googleapis.com/auth/"

# What a program that catches nothing would end with.
Refused = google.auth.exceptions.GoogleAuthError

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
