//! A virtual machine's metadata server.
//!
//! Serves the machine's own identity and the attributes that a node of a cluster has, the secret ones included, to be
//! the upstream of a concealing proxy. It is lenient on purpose where the real one's manners are not published: paths
//! are compared without case, percent-encoding, repeated slashes and dot segments are resolved. A filter in front
//! of it must not owe its safety to a strict upstream. (k8s-metadata-proxy sends lower-cased paths, so the real
//! server ignores case, too: GoogleCloudPlatform/k8s-metadata-proxy `metadata/metadata.go`.)
//!
//! Formats: cloud.google.com/compute/docs/metadata/querying-metadata; salrashid123/gce_metadata_server `server.go`;
//! GoogleCloudPlatform/guest-agent `metadata/metadata.go`.

mod machine;
mod query;
mod server;
mod tree;

pub use machine::{CONCEALED, GceMachine};
pub(super) use query::percent_decoded;
pub(super) use server::{MetadataServer, dressed};
