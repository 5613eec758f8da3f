//! Writes the redirect's counters as metrics. The counters of the eBPF programs start when the agent attaches the programs. They
//! continue across agent restarts.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use seawall_identity::redirected_connections::RedirectHandle;
use seawall_redirect::{AttachmentState, RedirectCounts};

use super::write::{write_counter, write_counter_family, write_gauge};

/// Writes the redirect's metrics. Omits each metric whose value the agent cannot read.
///
/// # Errors
/// The encoder fails.
pub fn write(capture: &RedirectHandle, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if let Ok(is_target) = capture.is_target() {
        let help = "1 if the redirect sends captured connections to this agent";
        write_gauge(out, "seawall_redirect_targets_this_agent", help, if is_target { 1.0 } else { 0.0 })?;
    }
    if let Ok(standing) = capture.attachment.check_pins() {
        let help = "1 if the redirect that this agent opened is attached";
        let is_attached = standing == AttachmentState::Unchanged;
        write_gauge(out, "seawall_redirect_attached", help, if is_attached { 1.0 } else { 0.0 })?;
    }
    let help = "Connections from pod addresses without an eBPF connection record; the agent refuses these connections, because it cannot prove which pod opened them";
    write_counter(out, "seawall_redirect_connections_without_record", help, capture.records.missed_count())?;
    capture.ebpf_counters.read().map_or(Ok(()), |counts| counted(out, &counts))
}

fn counted(out: &mut DescriptorEncoder<'_>, counts: &RedirectCounts) -> fmt::Result {
    let (four, six) = (&counts.connect4, &counts.connect6);
    let connects = [
        ("captured", four.captured + six.captured),
        ("direct", four.to_agent_address + six.to_agent_address),
        ("exempt", four.from_agent + six.from_agent),
        ("node_network", four.node_network + six.node_network),
        ("no_agent", four.no_agent + six.no_agent),
        ("unidentified_pod", four.unidentified_pod + six.unidentified_pod),
        ("unsupported_port", four.unsupported_port + six.unsupported_port),
        ("too_many_waiting", four.too_many_waiting + six.too_many_waiting),
        ("unresponsive_agent", four.unresponsive_agent + six.unresponsive_agent),
        ("no_family", four.no_family + six.no_family),
    ];
    let help = "Connects of this node's pods to metadata addresses, by outcome; the kernel refused all connects except captured, direct, exempt and node_network";
    write_counter_family(out, "seawall_redirect_connects", help, connects.map(of_outcome))?;
    let records =
        [("stored", counts.recorded), ("closed_early", counts.closed_early), ("dropped", counts.unrecorded)];
    let help = "Connection records of the kernel, by outcome: stored; closed_early: the connection closed before the agent accepted it; dropped: the kernel could not store the record";
    write_counter_family(out, "seawall_redirect_connection_records", help, records.map(of_outcome))
}

fn of_outcome((outcome, count): (&'static str, u64)) -> ([(&'static str, &'static str); 1], u64) {
    ([("outcome", outcome)], count)
}
