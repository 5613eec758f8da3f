//! Conceal mode: which requests may go on to the real metadata server.

use std::borrow::Cow;

use seawall_wire::RequestHead;

use super::query::Hold;
use crate::Refusal;

/// A request that may be sent upstream: built anew from what was understood, never the client's own bytes.
///
/// Send it with `Metadata-Flavor: Google` and no other header of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward<'b> {
    /// Canonical path and query.
    pub target: Cow<'b, str>,
    /// Whether the method is HEAD; otherwise it is GET.
    pub head_only: bool,
    /// Set when upstream will hold the request; the deadline of the upstream call must allow for it.
    pub hold: Option<Hold<'b>>,
    /// Which kind of resource is asked for; a word from a closed set, for metrics.
    pub route: &'static str,
}

/// Decides whether a request may go upstream, and in which words.
///
/// # Errors
/// The rule that forbids it.
pub fn admit<'b>(_head: &RequestHead<'_, 'b>) -> Result<Forward<'b>, Refusal> {
    Err(Refusal::new(403, "unknown_path", "This path is not served to pods."))
}
