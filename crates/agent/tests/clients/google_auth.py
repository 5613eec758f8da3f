"""What a Python program gets from the metadata server that GCE_METADATA_HOST names, as one JSON object.

The library is used as its users use it; nothing about the server is patched in.
"""

import json
import sys

import google.auth
import google.auth.compute_engine
import google.auth.transport.requests
from google.auth.compute_engine import _metadata

audience = sys.argv[1]
request = google.auth.transport.requests.Request()

# What `google.auth.default()` does on a machine without a key file: ping, project id, credentials.
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(request)
identity = google.auth.compute_engine.IDTokenCredentials(
    request, target_audience=audience, use_metadata_identity_endpoint=True
)
identity.refresh(request)

json.dump(
    {
        "credentials": type(credentials).__name__,
        "project": project,
        "zone": _metadata.get(request, "instance/zone"),
        "token": credentials.token,
        "email": credentials.service_account_email,
        "universe": credentials.universe_domain,
        "valid": credentials.valid,
        "identity": identity.token,
    },
    sys.stdout,
)
