//! The protocol between the controller and a pod: one JSON document per line.
//!
//! [`PodCommand`]s come on a pod's standard input, and [`PodReport`]s go to its standard output, which is its log. The command defines the
//! content of a trial: `W` is the work, `P` a part of the results, and `R` the final result. `attack` has one work whose parts are
//! intervals. `find` sends trials and experiments, and `isolate` sends segments.
//!
//! Instants are Unix nanoseconds by the *pod's* clock. The controller compares that clock with its own by [`PodCommand::Ping`].

use serde::{Deserialize, Serialize};

/// The version of the protocol. The controller refuses a pod with another version.
pub const VERSION: u32 = 3;

/// The seconds of silence after which a pod ends its load and itself, because the controller is gone. The controller sends a line every
/// second.
pub const HEARTBEAT_TIMEOUT_SECONDS: u64 = 10;

/// The environment variable with a pod's index, from 0. Kubernetes sets it in pods of an Indexed Job
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode>).
pub const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The most bytes that a pod writes per second of a load.
pub const MAX_LOG_BYTES_PER_SECOND: usize = 4096;

/// The most bytes of records that a pod reports for a trial, before base64. Further records are left out as a whole, which the end of the
/// trial reports.
pub const MAX_RECORD_BYTES_PER_TRIAL: usize = 4 << 20;

/// An order to a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PodCommand<W> {
    /// A sign of life. The pod answers at once with [`PodReport::Pong`] and the same number.
    Ping(u64),
    /// Start a trial.
    Begin(BeginTrial<W>),
    /// Change the running trial.
    Steer(ControlCommand),
    /// Stop sending in the running trial and wait for responses. A second order ends the trial at once.
    Stop,
    /// End the program.
    Leave,
}

/// A trial to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginTrial<W> {
    /// The number of the trial, which all its reports carry.
    pub trial: u64,
    /// The first instant of the schedule.
    pub at: i64,
    /// The pod's shard of the schedule, counted from 0, and the number of shards.
    pub shard: (u64, u64),
    /// The work to do.
    pub work: W,
}

/// A command of `attack --control-socket`, such as `rate 500/s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlCommand {
    /// The command line.
    pub line: String,
    /// The time of the run at which the command takes effect, in nanoseconds since its start. It is the same for all pods, so that their
    /// shards still form one schedule.
    pub from: u64,
}

/// A report of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PodReport<P, R> {
    /// The pod is ready with warm connections and waits for a trial.
    Ready(PodReady),
    /// The answer to a ping.
    Pong(Pong),
    /// A trial has started.
    Begun {
        /// The number of the trial.
        trial: u64,
        /// The first instant of the schedule.
        at: i64,
    },
    /// The results of a trial since the last part.
    Part {
        /// The number of the trial.
        trial: u64,
        /// The part.
        part: P,
        /// The reasons to doubt this generator in this part, such as CPU throttling or a late schedule; usually empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        doubts: Vec<String>,
    },
    /// The next bytes of a trial's records, for a controller that cannot read the pod's files. A trial has at most
    /// [`MAX_RECORD_BYTES_PER_TRIAL`] bytes, and they may exceed [`MAX_LOG_BYTES_PER_SECOND`].
    Records {
        /// The number of the trial.
        trial: u64,
        /// The bytes in base64.
        chunk: String,
    },
    /// A trial has ended.
    Done {
        /// The number of the trial.
        trial: u64,
        /// The result.
        result: R,
    },
    /// The pod cannot carry out an order, for this reason.
    Failed(String),
}

/// The description of a pod that is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodReady {
    /// The [`VERSION`] of the pod's protocol.
    pub protocol: u32,
    /// The version of the pod's program.
    pub version: String,
    /// The index of the pod, from 0 ([`INDEX_VARIABLE`]).
    pub index: u64,
    /// The number of open connections.
    pub connections: usize,
    /// The cores that the pod may use, by its quota.
    pub cores: f64,
}

/// The answer to a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pong {
    /// The number of the ping.
    pub ping: u64,
    /// The time of the answer, by the pod's clock.
    pub at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_read_as_they_were_written() {
        let orders = [
            (PodCommand::Ping(7), r#"{"ping":7}"#),
            (PodCommand::Stop, r#""stop""#),
            (
                PodCommand::Begin(BeginTrial { trial: 1, at: 5, shard: (0, 4), work: () }),
                r#"{"begin":{"trial":1,"at":5,"shard":[0,4],"work":null}}"#,
            ),
            (
                PodCommand::Steer(ControlCommand { line: "rate 5/s".into(), from: 9 }),
                r#"{"steer":{"line":"rate 5/s","from":9}}"#,
            ),
        ];
        for (order, line) in orders {
            assert_eq!(serde_json::to_string(&order).unwrap(), line);
            assert_eq!(serde_json::from_str::<PodCommand<()>>(line).unwrap(), order);
        }
        let told: PodReport<u8, u8> = PodReport::Part { trial: 1, part: 2, doubts: vec![] };
        assert_eq!(serde_json::to_string(&told).unwrap(), r#"{"part":{"trial":1,"part":2}}"#);
    }
}
