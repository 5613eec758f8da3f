//! The table of Google's client libraries.

use super::{ClientLibrary, Program};

/// Whom its identity tokens are for.
pub const ID_TOKEN_AUDIENCE: &str = "https://shop.example";
const IDENTITY: &str = "identity=https://shop.example";

/// All of them, each with a scope that is its own, so that it meets the cloud by itself and not by a lease or a failure that another
/// one's request left behind.
pub const GOOGLE_LIBRARIES: [ClientLibrary; 7] = [
    ClientLibrary {
        name: "google-auth for Python",
        word: "google-auth",
        program: Program::Python,
        credentials_step: "token=pubsub",
        other_steps: &["project", "zone", "email", "universe", IDENTITY],
    },
    ClientLibrary {
        name: "google-auth for Java",
        word: "google-auth",
        program: Program::Java,
        credentials_step: "token=bigquery",
        other_steps: &["project", "email", "universe", IDENTITY],
    },
    ClientLibrary {
        name: "google-auth-library for Node",
        word: "google-auth-library",
        program: Program::Node,
        credentials_step: "token=datastore",
        other_steps: &["project", "email", IDENTITY],
    },
    ClientLibrary {
        name: "gcp-metadata for Node",
        word: "gcp-metadata",
        program: Program::Node,
        credentials_step: "token=logging.write",
        other_steps: &["on-gce", "project", "zone", IDENTITY],
    },
    ClientLibrary {
        name: "cloud.google.com/go/compute/metadata",
        word: "metadata",
        program: Program::Go,
        credentials_step: "token=monitoring",
        other_steps: &[
            "on-gce",
            "project",
            "numeric-project",
            "zone",
            "instance-name",
            "instance-id",
            "hostname",
            "attribute=cluster-name",
            "email=default",
            "scopes=default",
            "lives=monitoring",
            IDENTITY,
        ],
    },
    ClientLibrary {
        name: "cloud.google.com/go/auth",
        word: "auth",
        program: Program::Go,
        credentials_step: "token=spanner.data",
        other_steps: &["project", IDENTITY],
    },
    ClientLibrary {
        name: "golang.org/x/oauth2/google",
        word: "oauth2",
        program: Program::Go,
        credentials_step: "token=trace.append",
        other_steps: &["project"],
    },
];
