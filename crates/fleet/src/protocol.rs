//! What a pod is told, and what it tells: a line of JSON each.
//!
//! [`PodCommand`]s come on a pod's standard input, [`PodReport`]s go to its standard output, which is its log. What exactly is done in a trial is the
//! command's: `W` is the work that it asks for, `P` a part of what comes of it while it goes on, `R` what came of it in the end. `attack`
//! knows one work, of which the parts are intervals; `find` has offers and experiments carried out, `isolate` segments.
//!
//! Instants are nanoseconds since the Unix epoch by the *pod's* clock, which whoever orders has compared with its own by [`PodCommand::Ping`].

use serde::{Deserialize, Serialize};

/// The version of these lines. Whoever orders refuses a pod that speaks another.
pub const VERSION: u32 = 2;

/// A pod that has heard nothing for so long ends its load and itself, in seconds: whoever orders is gone. It says something every second.
pub const HEARTBEAT_SECONDS: u64 = 10;

/// The variable by which a pod is told its place among the others, from 0: the one that Kubernetes sets in pods of an Indexed Job
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode>).
pub const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// Most bytes that a pod writes in a second of a load.
pub const LOG_BYTES_PER_SECOND: usize = 4096;

/// Most bytes of records that a pod tells of a trial, before they are in base64. What is beyond that is left out, whole records each, and
/// that is said at the end.
pub const MOST_RECORDS: usize = 4 << 20;

/// What a pod is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PodCommand<W> {
    /// Somebody is there; to be answered at once with [`PodReport::Pong`] of the same number.
    Ping(u64),
    /// Begin a trial.
    Begin(BeginTrial<W>),
    /// Steer the trial under way.
    Steer(ControlCommand),
    /// Send nothing more in the trial under way, and wait for answers; said again: end at once.
    Stop,
    /// There is nothing more to do: end.
    Leave,
}

/// A trial to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginTrial<W> {
    /// Its number, which stands in all that is told of it.
    pub trial: u64,
    /// The first instant of its schedule.
    pub at: i64,
    /// Which part of the schedule is this pod's, counted from 0, and of how many.
    pub shard: (u64, u64),
    /// What is to be done.
    pub work: W,
}

/// A command as `attack --control-socket` takes them, such as `rate 500/s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlCommand {
    /// The command.
    pub line: String,
    /// From when on in the run, in nanoseconds since its start: the same for all pods, so that their shards stay those of one schedule.
    pub from: u64,
}

/// What a pod tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PodReport<P, R> {
    /// It is there, its connections are warm, and it waits for a trial.
    Ready(PodReady),
    /// The answer to a ping.
    Pong(Pong),
    /// A trial has begun.
    Begun {
        /// Which.
        trial: u64,
        /// The first instant of its schedule.
        at: i64,
    },
    /// What came of a trial since the last part.
    Part {
        /// Of which.
        trial: u64,
        /// What.
        part: P,
        /// What speaks against this generator in this part: throttled by its quota, behind its schedule. Empty: nothing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        doubts: Vec<String>,
    },
    /// Records of a trial as its results are written, for who has asked for them and cannot reach a file of the pod's: the next bytes of
    /// them. No more than [`MOST_RECORDS`] come of a trial, and they may take more than [`LOG_BYTES_PER_SECOND`].
    Records {
        /// Of which.
        trial: u64,
        /// In base64.
        chunk: String,
    },
    /// A trial is over.
    Done {
        /// Which.
        trial: u64,
        /// What came of it.
        result: R,
    },
    /// What was ordered cannot be done, in words.
    Failed(String),
}

/// What a pod says of itself when it is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodReady {
    /// [`VERSION`] of its lines.
    pub protocol: u32,
    /// Of its program.
    pub version: String,
    /// Its place among the pods, from 0 ([`INDEX_VARIABLE`]).
    pub index: u64,
    /// Connections that stand.
    pub connections: usize,
    /// Cores that it may use, by its quota.
    pub cores: f64,
}

/// The answer to a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pong {
    /// The ping's number.
    pub ping: u64,
    /// When it was answered, by the pod's clock.
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
