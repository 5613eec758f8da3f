//! Ways to a target: what is sent, and how it travels.

use seawall_load::plan::Travel;
use seawall_load::request::Request;

/// What a way is called, for those who read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name, of which there is no other.
    pub name: String,
    /// What it has different, in words.
    pub what: String,
}

/// A way, ready to be gone.
#[derive(Debug, Clone)]
pub struct Way {
    /// Sent in turn. Those that share a session with other ways have a variant each, so that they share no connection.
    pub requests: Vec<Request>,
    /// How they travel, if that takes a session of their own: such a way has the target alone while it is measured.
    pub apart: Option<Travel>,
}
