//! What a pod tells: one line each on standard output, whoever of it has something to say.

use std::io::{Write as _, stdout};

use seawall_fleet::protocol::PodReport;
use serde::Serialize;

/// Writes lines, one after the other.
#[derive(Debug, Default)]
pub(super) struct PodOutput;

impl PodOutput {
    /// Tells something. That nobody hears it any more is no error of what is told: the silence of orders ends a pod.
    pub(super) fn send<P: Serialize, R: Serialize>(&self, told: &PodReport<P, R>) {
        let Ok(mut line) = serde_json::to_vec(told) else { return };
        line.push(b'\n');
        // The lock of standard output keeps lines apart.
        let mut out = stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    /// Tells that something cannot be done, and why.
    pub(super) fn send_failure(&self, why: String) {
        self.send(&PodReport::<(), ()>::Failed(why));
    }
}
