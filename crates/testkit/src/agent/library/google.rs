//! The table of Google's client libraries.

use super::{Library, Program};

/// Whom its identity tokens are for.
pub const AUDIENCE: &str = "https://shop.example";
const IDENTITY: &str = "identity=https://shop.example";

/// All of them, each with a scope that is its own, so that it meets the cloud by itself and not by a lease or a failure that another
/// one's request left behind.
pub const GOOGLE: [Library; 7] = [
    Library {
        name: "google-auth for Python",
        word: "google-auth",
        program: Program::Python,
        credentials: "token=pubsub",
        also: &["project", "zone", "email", "universe", IDENTITY],
    },
    Library {
        name: "google-auth for Java",
        word: "google-auth",
        program: Program::Java,
        credentials: "token=bigquery",
        also: &["project", "email", "universe", IDENTITY],
    },
    Library {
        name: "google-auth-library for Node",
        word: "google-auth-library",
        program: Program::Node,
        credentials: "token=datastore",
        also: &["project", "email", IDENTITY],
    },
    Library {
        name: "gcp-metadata for Node",
        word: "gcp-metadata",
        program: Program::Node,
        credentials: "token=logging.write",
        also: &["on-gce", "project", "zone", IDENTITY],
    },
    Library {
        name: "cloud.google.com/go/compute/metadata",
        word: "metadata",
        program: Program::Go,
        credentials: "token=monitoring",
        also: &[
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
    Library {
        name: "cloud.google.com/go/auth",
        word: "auth",
        program: Program::Go,
        credentials: "token=spanner.data",
        also: &["project", IDENTITY],
    },
    Library {
        name: "golang.org/x/oauth2/google",
        word: "oauth2",
        program: Program::Go,
        credentials: "token=trace.append",
        also: &["project"],
    },
];
