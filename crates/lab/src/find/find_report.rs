//! The report of one run of `find`. Its fields are the keys of the JSON document that `find --json` writes.
//!
//! Keys and values are an interface; SPECIFICATION.md lists them. Increase [`FIND_VERSION`] when a key goes or changes its meaning.
//! Rates are requests per second. Ratios are between 0 and 1. Times are seconds.
//! The report holds everything that [`super::resume`] needs to continue the run and that [`super::compare`] needs to compare two runs.
//! It holds no secret: the target's URL has no user, password or query, and headers, bodies and certificates are short digests.
//! The screen, the page and the JSON document all show this report and read nothing else.

use serde::{Deserialize, Serialize};

/// The version of this document that this program reads and writes.
pub const FIND_VERSION: u32 = 1;

/// The report of one run of `find`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindReport {
    /// The kind of the document: always `find`. It tells this document from those of other commands.
    pub kind: FindDocumentKind,
    /// The version of this document: [`FIND_VERSION`].
    pub version: u32,
    /// The outcome of the run.
    pub outcome: FindOutcome,
    /// The reason why the run ended early; none if it did everything.
    pub stop_reason: Option<FindStopReason>,
    /// The reason why `outcome` is `undecided`, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided_reason: Option<String>,
    /// Experiments and trials that the budget left no time for, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_run: Vec<String>,
    /// The configuration of the run.
    pub config: FindConfig,
    /// The highest rate that this machine can generate.
    pub generator_capacity: GeneratorCapacity,
    /// The cliff: the rate above which too many requests fail, or requests in flight grow without bound.
    pub breaking_rate: ReportedLimit,
    /// The knee: the rate above which too many responses are late. Empty if the SLO has no latency objective.
    pub latency_breaking_rate: ReportedLimit,
    /// The way in which the target fails above the breaking rate.
    pub failure_mode: Option<ReportedFailureMode>,
    /// Correct responses per second in overload.
    pub goodput: Option<f64>,
    /// Requests of a burst allowance, beyond its refill. The search used them up before the trials that count.
    pub burst_requests: Option<f64>,
    /// The quota that the target exhausted during a trial.
    pub quota_exhaustion: Option<ReportedQuotaExhaustion>,
    /// The largest burst allowance that the trials were too short to find.
    pub untested_burst: Option<ReportedUnexcludedBurst>,
    /// The target's recovery from overload.
    pub recovery: ReportedRecovery,
    /// The result of `find --closed-loop`, in place of both breaking rates; none if the run searched for a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoopResult>,
    /// The most probable cause of the limit; none if the run did not look for a cause.
    pub cause: Option<ReportedCause>,
    /// Causes that the target shows in addition to `cause`.
    pub other_causes: Vec<ReportedCause>,
    /// Groups of causes that fit equally well, and how to tell them apart.
    pub ambiguous_causes: Vec<ReportedTie>,
    /// Causes that the experiments ruled out.
    pub excluded_causes: Vec<ReportedExcludedCause>,
    /// Causes that the experiments neither showed nor ruled out.
    pub undecided_causes: Vec<ReportedUndecidedCause>,
    /// The last experiment that got a response, if the target has stopped answering since.
    ///
    /// None if the target still answers, or if the run did not check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_lost_during: Option<String>,
    /// The experiments that look for the cause, in the order in which they ran.
    pub experiments: Vec<ReportedExperiment>,
    /// The target's own metrics while its clients missed the SLO, in order.
    #[serde(default)]
    pub server_metrics: Vec<ServerSideWindow>,
    /// All trials, and all load between them, in order.
    pub trials: Vec<ReportedTrial>,
    /// The time budgets that the search got, in order. A continued run must get the same budgets again.
    pub budget_log: Vec<BudgetGrant>,
    /// The duration of the whole run, pauses and experiments included. A continued run adds up all its parts.
    pub duration_seconds: f64,
}

/// The `kind` of the document that `find --json` writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindDocumentKind {
    /// The report of one run of `find`.
    #[default]
    Find,
}

/// The configuration of a run. `find` continues a run only with the same configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindConfig {
    /// The URL of the first target, without user, password and query.
    pub target: String,
    /// The number of targets.
    pub target_count: usize,
    /// The SLO whose limit the run looks for.
    pub slo: ReportedGoal,
    /// `quick` or `thorough`.
    pub effort: String,
    /// The spacing of requests.
    pub arrivals: ReportedArrivals,
    /// The highest rate that the run may offer; none if there is no bound.
    pub max_rate: Option<f64>,
    /// The use of connections.
    pub connections: ConnectionPolicy,
    /// The timeout of each request; none if requests have no timeout.
    pub timeout_seconds: Option<f64>,
    /// The fingerprint of the requests and their route; none if it is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_fingerprint: Option<RequestFingerprint>,
}

/// A fingerprint of the requests that a run sends and of their route. A continued run must have the same fingerprint.
///
/// Digests have 32 bits: enough to notice a change, too few to find out a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFingerprint {
    /// The place to which connections go instead of the target's own address; none if they go to that address.
    ///
    /// Examples: "at /run/app.sock", "through the proxy a:3128".
    pub via: Option<String>,
    /// The digest of the client certificate; none if there is no certificate.
    pub certificate_digest: Option<String>,
    /// The digest of all requests: their URLs, headers and bodies.
    pub requests_digest: String,
    /// Flags that change how requests reach the target or how they are sent, in words.
    pub settings: String,
}

/// The SLO whose limit a run looks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedGoal {
    /// The highest ratio of failed requests that meets the SLO.
    pub max_error_ratio: f64,
    /// The latency objective; none if the SLO is about errors alone.
    pub latency: Option<ReportedLatencyGoal>,
}

/// A latency objective: `p99 < 250 ms` has a `max_late_ratio` of 0.01 and a `limit_seconds` of 0.25.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedLatencyGoal {
    /// The highest ratio of late responses, of all scheduled requests.
    pub max_late_ratio: f64,
    /// The response time above which a response is late, from the scheduled send.
    pub limit_seconds: f64,
}

/// The spacing of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedArrivals {
    /// The interval between two requests is constant.
    Constant,
    /// Requests arrive at random, as those of many independent users.
    Poisson,
}

/// The way in which a run uses connections. Another policy has another limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionPolicy {
    /// True if requests reuse connections.
    pub keep_alive: bool,
    /// The highest number of connections; none if there is no bound.
    pub max_connections: Option<u64>,
    /// The number of requests after which the run closes a connection; none if there is no bound.
    pub requests_per_connection: Option<u64>,
    /// `http/1.1`, `h2` if TLS negotiates it, or `h2c`.
    pub protocol: String,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindOutcome {
    /// The limit lies between two tested rates.
    Found,
    /// The limit lies between two tested rates, and the target does not recover from overload by itself.
    Metastable,
    /// The target met the SLO up to the highest allowed rate or number of clients.
    NoLimitFound,
    /// The generator was the limit: it could not offer more, or its delays made the trials invalid.
    GeneratorLimited,
    /// The target misses the SLO even at very low load, so no rate is its limit.
    UnstableBaseline,
    /// The target stopped answering during the search and did not come back.
    TargetDied,
    /// A signal or the budget ended the run before the limit lay between two tested rates.
    Interrupted,
    /// The trials contradict each other, or do not show between which tested rates the limit lies.
    Undecided,
}

/// The reason why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindStopReason {
    /// A signal, or the button on the live page.
    Signal,
    /// The time budget.
    Budget,
    /// The search used all of its own time, and its trials do not agree on a limit.
    Inconclusive,
}

/// The highest rate that this machine can generate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratorCapacity {
    /// The highest rate; none if it was not measured, and each trial is checked by itself.
    pub max_rate: Option<f64>,
    /// The method by which the highest rate was measured, in words.
    pub method: String,
}

/// The trials' result for one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedLimit {
    /// The lower bound of the bracket, which holds the limit with 97 % credibility.
    ///
    /// None if the trials do not support a bracket.
    pub lower: Option<f64>,
    /// The upper bound of the bracket.
    pub upper: Option<f64>,
    /// The best estimate of the limit, within the bracket.
    pub estimate: Option<f64>,
    /// The highest rate with a good trial.
    pub highest_good_rate: Option<f64>,
    /// The duration of the longest trial at `highest_good_rate` that was not bad.
    pub held_seconds: Option<f64>,
    /// The lowest rate with a bad trial.
    pub lowest_bad_rate: Option<f64>,
}

/// The result of a search for a number of clients. Each client waits for its response before it sends again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedLoopResult {
    /// The highest number of clients that the search may keep busy.
    pub max_clients: u32,
    /// The mean response time of a single client; none if it got no correct response.
    pub service_time_seconds: Option<f64>,
    /// The highest number of clients at which the target meets the SLO.
    pub client_limit: ReportedMaxClients,
    /// The rate that more clients do not raise; none before the first trial.
    pub saturation: Option<ReportedSaturationPoint>,
}

/// The trials' result for the highest number of clients at which the target meets the SLO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedMaxClients {
    /// The lower bound of the bracket, which holds the limit with 97 % credibility.
    ///
    /// None if the trials do not support a bracket. 0 if even one client is too many.
    pub lower: Option<u32>,
    /// The upper bound of the bracket.
    pub upper: Option<u32>,
    /// The best estimate of the limit, within the bracket.
    pub estimate: Option<u32>,
    /// The highest number of clients with a good trial.
    pub most_good_clients: Option<u32>,
    /// The duration of the longest trial with `most_good_clients` that was not bad.
    pub held_seconds: Option<f64>,
    /// The lowest number of clients with a bad trial.
    pub fewest_bad_clients: Option<u32>,
}

/// The rate that more clients do not raise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedSaturationPoint {
    /// Correct responses per second.
    pub rate: f64,
    /// The standard deviation of `rate`.
    pub standard_deviation: f64,
    /// The lowest tested number of clients that got 95 % of `rate`.
    pub clients: u32,
    /// The highest tested number of clients below `clients` that got less than 95 % of `rate`.
    pub highest_unsaturated_clients: Option<u32>,
    /// The number of clients that Little's law gives: `rate` times the response time of a single client.
    pub littles_law_clients: f64,
    /// True if twice as many clients as `clients` got no more. Otherwise more clients may get more.
    pub is_confirmed: bool,
}

/// The way in which a target fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedFailureMode {
    /// Responses stay fast, and some requests fail at once.
    Rejecting,
    /// Responses stay fast, and some requests get no response.
    Hanging,
    /// Responses become slow, and some requests fail.
    BoundedQueue,
    /// Responses become slow.
    Queueing,
    /// The target stops answering whenever it gets this rate.
    Crashing,
}

/// A quota that the target exhausted: it did more at first than it could sustain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedQuotaExhaustion {
    /// The number of requests before the target slowed down.
    pub after_requests: f64,
    /// Correct responses per second from then on.
    #[serde(rename = "goodput")]
    pub goodput_after_exhaustion: f64,
}

/// A burst allowance that the run cannot exclude, because its trials were too short.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedUnexcludedBurst {
    /// The rate that the target sustained.
    pub rate: f64,
    /// The time during which the target sustained `rate` without a pause.
    pub held_seconds: f64,
    /// The number of requests in that time. A larger burst allowance would hide the limit.
    pub requests: f64,
}

/// The target's recovery from overload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedRecovery {
    /// The longest time after an overload until single requests were fast again.
    pub time_seconds: Option<f64>,
    /// True if the target sustains the same rate after an overload as before; none if that was not tested, or if the overload
    /// left no queue.
    pub is_recovered: Option<bool>,
    /// The queue that the overload left, in seconds of work; none if there was no overload.
    pub queue_seconds: Option<f64>,
}

/// A possible cause of the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedCause {
    /// The cause, such as `rate-limiter`.
    pub name: String,
    /// A score between 0 and 1 for how well the cause fits. It is not a calibrated probability.
    pub score: f64,
    /// The evidence for the cause, the strongest first.
    pub evidence: Vec<ReportedEvidence>,
    /// Estimated parameters of the cause, such as the size of a token bucket.
    pub estimates: Vec<ReportedEstimate>,
}

/// One piece of evidence for a cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedEvidence {
    /// The result of the experiment, in words.
    pub observation: String,
    /// The experiment that showed it.
    pub experiment: String,
    /// The ratio of the observation's probability under this cause to its probability under the next best cause.
    ///
    /// None if the ratio has no bound.
    pub likelihood_ratio: Option<f64>,
}

/// An estimated parameter of a cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedEstimate {
    /// The parameter, such as `bucket`.
    pub name: String,
    /// The value; none if it is not a finite number.
    pub value: Option<f64>,
    /// The unit of the value, such as `requests/s`; empty for a plain number.
    pub unit: String,
}

/// Causes that this run cannot tell apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedTie {
    /// The causes.
    pub causes: Vec<String>,
    /// Advice on how to tell the causes apart, in words.
    pub how_to_tell: String,
}

/// A cause that the experiments ruled out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedExcludedCause {
    /// The cause.
    pub name: String,
    /// The observation that rules the cause out, in words.
    pub reason: String,
}

/// A cause that the experiments neither showed nor ruled out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedUndecidedCause {
    /// The cause.
    pub name: String,
    /// The reason why the cause is undecided, in words.
    pub reason: String,
    /// True if `--max-rate` ruled out the experiments that would decide.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_higher_max_rate: bool,
}

/// An experiment on the cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedExperiment {
    /// The name of the experiment.
    pub name: String,
    /// The result of the experiment, in words.
    pub result: String,
}

/// A period for which the run read the target's own metrics, at its start and at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSideWindow {
    /// The start of the first reading, counted from the start of this part of the run.
    pub start_seconds: f64,
    /// The end of the last reading, counted from the start of this part of the run.
    pub end_seconds: f64,
    /// The trial or experiment that ran meanwhile, in words.
    pub phase: String,
    /// The facts that the metrics showed.
    pub facts: Vec<ServerSideFact>,
    /// Metrics that could not be read, and why.
    pub unavailable: Vec<String>,
}

/// Something that the target's metrics showed. A fact that concerns several causes appears once for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSideFact {
    /// The fact, in words.
    pub text: String,
    /// The cause that the fact concerns; none if the fact speaks for no cause.
    pub cause: Option<String>,
    /// The ratio of the fact's probability with this cause to its probability without this cause. A ratio below 1 speaks against the cause.
    pub likelihood_ratio: Option<f64>,
    /// True if the text lists counters that did not rise: such a fact only excludes causes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unchanged: bool,
}

/// The verdict of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedVerdict {
    /// The target met the SLO, and requests in flight did not grow.
    Good,
    /// The target missed the SLO, or requests in flight grew.
    Bad,
    /// The sample is too small to say.
    Undecided,
    /// The generator disturbed the trial, so its results say nothing about the target.
    Invalid,
}

/// One trial, or one load between trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedTrial {
    /// The purpose of the load. [`super::report_builder::purpose_name`] lists the values.
    pub purpose: String,
    /// The offered rate. In a closed loop, the rate at which requests completed.
    pub rate: f64,
    /// The number of clients in a closed loop; none if the trial offered a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// The start of the trial, counted from the start of the search. Pauses count.
    pub start_seconds: f64,
    /// The duration of the trial. Waiting for outstanding responses counts.
    pub duration_seconds: f64,
    /// The verdict of this trial alone.
    pub verdict: ReportedVerdict,
    /// The reason for the verdict, in words.
    pub reason: String,
    /// The way in which the target failed; none if it did not fail.
    pub failure_mode: Option<ReportedFailureMode>,
    /// The weight of the trial in the breaking rate, between 0 and 1.
    pub weight: f64,
    /// Correct responses per second, after the first moments of the trial.
    pub goodput: f64,
    /// The ratio of failed requests to completed requests, after the first moments of the trial.
    pub error_ratio: f64,
    /// The most frequent kind of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_failure: Option<ReportedTopFailure>,
    /// Response times of correct responses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_seconds: Option<ReportedResponseTimes>,
    /// The ratio of late responses, after the first third of the trial; none if that is unknown for all of them.
    pub late_ratio: Option<f64>,
    /// The reason why the results of the trial say nothing about the target; none if they do.
    pub invalid_reason: Option<String>,
    /// The delay of this machine, in words, if it was large but the verdict does not depend on it. The blocks then count requests from
    /// their real send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_delay: Option<String>,
    /// Requests that found no free ephemeral port, if that made the trial invalid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub port_exhaustions: u64,
    /// True if the target refused or dropped every connection at the end of the trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_target_down: bool,
    /// True if a signal cut the trial short.
    pub is_interrupted: bool,
    /// The counts of each block: a fifteenth of a second.
    pub blocks: Vec<ReportedBlock>,
}

/// The most frequent kind of failure in a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedTopFailure {
    /// The kind of failure, in words.
    pub kind: String,
    /// The ratio of these failures to all failures.
    pub ratio: f64,
}

/// Response times of the correct responses in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedResponseTimes {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The counts of one block, as an array of eight numbers because a trial has hundreds of blocks.
///
/// In order: requests sent; correct responses; failed requests; requests now known to be in time; requests now known to be late;
/// requests in flight at the end of the block; the sum of the response times of the correct responses; the longest of these times.
pub type ReportedBlock = (u32, u32, u32, u32, u32, u32, f64, f64);

/// The time budgets of a search from a given trial on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetGrant {
    /// The number of trials before these budgets applied.
    pub after_trials: usize,
    /// The time for the breaking rate, since the start of the search.
    pub breaking_rate_seconds: f64,
    /// The additional time for the latency breaking rate.
    pub latency_breaking_rate_seconds: f64,
}

impl FindReport {
    /// Returns the JSON document that `find --json` writes: one line with a line break at its end.
    ///
    /// # Errors
    /// Serialisation failed. No report is known for which it does.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text + "\n")
    }

    /// Returns true if requests never failed, and the run found the rate above which responses are late.
    #[must_use]
    pub fn is_latency_limit(&self) -> bool {
        self.is_found()
            && self.closed_loop.is_none()
            && self.breaking_rate.lowest_bad_rate.is_none()
            && self.latency_breaking_rate.lowest_bad_rate.is_some()
    }

    /// Returns true if the limit lies between two tested rates, so that a bracket may be shown.
    #[must_use]
    pub fn is_found(&self) -> bool {
        matches!(self.outcome, FindOutcome::Found | FindOutcome::Metastable)
    }
}

impl ReportedTrial {
    /// Returns the mean response time of the correct responses, in seconds; none without any.
    #[must_use]
    pub fn mean_response_seconds(&self) -> Option<f64> {
        let (good, sum) = self
            .blocks
            .iter()
            .fold((0.0, 0.0), |(good, sum), block| (good + f64::from(block.1), sum + block.6));
        (good > 0.0).then(|| sum / good)
    }

    /// Returns the longest response time of the correct responses, in seconds; none without any.
    #[must_use]
    pub fn max_response_seconds(&self) -> Option<f64> {
        self.blocks.iter().map(|block| block.7).reduce(f64::max).filter(|slowest| *slowest > 0.0)
    }

    /// Returns how long the trial sent requests, in seconds.
    ///
    /// Unlike `duration_seconds` this excludes the wait for outstanding responses.
    #[must_use]
    pub fn sending_seconds(&self) -> f64 {
        self.blocks.len() as f64 * seawall_search::observation::BLOCK_SECONDS
    }

    /// Returns the number of requests that the trial sent.
    #[must_use]
    pub fn sent_requests(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.0)).sum()
    }

    /// Returns the highest number of requests in flight at the end of a block.
    #[must_use]
    pub fn max_in_flight(&self) -> u32 {
        self.blocks.iter().map(|block| block.5).max().unwrap_or(0)
    }

    /// Returns true if the trial tested its rate. Loads that drain a burst allowance or wait for recovery do not.
    #[must_use]
    pub fn tests_rate(&self) -> bool {
        !matches!(self.purpose.as_str(), "burst-drain" | "recovery-probe") && !self.blocks.is_empty()
    }

    /// Returns true if the trial counts for the breaking rate.
    #[must_use]
    pub fn has_weight(&self) -> bool {
        self.weight > 0.1
    }
}
