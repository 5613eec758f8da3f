//! The flags of `seawall attack`, as typed. [`super::plan`] makes a checked plan of them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, ValueEnum};
use seawall_lab::objective::Objectives;
use seawall_load::control::ErrorBudget;
use seawall_load::engine::MIN_INTERVAL;
use seawall_load::rate::{self, RateSetting};
use seawall_load::results::rfc3339;
use seawall_load::schedule::ScheduleShard;
use seawall_load::{record_output, results, target};

use super::connection_args::ConnectionArgs;
use super::load_args::RecordsOutput;
use super::request_args::RequestArgs;
use crate::distributed::{DistributedArgs, DistributedOptions, DistributionFlags, LoadCommand, STDOUT_NAME};
use crate::expectation_args::ExpectationArgs;
use crate::live_page::LoopbackAddress;

/// The flags of `attack`: vegeta's flags with vegeta's defaults, then Seawall's flags.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct AttackArgs {
    /// Target URLs, requested in turn; http:// is optional; without a URL, see --targets
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Name of the attack; each result and the request header X-Vegeta-Attack contain this name
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) name: String,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(crate) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(crate) format: target::TargetFormat,
    /// File for records, one per request; "-" is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<String>,
    /// Format of the results: gob, json or csv
    #[arg(long, value_name = "FORMAT", default_value = "gob")]
    pub(crate) to: results::ResultFormat,
    /// Add six values to each result (json and csv only): the number of the connection, its number of earlier requests, and
    /// the nanoseconds of idle time, of the connect, of the TLS handshake and of the wait for the first byte
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) connection_timings: bool,
    #[command(flatten)]
    pub(crate) request_args: RequestArgs,
    /// Send bodies with chunked transfer encoding
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) chunked: bool,
    /// Read targets while the attack runs; the attack ends after the last target
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) lazy: bool,
    /// Fill {{placeholders}} in paths, header values and bodies for each request; see seawall help templates
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) template: bool,
    /// Random seed: the same seed makes the same arrivals and the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How long to send; 0: until stopped [default: 10s with a URL, else 0]
    #[arg(short = 'z', long, value_name = "DURATION", value_parser = rate::parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Time limit to connect, and again to respond; 0: none
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::parse_duration)]
    pub(crate) timeout: Duration,
    /// Time limit from the scheduled send to the end of the response; after this limit, seawall does not send the request
    #[arg(long, value_name = "DURATION", value_parser = rate::parse_duration)]
    pub(crate) deadline: Option<Duration>,
    /// Requests per second of all clients together; hey's -q is per client [default: 50]
    #[arg(short = 'q', long, visible_alias = "rps", value_name = "N[/UNIT]")]
    pub(crate) rate: Option<RateSetting>,
    /// Has no effect; seawall accepts this flag because vegeta has it
    #[arg(long, value_name = "N", default_value = "10", hide_default_value = true)]
    pub(crate) workers: u64,
    /// Maximum number of requests in flight [default: as many as the open-files limit allows]
    #[arg(long, value_name = "N", default_value = "18446744073709551615", hide_default_value = true)]
    pub(crate) max_workers: u64,
    /// Rate over time, e.g. "ramp 0 to 500/s for 1m"; see seawall help stages
    #[arg(long, value_name = "STAGES", conflicts_with_all = ["rate", "concurrency"])]
    pub(crate) stages: Option<String>,
    /// How requests are spaced: constant, poisson or burst:N
    #[arg(long, value_name = "SPACING", default_value = "constant")]
    pub(crate) arrivals: ArrivalSpacingFlag,
    /// Send only shard I of N of the schedule, such as 2/3; other machines send the other shards; see seawall help generators
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true)]
    pub(crate) shard: ScheduleShard,
    /// Start time of the schedule, such as 2027-01-31T12:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) start_at: Option<StartAt>,
    /// Number of requests; with -z, the first limit reached ends the run
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// Number of clients in a closed loop, with keep-alive (ab -k); with a rate: maximum number of
    /// requests in flight
    #[arg(short, long, value_name = "N", conflicts_with = "max_workers")]
    pub(crate) concurrency: Option<u64>,
    /// Stop the attack within 0.1 s if there are more errors than this number, or than this share of at least 100 requests,
    /// such as 5%
    #[arg(long, value_name = "N|SHARE")]
    pub(crate) max_errors: Option<MaxErrors>,
    /// Objectives, such as "p99<100ms,errors<0.1%"; repeatable; exit code 3 if missed; see seawall help slo
    #[arg(long, value_name = "CONDITIONS", action = clap::ArgAction::Append)]
    pub(crate) slo: Vec<Objectives>,
    /// What happens while -max-workers requests are in flight: the next request waits (queue), or seawall counts the request
    /// and does not send it (drop)
    #[arg(long, value_name = "POLICY", default_value = "queue")]
    pub(crate) on_saturation: OnSaturationFlag,
    /// What happens if the reader of the records is too slow: the sending threads wait (wait), or they drop records and
    /// count them (drop)
    #[arg(long, value_name = "POLICY", default_value = "wait")]
    pub(crate) on_slow_output: OnSlowOutputFlag,
    /// Maximum number of redirects to follow; -1: take the redirect as the response
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(crate) redirects: i64,
    /// Maximum number of bytes of each response body in the results; -1: the whole body, up to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "-1", allow_hyphen_values = true)]
    pub(crate) max_body: MaxBody,
    /// Number of sample responses per outcome in --summary=json, each with status, headers and the first KiB of the body
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) sample_responses: usize,
    /// Number of sending threads [default: as many as the rate needs, at most one per core or -cpus]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Busy-poll, instead of sleeping, in waits shorter than this; the send times are more precise, but seawall uses more
    /// CPU [default: 100µs with a free core and without a CPU quota, else 0]
    #[arg(long, value_name = "DURATION", value_parser = rate::parse_duration)]
    pub(crate) busy_poll: Option<Duration>,
    /// Length of the warm-up; the statistics and the results exclude the warm-up
    #[arg(long, value_name = "DURATION", default_value = "0", hide_default_value = true, value_parser = rate::parse_duration)]
    pub(crate) warm_up: Duration,
    /// File for an HDR log of response time, service time and send lag per interval; `seawall plot` reads it together with results
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<String>,
    /// File for all measurements, with one line of JSON per interval; `seawall report` reads and merges such files
    #[arg(long, value_name = "FILE")]
    pub(crate) timeseries: Option<String>,
    /// Length of an interval of --timeseries, --hdr and -prometheus-addr: at least 50ms
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) interval: SamplingInterval,
    /// Serve Prometheus metrics at HOST:PORT, on any path, while the attack runs; the metrics show the targets' URLs,
    /// so prefer a loopback address, such as 127.0.0.1:8880
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    pub(crate) prometheus_addr: String,
    /// Show the progress of the run: view (a full-screen view; keys change the rate), lines (one line per second on
    /// standard error), none, or auto (view on a terminal, lines in a pipe)
    #[arg(long, value_name = "HOW", default_value = "auto", hide_possible_values = true)]
    pub(crate) live: LiveMode,
    /// Unix socket on which the attack accepts commands, from this user only; see seawall help steering
    #[arg(long, value_name = "PATH")]
    pub(crate) control_socket: Option<PathBuf>,
    /// Serve a live page of the run at this loopback address, such as 127.0.0.1:0
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) live_page: Option<LoopbackAddress>,
    /// Summary: text, json or none [default: text; none if stdout has records]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) summary: Option<SummaryFormat>,
    #[command(flatten)]
    pub(crate) expectation_args: ExpectationArgs,
    #[command(flatten)]
    pub(crate) connection_args: ConnectionArgs,
    #[command(flatten)]
    pub(crate) distributed_args: DistributedArgs,
}

impl AttackArgs {
    /// Returns the flags that matter for the distribution to pods.
    pub(crate) fn command_io(&self) -> DistributionFlags<'_> {
        let output = match self.records_output() {
            RecordsOutput::Nowhere => None,
            RecordsOutput::Stdout => Some(STDOUT_NAME),
            RecordsOutput::File(file) => Some(file),
        };
        DistributionFlags { command: LoadCommand::Attack, targets: &self.targets, output }
    }

    /// Returns the options of `--on`; `None` without `--on`.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.distributed_args.distributed_options(&self.command_io(), self.unsupported_in_pods())
    }

    /// Returns an error for each flag that pods do not support.
    fn unsupported_in_pods(&self) -> Vec<String> {
        let refused = [
            (
                self.lazy,
                "-lazy does not work with --on, because pods get their targets before the run: leave out -lazy",
            ),
            (
                !self.shard.is_whole(),
                "--shard does not work with --on, because seawall gives each pod a shard: leave out --shard",
            ),
            (
                self.sample_responses > 0,
                "--sample-responses does not work with --on, because pods report only statistics: to sample responses, leave out --on",
            ),
            (
                !self.prometheus_addr.is_empty(),
                "-prometheus-addr does not work with --on, because pods report no statistics per target: use --live-page or --timeseries",
            ),
        ];
        let refused = refused.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, why)| why.to_owned());
        refused.chain(self.connection_args.unsupported_in_pods()).collect()
    }
}

/// The values of `--on-saturation`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnSaturationFlag {
    /// The request waits until it may be sent.
    Queue,
    /// Seawall counts the request and does not send it.
    Drop,
}

/// The values of `--on-slow-output`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnSlowOutputFlag {
    /// The sending threads wait.
    Wait,
    /// The sending threads drop records and count them.
    Drop,
}

impl From<OnSlowOutputFlag> for record_output::SlowOutputPolicy {
    fn from(policy: OnSlowOutputFlag) -> Self {
        match policy {
            OnSlowOutputFlag::Wait => Self::Wait,
            OnSlowOutputFlag::Drop => Self::Drop,
        }
    }
}

/// The values of `--summary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SummaryFormat {
    /// Text for people.
    Text,
    /// JSON for programs, on one line.
    Json,
    /// No summary.
    None,
}

/// The values of `--live`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveMode {
    /// `view` on a terminal to which no other program writes; `lines` elsewhere.
    Auto,
    /// A full-screen terminal view; keys change the rate.
    View,
    /// One line per second on standard error.
    Lines,
    /// No progress output.
    None,
}

/// `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalSpacingFlag {
    /// Equal distances between requests.
    Constant,
    /// Random distances, as many independent users make them.
    Poisson,
    /// Bursts of this many requests.
    Burst(u64),
}

impl FromStr for ArrivalSpacingFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let burst = || text.strip_prefix("burst:")?.parse().ok().filter(|&size| size > 0).map(Self::Burst);
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => burst().ok_or_else(|| {
                format!("{text:?} is not an arrival spacing: expected constant, poisson or burst:N")
            }),
        }
    }
}

/// `--start-at`, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartAt(pub(crate) i64);

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let instant = rfc3339::parse(text).and_then(|instant| i64::try_from(instant.unix_ns()).ok());
        let malformed =
            || format!("{text:?} is not an instant: expected RFC 3339, such as 2027-01-31T12:00:00Z");
        instant.map(Self).ok_or_else(malformed)
    }
}

/// `--interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SamplingInterval(pub(crate) Duration);

impl FromStr for SamplingInterval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let interval = rate::parse_duration(text).map_err(|error| error.to_string())?;
        let refused = || format!("an interval of {text} is too short: expected at least {MIN_INTERVAL:?}");
        Some(interval).filter(|interval| *interval >= MIN_INTERVAL).map(Self).ok_or_else(refused)
    }
}

/// `--max-errors`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MaxErrors(pub(crate) ErrorBudget);

impl FromStr for MaxErrors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed =
            || format!("{text:?} is not a number of errors: expected one such as 100, or a share such as 5%");
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(|count| Self(ErrorBudget::Count(count))).map_err(|_| malformed());
        };
        let share = percent.trim().parse().ok().filter(|percent: &f64| (0.0..=100.0).contains(percent));
        share.map(|percent| Self(ErrorBudget::Share(percent / 100.0))).ok_or_else(malformed)
    }
}

/// Bytes of a body to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxBody(pub(crate) usize);

/// No body is kept beyond this, whatever the flag says: a server must not be able to fill our memory.
pub(crate) const MAX_KEPT_BODY_BYTES: usize = 64 << 20;

impl FromStr for MaxBody {
    type Err = String;

    /// A number with an optional unit, as vegeta's `-max-body` takes it (c2h5oh/datasize: powers of 1024).
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-1" {
            return Ok(Self(MAX_KEPT_BODY_BYTES));
        }
        let malformed =
            || format!("{text:?} is not a size: expected -1 or a number such as 512, 10KB or 1 MB");
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let shift = match unit.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            _ => return Err(malformed()),
        };
        let number: usize = number.parse().map_err(|_| malformed())?;
        Ok(Self(number.saturating_mul(1 << shift).min(MAX_KEPT_BODY_BYTES)))
    }
}
