//! What the redirect has done, as metrics. The programs count for the node, and since they were attached, whatever agents came and went.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use seawall_redirect::{Counts, Standing};

use super::write::{counter, gauge};
use seawall_identity::redirect::Capture;

/// Writes it.
#[derive(Debug)]
pub struct CaptureCollector(pub Arc<Capture>);

impl Collector for CaptureCollector {
    /// What cannot be read is left out.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        if let Ok(is_target) = self.0.is_target() {
            let help = "Whether captured connections are sent to this agent";
            gauge(out, "seawall_redirect_target", help, if is_target { 1.0 } else { 0.0 })?;
        }
        if let Ok(standing) = self.0.attachment.standing() {
            let help = "Whether what this agent opened of the redirect is attached";
            let is_attached = standing == Standing::Same;
            gauge(out, "seawall_redirect_attached", help, if is_attached { 1.0 } else { 0.0 })?;
        }
        let help = "Connections from pods' addresses of which the kernel had noted nothing";
        counter(out, "seawall_redirect_unnoted_connections", help, self.0.noted.missed())?;
        self.0.counters.read().map_or(Ok(()), |counts| counted(out, &counts))
    }
}

fn counted(out: &mut DescriptorEncoder<'_>, counts: &Counts) -> Result<(), fmt::Error> {
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
    family(out, "seawall_redirect_connects", help, &connects)?;
    let notes = [("noted", counts.noted), ("ended", counts.ended), ("lost", counts.lost)];
    let help = "Connections noted for the agent, of these ended before it took them, and those that could not be noted";
    family(out, "seawall_redirect_notes", help, &notes)
}

fn family(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(&str, u64)],
) -> Result<(), fmt::Error> {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (outcome, count) in samples {
        ConstCounter::new(*count).encode(family.encode_family(&[("outcome", *outcome)])?)?;
    }
    Ok(())
}
