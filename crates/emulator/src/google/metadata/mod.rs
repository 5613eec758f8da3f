//! The metadata server of a virtual machine.
//!
//! It serves the machine's own identity and the attributes of a cluster node, including secret ones, as the upstream of a concealing proxy.
//! It is lenient where the real server's behaviour is not published: it ignores case and resolves percent-encoding, repeated slashes and
//! dot segments. So a filter in front of it cannot rely on a strict upstream. (k8s-metadata-proxy sends lower-case paths, so the real
//! server ignores case, too: GoogleCloudPlatform/k8s-metadata-proxy `metadata/metadata.go`.)
//!
//! Formats: cloud.google.com/compute/docs/metadata/querying-metadata; salrashid123/gce_metadata_server `server.go`;
//! GoogleCloudPlatform/guest-agent `metadata/metadata.go`.

mod machine;
mod query;
mod server;
mod tree;

pub use machine::{GceMachine, SECRET_VALUE_MARKER};
pub(super) use query::percent_decoded;
pub(super) use server::{MetadataServer, with_metadata_headers};
