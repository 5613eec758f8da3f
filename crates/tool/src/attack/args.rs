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
use seawall_load::{recorder, results, target};

use super::travel::ConnectionArgs;
use crate::attack::plan::results_on_stdout;
use crate::on::{CommandContext, DistributedArgs, DistributedOptions, LoadCommand, STDOUT};
use crate::page::Loopback;

/// vegeta's flags with vegeta's defaults, then ours.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_override_self = true)]
pub(crate) struct AttackArgs {
    /// Name of the attack: noted in each result, sent as X-Vegeta-Attack
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) name: String,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(crate) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(crate) format: target::TargetFormat,
    /// Results file; "none" records nothing [default: stdout, none on a terminal]
    #[arg(long, value_name = "FILE", default_value = "stdout", hide_default_value = true)]
    pub(crate) output: String,
    /// Format of the results: gob, json or csv
    #[arg(long, value_name = "FORMAT", default_value = "gob")]
    pub(crate) to: results::ResultFormat,
    /// Say in each result (json, csv) what carried it: the connection's number, requests on it before, and nanoseconds that
    /// it was idle, connecting and TLS took, and the first byte took; csv has six columns more
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) connection_timings: bool,
    /// File with the body of requests whose target has none
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(crate) body: String,
    /// Send bodies in chunked transfer coding
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) chunked: bool,
    /// Read targets while attacking; the attack ends with them
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) lazy: bool,
    /// Fill {{placeholders}} in paths, header values and bodies, hit by hit; see below
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = BoolishValueParser::new(), action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) template: bool,
    /// Seed of everything random: the same seed makes the same arrivals and the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time after which no more requests are sent [default: until stopped]
    #[arg(long, value_name = "DURATION", default_value = "0", hide_default_value = true, value_parser = rate::duration)]
    pub(crate) duration: Duration,
    /// Time for a whole answer, from the send, and before that for a connection; 0 is for ever
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::duration)]
    pub(crate) timeout: Duration,
    /// Time for a whole answer, from the intended send; what is late already is not sent
    #[arg(long, value_name = "DURATION", value_parser = rate::duration)]
    pub(crate) deadline: Option<Duration>,
    /// Rate: N, N/unit or a fraction; 0 is a closed loop of -max-workers
    #[arg(long, value_name = "N[/UNIT]", default_value = "50/1s")]
    pub(crate) rate: RateSetting,
    /// Taken for vegeta's sake: there are no workers to start with
    #[arg(long, value_name = "N", default_value = "10", hide_default_value = true)]
    pub(crate) workers: u64,
    /// Most requests in flight [default: what open files allow]
    #[arg(long, value_name = "N", default_value = "18446744073709551615", hide_default_value = true)]
    pub(crate) max_workers: u64,
    /// Load over time, instead of -rate, such as "ramp 0 to 500/s for 1m, hold 500/s for 5m"
    #[arg(long, value_name = "STAGES", conflicts_with_all = ["rate", "concurrency"])]
    pub(crate) stages: Option<String>,
    /// How hits are spread over the rate: constant, poisson or burst:N
    #[arg(long, value_name = "SPACING", default_value = "constant")]
    pub(crate) arrivals: AttackArrivals,
    /// Send only shard I of N of the schedule, such as 2/3. Other machines send the other shards: see below
    #[arg(long, value_name = "I/N", default_value = "1/1", hide_default_value = true)]
    pub(crate) shard: ScheduleShard,
    /// When the schedule begins, such as 2027-01-31T12:00:00Z [default: at once]
    #[arg(long, value_name = "INSTANT")]
    pub(crate) start_at: Option<StartAt>,
    /// Requests in all
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// A closed loop of so many clients, instead of -rate
    #[arg(long, value_name = "N", conflicts_with_all = ["max_workers", "rate"])]
    pub(crate) concurrency: Option<u64>,
    /// Errors after which the attack ends within a tenth of a second: a number, or a share such as 5% (of 100 or more)
    #[arg(long, value_name = "N|SHARE")]
    pub(crate) max_errors: Option<MaxErrors>,
    /// Objectives over all hits; one without a good answer is slower than any bound. Missing one is exit code 3. Such as
    /// "p99<100ms,errors<0.1%"
    #[arg(long, value_name = "CONDITIONS")]
    pub(crate) slo: Option<Objectives>,
    /// A hit that finds -max-workers in flight waits (queue) or is not sent and counted (drop)
    #[arg(long, value_name = "POLICY", default_value = "queue")]
    pub(crate) on_saturation: OnSaturationFlag,
    /// When the results output blocks: senders wait (wait), or records are dropped and counted (drop)
    #[arg(long, value_name = "POLICY", default_value = "wait")]
    pub(crate) on_slow_output: OnSlowOutputFlag,
    /// Request header, "Key: value"; may repeat
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Redirects to follow; -1 takes a redirect as the answer
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(crate) redirects: i64,
    /// Bytes of each body to keep in the results; -1 is all, up to 64 MiB of each
    #[arg(long, value_name = "SIZE", default_value = "-1", allow_hyphen_values = true)]
    pub(crate) max_body: MaxBody,
    /// Keep so many answers of each outcome and show them in --summary=json: status, head, the first KiB of the body
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) sample_responses: usize,
    /// Sending threads [default: as many as the rate needs, at most one per core, or -cpus before the command]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Busy-poll instead of sleeping for waits shorter than this: more precise, and costs CPU [default: 100µs where a
    /// core is left over and no CPU quota is set, else 0]
    #[arg(long, value_name = "DURATION", value_parser = rate::duration)]
    pub(crate) busy_poll: Option<Duration>,
    /// Leave the first part of the run out of the statistics and the results
    #[arg(long, value_name = "DURATION", default_value = "0", hide_default_value = true, value_parser = rate::duration)]
    pub(crate) warm_up: Duration,
    /// HDR log of response time, service time and lag by the interval; `seawall plot` takes it beside results
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<String>,
    /// Everything that was measured, a line of JSON per interval; `seawall report` reads it, of several generators, too
    #[arg(long, value_name = "FILE")]
    pub(crate) timeseries: Option<String>,
    /// How long an interval is, for --timeseries, --hdr and -prometheus-addr: 50ms or more
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) interval: SamplingInterval,
    /// Serve Prometheus metrics at HOST:PORT while the attack runs, on any path; whoever reaches the port reads the
    /// targets' URLs, so prefer loopback, such as 127.0.0.1:8880
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    pub(crate) prometheus_addr: String,
    /// Show the run while it goes on: view (fills the terminal, keys change the rate), lines (one per second on standard
    /// error), none, or auto (the view on a terminal, lines in a pipe)
    #[arg(long, value_name = "HOW", default_value = "auto", hide_possible_values = true)]
    pub(crate) live: LiveMode,
    /// Steer the attack over a Unix socket at this path, which only this user may connect to; see below
    #[arg(long, value_name = "PATH")]
    pub(crate) control_socket: Option<PathBuf>,
    /// Serve the run as a page at this loopback address while it goes on (127.0.0.1:0 finds a free port), with buttons that steer it;
    /// standard error has its link, see below
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) live_page: Option<Loopback>,
    /// Print a summary on standard error (on standard output if no results go there): text, json or none
    /// [default: text if no results go to standard output, else none]
    #[arg(long, value_name = "FORMAT", verbatim_doc_comment)]
    pub(crate) summary: Option<SummaryFormat>,
    #[command(flatten)]
    pub(crate) travel: ConnectionArgs,
    #[command(flatten)]
    pub(crate) on: DistributedArgs,
}

impl AttackArgs {
    /// What of it matters to pods.
    pub(crate) fn command_context(&self) -> CommandContext<'_> {
        let output = match self.output.as_str() {
            "none" => None,
            "stdout" | "-" => results_on_stdout(self).then_some(STDOUT),
            file => Some(file),
        };
        CommandContext { command: LoadCommand::Attack, targets: &self.targets, output }
    }

    /// What is asked of a cluster, if anything is.
    ///
    /// # Errors
    /// All that does not go together.
    pub(crate) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.on.distributed_options(&self.command_context(), self.unsupported_in_pods())
    }

    /// What pods cannot do.
    fn unsupported_in_pods(&self) -> Vec<String> {
        let refused = [
            (
                self.lazy,
                "-lazy does not work with --on, because pods get their targets before the run: leave it out",
            ),
            (
                !self.shard.is_whole(),
                "--shard does not work with --on, because each pod sends a shard of its own: leave it out",
            ),
            (
                self.sample_responses > 0,
                "--sample-responses does not work with --on, because pods report figures only: sample responses without --on",
            ),
            (
                !self.prometheus_addr.is_empty(),
                "-prometheus-addr does not work with --on, because pods report no figures per target: use --live-page or --timeseries",
            ),
        ];
        let refused =
            refused.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, why)| format!("--on: {why}"));
        refused.chain(self.travel.unsupported_in_pods()).collect()
    }
}

/// `--on-saturation`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnSaturationFlag {
    /// Wait for room.
    Queue,
    /// Not sent, counted.
    Drop,
}

/// `--on-slow-output`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnSlowOutputFlag {
    /// Senders wait.
    Wait,
    /// Records are dropped and counted.
    Drop,
}

impl From<OnSlowOutputFlag> for recorder::SlowOutputPolicy {
    fn from(policy: OnSlowOutputFlag) -> Self {
        match policy {
            OnSlowOutputFlag::Wait => Self::Wait,
            OnSlowOutputFlag::Drop => Self::Drop,
        }
    }
}

/// `--summary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SummaryFormat {
    /// For people.
    Text,
    /// For programs, on one line.
    Json,
    /// Not at all.
    None,
}

/// `--live`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveMode {
    /// The view on a terminal that nobody else writes to, lines elsewhere.
    Auto,
    /// A page that fills the terminal; keys change the rate.
    View,
    /// One line per second on standard error.
    Lines,
    /// Not at all.
    None,
}

/// `--arrivals`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttackArrivals {
    /// Equally far apart.
    Constant,
    /// As many independent users make them.
    Poisson,
    /// So many at once.
    Burst(u64),
}

impl FromStr for AttackArrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let burst = || text.strip_prefix("burst:")?.parse().ok().filter(|&size| size > 0).map(Self::Burst);
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => burst()
                .ok_or_else(|| format!("{text:?} is not a spacing: expected constant, poisson or burst:N")),
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
        let interval = rate::duration(text).map_err(|error| error.to_string())?;
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
pub(crate) const MOST_BODY: usize = 64 << 20;

impl FromStr for MaxBody {
    type Err = String;

    /// A number with an optional unit, as vegeta's `-max-body` takes it (c2h5oh/datasize: powers of 1024).
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-1" {
            return Ok(Self(MOST_BODY));
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
        Ok(Self(number.saturating_mul(1 << shift).min(MOST_BODY)))
    }
}

const HELP: &str = "\
Targets (http format): a request line, then headers, '#' comments and '@file' for the body; an
empty line ends one.
  GET http://127.0.0.1:8080/computeMetadata/v1/instance/service-accounts/default/token
  Metadata-Flavor: Google

Examples:
  echo \"GET http://127.0.0.1:8080/\" | seawall attack -rate 10 -duration=5s | seawall report
  seawall attack -duration=300s -rate=10000 -timeout=10ms -targets=target |
    seawall report -type='hist[0,2ms,4ms]'
  seawall attack --requests 10000 --concurrency 64 -targets=target

Where this differs from vegeta, on purpose:
  * a result's timestamp is the instant its request was DUE and its latency counts from there, so
    that a stalled server or a late generator cannot hide (vegeta dates the request when a worker
    is free to send it)
  * -rate=infinity is unlimited, as documented (vegeta runs it at 50/s); fractions such as
    -rate=0.5 are taken
  * no Accept-Encoding: gzip, so bytes in are bytes of the body; no X-Vegeta-Seq header
  * when a lazy input ends, the attack ends, without a false \"no targets to attack\" result
  * -h2c keeps the other flags; -connect-to takes IPv6 addresses in brackets; -laddr takes several
  * proxies of the environment are used, as vegeta does, and standard error says so (--proxy=none:
    not)
  * -prometheus-addr: request_seconds counts from the instant a request was due,
    request_fail_count counts, labels are bounded (URLs beyond the first 63 and of lazy targets
    are \"other\"), and an address in use is an error
  * a request that a server lost by closing an idle connection is sent again once, one that an
    HTTP/2 server says it has not looked at up to six times, as Go does, and counted
    (--retries=false: it has failed)

In flight: at most -max-workers (by default what the open-files limit allows); a hit that finds no
room waits and its latency counts the wait (--on-saturation=drop: it is not sent, and recorded with
code 0). After the end of -duration nothing that still waits is sent. Results: never lost by
default; a reader slower than the attack makes the senders wait, the wait is in the latency, and
its total is reported (--on-slow-output=drop keeps the schedule and counts lost results).

Load over time (--stages), stages separated by commas:
  hold RATE [for TIME]                         ramp RATE to RATE for TIME
  step RATE to RATE by RATE every TIME         sine RATE by RATE every TIME for TIME
  replay FILE          an offset per line: milliseconds, or a duration such as 1.5s
  hold 0 for TIME      a pause

Several generators: give each the same targets, seed, rate and --start-at, and --shard 1/3, 2/3, 3/3:
together they send every hit of the schedule once, at its instant, and their results, HDR logs and
intervals add up to those of one run. -rate, --stages and --requests are those of the whole;
-max-workers, --concurrency and --max-errors are each generator's own. Their clocks must agree (NTP):
an instant that has passed is refused.

From many pods (--on kubernetes, docs/kubernetes.md): one schedule that they share hit for hit, begun at
one instant; -rate, --stages and --requests are those of the whole. What is shown and written is of all,
and each pod stands in the summary, the view and the page: one that is lost or late is named at once, and
its share is missing, never silently less load (--on-pod-loss). -output is written here, by what pods
tell, up to 4 MiB of each; more of it in a volume (--volume). --dry-run prints what would be made.

Weights: a comment line '# weight=3' before a request line (json: \"weight\":3) gives that target
three shares.

Variants: \"variant\":{\"name\":\"direct\", ...} in a json target, or a comment line
'# variant={\"name\":\"direct\", ...}' before a request line, gives its requests connections of their
own that differ from the run's in what it names: \"address\":\"10.0.0.1:80\" instead of what the URL
says, \"server_name\" for TLS, \"protocol\":\"http1\" or \"http2\", \"keepalive\":true or false,
\"insecure\":true, \"proxy\":\"http://host:port\" or \"none\".

JSON of a run: --summary=json is one object; --timeseries is a line of its first five keys, a line per
interval, and a last line, without which the file is cut. Times are numbers of seconds.
  kind           attack, or timeseries in the first line of --timeseries
  version        1; a key that goes or changes its meaning makes it 2
  start          RFC 3339: the first instant of the schedule, the 0 of all times below
  config         the plan: stages and arrivals of the rate (null in a closed loop), shard, limits,
                 transport; no URL, header or body
  host           of the generator: version, os, architecture, kernel, cores
  an interval    start_seconds, end_seconds, stats: counts, and histograms as {hdr, sum, min, max} in
                 nanoseconds, where hdr is HdrHistogram V2, deflated, in base64, as in an HDR log;
                 whole numbers may exceed 2^53
  the last line  offered (requests; null in a closed loop), duration_seconds, elapsed_seconds, threads,
                 findings
  the summary    figures of the whole run, findings, and the machine's checks

Placeholders (--template): {{seq}} number of the hit; {{random 1 100}}; {{hex 16}}; {{uuid}};
{{row FILE [COLUMN]}} row after row; {{pick FILE [COLUMN]}} a random row, the same everywhere in a
request. A request is a function of the hit's number and the seed. COLUMN is
  a name      {{row users.csv name}}: CSV (RFC 4180) whose first line is the header, which is not sent
  a number    {{row users.csv 2}}: CSV without a header, columns from 1; the first line is data, too
  a pointer   {{row users.jsonl /user/name}}: JSON lines, a value by JSON pointer (RFC 6901)
  nothing     {{row users.txt}}: the whole line
Names and numbers of one file do not mix. Values are escaped where they go: percent-encoded in the URL
and in bodies of content type application/x-www-form-urlencoded, escaped inside the quotes of a JSON body
(by content type, or by its look). Header values with line breaks are refused. {{raw row FILE COLUMN}}
escapes nothing.

Steering (--control-socket PATH), a line per command, each answered by a line that begins with ok or error:
  rate 500/s           from now on; of --stages, for the rest of its time
  concurrency 20       clients of a closed loop from now on
  pause, resume        nothing is due in between, and not made up for; the end stays where it is
  stop                 sends nothing more and waits for answers; said again, ends at once
  status               how it stands: elapsed, rate or concurrency, in flight, done, errors
  e.g. echo \"rate 500/s\" | nc -U PATH
A run that the command stop has ended is not an interrupted run: its exit code is the verdict on what
was measured until then.

In the browser (--live-page 127.0.0.1:0): the page of `seawall report -type=html`, second by second, with
buttons for the commands above. Its link (\"page: http://...\" on standard error, shown as lines then
instead of the view) holds a token: whoever has the link sees the run and steers it, nobody else
does. When the run is over the page is its report, and \"Save report\" keeps it as one offline file; an open
page has up to 2 s to hear the end. To see it from elsewhere, by one port at both ends:
ssh -L 8080:127.0.0.1:8080 HOST.

The first SIGINT or SIGTERM stops sending and waits for answers; the second ends at once. Results
are kept either way.

Exit codes: 0 done; 1 bad files or targets, flags that do not go together, or a file that could not
be written to its end; 2 a flag or a value that does not exist; 3 an objective was missed or
--max-errors reached; 4 the generator was the limit, so that nothing can be said about the target;
130, 143 ended early by SIGINT, SIGTERM (a run without an end of its own is done with the first
signal).";
