//! The output of a pod: one report per line on standard output, from any thread.

use std::io::{Write as _, stdout};

use seawall_fleet::protocol::PodReport;
use serde::Serialize;

/// Writes lines, one after the other.
#[derive(Debug, Default)]
pub(super) struct PodOutput;

impl PodOutput {
    /// Writes a report. A closed output is not an error here: the absence of orders ends the pod.
    pub(super) fn send<P: Serialize, R: Serialize>(&self, told: &PodReport<P, R>) {
        let Ok(mut line) = serde_json::to_vec(told) else { return };
        line.push(b'\n');
        // The lock of standard output keeps lines apart.
        let mut out = stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    /// Reports an error and its reason.
    pub(super) fn send_failure(&self, why: String) {
        self.send(&PodReport::<(), ()>::Failed(why));
    }
}
