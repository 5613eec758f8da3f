//! The query string: keys this dialect knows, each at most once, each value checked.

use std::borrow::Cow;
use std::time::Duration;

/// Longest a request is held. The real server holds without end when no `timeout_sec` is given; a bound costs a
/// watcher one spurious, documented reply ("current content after N seconds") every five minutes.
pub const MAX_HOLD: Duration = Duration::from_secs(300);

/// A long poll: answer when the content changes, or with the current content when the time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'b> {
    /// The tag of the content that the client has; `None` waits for the next change. May be any word (the guest
    /// agent sends `NONE`), which simply matches nothing.
    pub last_etag: Option<Cow<'b, str>>,
    /// How long to hold at most; never above [`MAX_HOLD`].
    pub timeout: Duration,
}
