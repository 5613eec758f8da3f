//! Answers detection requests, with which client libraries check whether a metadata server exists.
//!
//! Refused and unidentified clients also get these answers, because a library sends the request once per process and remembers
//! a refusal until the process ends.
//!
//! The security argument: this module answers only the paths in [`ASKED`], from a tree without any project, zone or account.
//! The client learns only that this server uses Google's dialect. The headers of every refusal reveal the same fact. The agent
//! does not answer recursive reads and long polls here, because the response to a recursive read would also reveal entries
//! below these paths.
//!
//! Observed detection requests: Go's `metadata.OnGCE` and google-auth for Python and Java send `GET /`. gcp-metadata for Node
//! sends `GET /computeMetadata/v1/instance` and follows the redirect.

use seawall_http::RequestHead;

use super::federate::{MetadataTree, TreeResource, TreeResponse};
use super::node_metadata::NodeMetadata;
use seawall_http::path;

/// The paths that reveal only that this is a metadata server.
const ASKED: [&str; 5] = [
    "/",
    "/computeMetadata/",
    "/computeMetadata/v1/",
    "/computeMetadata/v1/instance",
    "/computeMetadata/v1/instance/",
];

/// The answers to detection requests, from an empty tree.
#[derive(Debug)]
pub struct DetectionResponder(MetadataTree);

impl Default for DetectionResponder {
    fn default() -> Self {
        Self(MetadataTree::for_workload(&NodeMetadata::default(), None))
    }
}

impl DetectionResponder {
    /// Returns the answer if the request is a well-formed detection request, and `None` otherwise.
    pub fn answer<'t, 'b>(&'t self, head: &RequestHead<'_, 'b>) -> Option<TreeResponse<'t, 'b>> {
        let target = path::canonicalise_target(head.target).ok()?;
        if !ASKED.contains(&target.path.as_str()) {
            return None;
        }
        let query = self.0.parse_request(head).ok().filter(|query| query.long_poll.is_none())?;
        match query.resource {
            TreeResource::WithoutCredential(text)
                if matches!(text.route_name(), "probe" | "listing" | "redirect") =>
            {
                Some(text)
            }
            TreeResource::WithoutCredential(_) | TreeResource::Credential(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use seawall_http::request::header_buffer;
    use seawall_http::{HeadLimits, Parsed, parse_request};

    use super::*;

    fn route(target: &str, headers: &str) -> Option<&'static str> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let mut room = header_buffer();
        let Ok(Parsed::Complete(head, _)) =
            parse_request(request.as_bytes(), &mut room, &HeadLimits::default())
        else {
            panic!("{request}")
        };
        DetectionResponder::default().answer(&head).map(|text| text.route_name())
    }

    const FLAVOR: &str = "Metadata-Flavor: Google\r\n";

    #[test]
    fn the_question_of_each_library_is_answered() {
        assert_eq!(route("/", ""), Some("probe"));
        assert_eq!(route("/computeMetadata/", ""), Some("probe"));
        assert_eq!(route("/computeMetadata/v1/instance", FLAVOR), Some("redirect"));
        assert_eq!(route("/computeMetadata/v1/instance/", FLAVOR), Some("listing"));
        assert_eq!(route("/computeMetadata/v1/", FLAVOR), Some("listing"));
    }

    #[test]
    fn what_no_library_asks_to_find_a_server_is_not_answered() {
        for target in [
            "/computeMetadata/v1/?recursive=true",
            "/computeMetadata/v1/instance/?recursive=true",
            "/computeMetadata/v1/instance/?wait_for_change=true",
            "/computeMetadata/v1/instance/service-accounts/",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            "/computeMetadata/v1/project/project-id",
            "/computeMetadata/v1/instance/zone",
            "/0.1/meta-data/",
        ] {
            assert_eq!(route(target, FLAVOR), None, "{target}");
        }
        assert_eq!(route("/computeMetadata/v1/instance/", ""), None, "without the flavour header");
        assert_eq!(route("/", "X-Forwarded-For: 10.0.0.1\r\n"), None, "proxied");
    }
}
