//! What a run of `find` came to: plain data, and at the same time its JSON form.
//!
//! The names of fields and of their values are an interface (SPECIFICATION.md lists them): a field that goes or changes its meaning
//! makes the next [`SCHEMA`]. Rates are requests a second, times seconds, shares between 0 and 1. Complete enough that a run can be
//! continued ([`super::resume`]) and two compared ([`super::compare`]), and without a secret: of what is sent it holds the target's URL
//! without user, password and query, and of headers, bodies and certificates no more than short digests. Whoever shows a run reads this and nothing else.

use serde::{Deserialize, Serialize};

/// The version of this form.
pub const SCHEMA: u32 = 1;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// How it ended.
    pub outcome: FindOutcome,
    /// What ended it before it had done all that it wanted to; none: nothing.
    pub cut: Option<FindStopReason>,
    /// What there was no time left for, in words, where the budget ended it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What was asked, and of whom.
    pub asked: FindConfig,
    /// What the generator can do.
    pub generator: GeneratorCapacity,
    /// Where errors are too many or what is in flight grows.
    pub cliff: ReportedLimit,
    /// Where answers are too late; nothing in it where nothing was said of latency.
    pub knee: ReportedLimit,
    /// How it fails above the cliff.
    pub fails: Option<ReportedFailureMode>,
    /// Good answers a second in overload.
    pub goodput: Option<f64>,
    /// An allowance that was spent before the trials that count: requests beyond the fill.
    pub burst: Option<f64>,
    /// What it could do at first and then no more.
    pub depletion: Option<ReportedQuotaExhaustion>,
    /// What the lengths of the trials do not exclude.
    pub allowance: Option<ReportedUnexcludedBurst>,
    /// After overload.
    pub recovery: ReportedRecovery,
    /// What a search for a number of clients found, in place of cliff and knee; none: rates were searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<ClosedLoopResult>,
    /// The likeliest cause; none: nobody looked for it.
    pub cause: Option<ReportedCause>,
    /// Causes that hold at the same time.
    pub also: Vec<ReportedCause>,
    /// Causes that fit as well, and what would tell.
    pub ties: Vec<ReportedTie>,
    /// Causes that do not hold, and how that was found out.
    pub excluded: Vec<ReportedExcludedCause>,
    /// Causes of which nothing can be said, and why.
    pub untested: Vec<ReportedUndecidedCause>,
    /// The last experiment of which anything was answered, where the target answers nothing any more; none: it does, or nobody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
    /// What was tried for the cause, in order.
    pub experiments: Vec<ReportedExperiment>,
    /// What the target said of itself while clients missed something, in order; what is read may be from before it was asked.
    #[serde(default)]
    pub server_side: Vec<ServerSideWindow>,
    /// All trials of rates and what was sent between them, in order.
    pub trials: Vec<ReportedTrial>,
    /// Time that the search was granted, in order: what a continued run must grant it again.
    pub grants: Vec<BudgetGrant>,
    /// Everything together, rests and causes included; in a continued run that of all its parts.
    pub took: f64,
}

/// What was asked, and of whom: runs of which this differs are not continued.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindConfig {
    /// The first target without user, password and query.
    pub target: String,
    /// How many there are.
    pub targets: usize,
    /// What it is held to.
    pub goal: ReportedGoal,
    /// `quick` or `thorough`.
    pub profile: String,
    /// How requests are spaced.
    pub arrivals: ReportedArrivals,
    /// Highest rate that might be offered.
    pub max_rate: Option<f64>,
    /// What becomes of connections.
    pub connections: ConnectionPolicy,
    /// How long an answer may take; none: for ever.
    pub timeout: Option<f64>,
    /// What was sent, and which way; none: it was written by a version that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<RequestFingerprint>,
}

/// What decides who answers and what is asked of them, beside the URL. Digests are short on purpose: they tell a change, and are no good for
/// finding out a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestFingerprint {
    /// Where connections go in place of the first target's own address: "at /run/app.sock", "through the proxy a:3128"; none: there.
    pub by: Option<String>,
    /// A digest of the client certificate; none: there is none.
    pub certificate: Option<String>,
    /// A digest of all requests with their URLs, headers and bodies.
    pub requests: String,
    /// Flags that change the way to the target or what is done there, in words.
    pub settings: String,
}

/// What the target is held to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedGoal {
    /// Greatest share of errors.
    pub errors: f64,
    /// Greatest share of late answers; none: nothing is said of latency.
    pub late: Option<ReportedLatencyGoal>,
}

/// Who may be late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedLatencyGoal {
    /// Of all requests that were due.
    pub share: f64,
    /// From the intended instant.
    pub than: f64,
}

/// How requests are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedArrivals {
    /// At equal distances.
    Even,
    /// As those of many users who know nothing of each other.
    Poisson,
}

/// What becomes of connections: a limit is that of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionPolicy {
    /// They are used again.
    pub keep_alive: bool,
    /// Most of them; none: no bound.
    pub most: Option<u64>,
    /// Requests after which one is closed; none: never for that.
    pub requests: Option<u64>,
    /// `http/1.1`, `h2` where TLS has it, or `h2c`.
    pub protocol: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindOutcome {
    /// The cliff is between two rates that were tested.
    Found,
    /// It is, and after overload the target stays weaker than before.
    Metastable,
    /// The highest rate, or the most clients, that might be offered broke nothing.
    Capped,
    /// The highest rate that the generator can offer is below the cliff, or trials cannot be believed.
    GeneratorLimited,
    /// The target fails with next to nothing to do.
    UnstableBaseline,
    /// Nobody is there any more: it died, and did not come back.
    Gone,
    /// It was ended before a cliff was between two rates.
    Interrupted,
}

/// What ended a run early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindStopReason {
    /// Somebody.
    Signal,
    /// Its time was over.
    Budget,
}

/// What the generator can do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratorCapacity {
    /// Highest rate; none: each trial is judged by itself.
    pub most: Option<f64>,
    /// How that was found out, in words.
    pub how: String,
}

/// What is known of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedLimit {
    /// The limit is above it, with 97 % credibility for both bounds together; none: trials do not carry a bracket.
    pub lower: Option<f64>,
    /// The limit is below it.
    pub upper: Option<f64>,
    /// The middle.
    pub point: Option<f64>,
    /// Highest rate of a trial that was good.
    pub good: Option<f64>,
    /// The longest that it was held in one trial, in seconds.
    pub good_for: Option<f64>,
    /// Lowest rate of a trial that was bad.
    pub bad: Option<f64>,
}

/// What is known of clients, each of which waits for its answer before it asks again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedLoopResult {
    /// Most of them that there might be.
    pub most: u32,
    /// Mean response time of a single one; none: it has had no answer.
    pub service: Option<f64>,
    /// The most at which the goal holds.
    pub limit: ReportedClientLimit,
    /// The rate that more of them do not raise; none before any trial.
    pub saturation: Option<ReportedSaturationPoint>,
}

/// What is known of the greatest number of clients at which the goal holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedClientLimit {
    /// The limit is no less, with 97 % credibility for both bounds together; none: trials do not carry a bracket. 0: not one is borne.
    pub lower: Option<u32>,
    /// The limit is no more.
    pub upper: Option<u32>,
    /// The middle.
    pub point: Option<u32>,
    /// Most of a trial that was good.
    pub good: Option<u32>,
    /// The longest that so many were kept in one trial, in seconds.
    pub good_for: Option<f64>,
    /// Fewest of a trial that was bad.
    pub bad: Option<u32>,
}

/// The rate that more clients do not raise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedSaturationPoint {
    /// Good answers a second.
    pub rate: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// The fewest clients that were tested and got nineteen twentieths of it.
    pub clients: u32,
    /// The most clients below those that were tested and got less.
    pub short: Option<u32>,
    /// So many would be enough if nobody waited for another: the rate times the response time of a single client.
    pub little: f64,
    /// Whether twice as many as were enough got no more; if not, more clients may get more.
    pub reached: bool,
}

/// How a target fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedFailureMode {
    /// Answers are as quick as ever, and some are errors.
    Rejecting,
    /// Answers are as quick as ever, and some do not come.
    Hanging,
    /// Answers are slow, and some are errors.
    BoundedQueue,
    /// Answers are slow.
    Queueing,
    /// Nobody is there any more, whenever so much is sent.
    Dying,
}

/// The target could do more for a while, and then no more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedQuotaExhaustion {
    /// Requests before it did less.
    pub after: f64,
    /// Good answers a second from then on.
    pub goodput: f64,
}

/// What a run cannot exclude, because it did not last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedUnexcludedBurst {
    /// The rate that was held.
    pub rate: f64,
    /// How long without a rest.
    pub held: f64,
    /// An allowance for bursts of more requests than these could be behind it.
    pub requests: f64,
}

/// How the target comes back from overload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedRecovery {
    /// The longest that single requests took to be quick again.
    pub calm: Option<f64>,
    /// Whether a rate that held before overload holds after it; none: not tested.
    pub holds: Option<bool>,
}

/// A cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedCause {
    /// Its slug.
    pub class: String,
    /// Its probability.
    pub confidence: f64,
    /// What speaks for it, the strongest first.
    pub evidence: Vec<ReportedEvidence>,
    /// What is known of its size.
    pub figures: Vec<ReportedFigure>,
}

/// A sign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedEvidence {
    /// What was seen, in words.
    pub seen: String,
    /// By which experiment.
    pub by: String,
    /// How much likelier it is under this cause than under the next best; none: beyond any number.
    pub ratio: Option<f64>,
}

/// A figure of a cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedFigure {
    /// What.
    pub name: String,
    /// How much; none: it is no number.
    pub value: Option<f64>,
    /// In which unit.
    pub unit: String,
}

/// Causes that cannot be told apart from here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedTie {
    /// Their slugs.
    pub between: Vec<String>,
    /// What would tell.
    pub tell: String,
}

/// A cause that does not hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedExcludedCause {
    /// Its slug.
    pub class: String,
    /// How that was found out.
    pub how: String,
}

/// A cause of which nothing can be said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedUndecidedCause {
    /// Its slug.
    pub class: String,
    /// Why.
    pub why: String,
}

/// An experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedExperiment {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub says: String,
}

/// Time in which the target was looked at from its own side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSideWindow {
    /// When the first look began, since this part of the run did.
    pub from: f64,
    /// When the last one had ended.
    pub to: f64,
    /// What was sent meanwhile, in words.
    pub during: String,
    /// What was seen.
    pub facts: Vec<ServerSideFact>,
    /// What could not be looked at, and why.
    pub untested: Vec<String>,
}

/// What a target said of itself, once for each class that it tells something of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSideFact {
    /// In words.
    pub says: String,
    /// The slug of a class of causes; none: it is only worth knowing.
    pub class: Option<String>,
    /// How much likelier it is if that class is the cause than if it is not: below 1 it speaks against it.
    pub ratio: Option<f64>,
}

/// Which way a trial points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedVerdict {
    /// It does not grow, and errors are few enough.
    Good,
    /// It grows, or errors are too many.
    Bad,
    /// Neither can be said.
    Undecided,
    /// Not a word of it can be believed.
    Invalid,
}

/// What was offered, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedTrial {
    /// What for: `baseline`, `ladder`, `arm`, `narrow`, `confirm`, `retest`, `probe`, `again`, `cold`, `knee` or `recovery`.
    pub purpose: String,
    /// As offered; of clients, the requests a second that they came to.
    pub rate: f64,
    /// How many clients waited for their answers; none: a rate was offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// When it began, since the search did, rests included.
    pub began: f64,
    /// How long it took, with the wait for what was outstanding.
    pub took: f64,
    /// Which way it points by itself.
    pub vote: ReportedVerdict,
    /// Why, in words.
    pub why: String,
    /// How the target failed, where it did.
    pub fails: Option<ReportedFailureMode>,
    /// How much it counts for the cliff.
    pub weight: f64,
    /// Good answers a second, once it had settled.
    pub goodput: f64,
    /// Share of errors of all that ended, once it had settled.
    pub errors: f64,
    /// The commonest way in which requests ended without a good answer, in words, and its share of all that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<(String, f64)>,
    /// Median and 99th hundredth of the response times of good answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<[f64; 2]>,
    /// Share of late answers, once two thirds of it were left; none: nothing is known of any.
    pub late: Option<f64>,
    /// Why nothing of it can be believed.
    pub invalid: Option<String>,
    /// Requests for which this machine had no free port, if that is why.
    #[serde(default, skip_serializing_if = "is_none")]
    pub no_port: u64,
    /// Nobody was there at its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub away: bool,
    /// Somebody ended it.
    pub interrupted: bool,
    /// What was seen, a fifteenth of a second in each: sent, good, errors, timely, late, in flight at its end; response times of the
    /// good answers, summed; the longest of them.
    pub blocks: Vec<ReportedBlock>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// One stretch of a trial.
pub type ReportedBlock = (u32, u32, u32, u32, u32, u32, f64, f64);

/// Time that a search is granted from a trial on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetGrant {
    /// So many trials had been made.
    pub after: usize,
    /// For the cliff, since the search began.
    pub cliff: f64,
    /// For the knee, beside it.
    pub knee: f64,
}

impl FindReport {
    /// As it stands in a file, with a line break at its end.
    ///
    /// # Errors
    /// None that is known: everything in it has a form.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text + "\n")
    }

    /// Whether nothing broke, and what was found is the rate from which answers are late.
    #[must_use]
    pub fn is_latency_limit(&self) -> bool {
        self.is_found() && self.closed.is_none() && self.cliff.bad.is_none() && self.knee.bad.is_some()
    }

    /// Whether a limit was between two rates that were tested, so that a bracket may be shown.
    #[must_use]
    pub fn is_found(&self) -> bool {
        matches!(self.outcome, FindOutcome::Found | FindOutcome::Metastable)
    }
}

impl ReportedTrial {
    /// Mean response time of its good answers; none without any.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let (good, sum) = self
            .blocks
            .iter()
            .fold((0.0, 0.0), |(good, sum), block| (good + f64::from(block.1), sum + block.6));
        (good > 0.0).then(|| sum / good)
    }

    /// The longest of them.
    #[must_use]
    pub fn slowest(&self) -> Option<f64> {
        self.blocks.iter().map(|block| block.7).reduce(f64::max).filter(|slowest| *slowest > 0.0)
    }

    /// How long it was sent, in seconds.
    #[must_use]
    pub fn duration_seconds(&self) -> f64 {
        self.blocks.len() as f64 * seawall_search::seen::BLOCK_SECONDS
    }

    /// Most requests in flight at the end of a stretch.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.blocks.iter().map(|block| block.5).max().unwrap_or(0)
    }

    /// Whether it was to see what becomes of a rate, and neither spent what was saved up nor asked whether the target is quick again.
    #[must_use]
    pub fn tests_rate(&self) -> bool {
        !matches!(self.purpose.as_str(), "arm" | "probe") && !self.blocks.is_empty()
    }

    /// Whether it says something of the rate that was offered.
    #[must_use]
    pub fn has_weight(&self) -> bool {
        self.weight > 0.1
    }
}
