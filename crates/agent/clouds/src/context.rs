//! What a cloud is handed: the pod that it is to decide about, and what its dialects are made with.
//!
//! Knows no cloud, so that each can take these from whoever knows all of them.

use std::sync::Arc;

use seawall_core::events::Complainer;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Facts, Pod};
use seawall_server::upstream::long_polls::LongPolls;
use seawall_server::upstream::permits::Places;

/// A pod that is to be given what it may have.
pub struct Applicant<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What is told of it, as far as the clouds' sections asks.
    pub facts: &'a Facts,
    /// Its Kubernetes tokens.
    pub subject: &'a dyn Fn() -> Arc<dyn SubjectTokens>,
    /// Told when it is refused something.
    pub complainer: Complainer,
    /// Whether what it will ask for first is to be fetched before it asks.
    pub ahead: bool,
}

/// What a dialect on a traffic thread is made with.
#[derive(Debug)]
pub struct Tools {
    /// Long polls, bounded for all threads together.
    pub long_polls: LongPolls,
    /// Places at real metadata servers, which all threads share.
    pub places: Arc<Places>,
    /// Idle connections that a thread keeps to one of them.
    pub idle: usize,
}
