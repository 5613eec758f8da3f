//! The redirect's counters as metrics. The eBPF programs count for the node since they were attached, across agent restarts.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use seawall_identity::redirect::RedirectHandle;
use seawall_redirect::{AttachmentState, RedirectCounts};

use super::write::{counter, counters, gauge};

/// Writes the redirect's metrics and omits those that it cannot read.
///
/// # Errors
/// The encoder fails.
pub fn write(capture: &RedirectHandle, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if let Ok(is_target) = capture.is_target() {
        let help = "Whether captured connections are sent to this agent";
        gauge(out, "seawall_redirect_target", help, if is_target { 1.0 } else { 0.0 })?;
    }
    if let Ok(standing) = capture.attachment.state() {
        let help = "Whether what this agent opened of the redirect is attached";
        let is_attached = standing == AttachmentState::Unchanged;
        gauge(out, "seawall_redirect_attached", help, if is_attached { 1.0 } else { 0.0 })?;
    }
    let help = "Connections from pods' addresses of which the kernel had noted nothing";
    counter(out, "seawall_redirect_unnoted_connections", help, capture.noted.missed_count())?;
    capture.counters.read().map_or(Ok(()), |counts| counted(out, &counts))
}

fn counted(out: &mut DescriptorEncoder<'_>, counts: &RedirectCounts) -> fmt::Result {
    let (four, six) = (&counts.connect4, &counts.connect6);
    let connects = [
        ("captured", four.captured + six.captured),
        ("direct", four.direct + six.direct),
        ("exempt", four.exempt + six.exempt),
        ("no_agent", four.no_agent + six.no_agent),
        ("no_pod", four.no_pod + six.no_pod),
        ("no_service", four.no_service + six.no_service),
    ];
    let help =
        "Connects of this node's pods to metadata addresses, by what became of them; no_* were refused";
    counters(out, "seawall_redirect_connects", help, connects.map(of_outcome))?;
    let notes = [("noted", counts.recorded), ("ended", counts.ended), ("lost", counts.lost)];
    let help = "Connections noted for the agent, of these ended before it took them, and those that could not be noted";
    counters(out, "seawall_redirect_notes", help, notes.map(of_outcome))
}

fn of_outcome((outcome, count): (&'static str, u64)) -> ([(&'static str, &'static str); 1], u64) {
    ([("outcome", outcome)], count)
}
