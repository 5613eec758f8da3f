//! The flags of `seawall isolate`, as typed, and which of them do not go together.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use seawall_isolate::looks::NULL_DIFFERENCE;
use seawall_lab::isolate::limits;
use seawall_lab::objective::Objectives;
use seawall_load::rate::{self, RateSetting};
use seawall_load::target::{self, header};

use super::vary::FactorSpec;
use crate::attack::travel::ConnectionArgs;
use crate::draft::ReportFiles;
use crate::expect::ExpectationArgs;
use crate::find::args::{MaxRate, goal};
use crate::on::{CommandContext, DistributedArgs, DistributedOptions, LoadCommand};
use crate::page::Loopback;

/// What is compared, at what load, and where the answer goes.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct IsolateArgs {
    /// Target: its URL, asked by GET; or targets as for attack
    #[arg(value_name = "URL")]
    pub(super) url: Option<String>,
    /// Experiment file, YAML or JSON: the ways that are compared
    #[arg(long, value_name = "FILE")]
    pub(super) experiment: Option<PathBuf>,
    /// Built-in ways, FACTOR or FACTOR=VALUE; a comma list, may repeat
    #[arg(long, value_name = "FACTORS", value_delimiter = ',')]
    pub(super) factors: Vec<FactorSpec>,
    /// Compare two builds or configurations: the first, as the reference
    #[arg(long, value_name = "URL", requires = "b")]
    pub(super) a: Option<String>,
    /// The second
    #[arg(long, value_name = "URL", requires = "a")]
    pub(super) b: Option<String>,
    /// Requests of all ways together, below the rate that the target bears
    #[arg(long, value_name = "N[/UNIT]", default_value = "200/s", allow_negative_numbers = true)]
    pub(super) rate: IsolateRate,
    /// Time for everything together; with --capacity a third of it at most is the comparison's [default: 2m, with --capacity 6m]
    #[arg(long, value_name = "DURATION", value_parser = rate::duration)]
    pub(super) budget: Option<Duration>,
    /// Ways that differ by no more than this are equal
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub(super) margin: Margin,
    /// Go on until the 99th percentile is told, too
    #[arg(long)]
    pub(super) until_p99: bool,
    /// Then search the reference, and the ways that differ from it, for the rate that each bears
    #[arg(long)]
    pub(super) capacity: bool,
    /// With --capacity: what each way is held to, one quantile, errors, or both [default: errors<0.1%]
    #[arg(long, value_name = "CONDITIONS")]
    pub(super) slo: Option<Objectives>,
    /// With --capacity: never offer more than this
    #[arg(long, value_name = "N[/UNIT]", allow_negative_numbers = true)]
    pub(super) max_rate: Option<MaxRate>,
    /// Write the experiment to this file, as JSON; - is standard output, and what is shown goes to standard error then
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write it to this file as one offline HTML page; - as for --json
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Serve the experiment as a page at this loopback address while it goes on (127.0.0.1:0 finds a free port), with a button that
    /// ends it; standard error has its link, see below
    #[arg(long, value_name = "ADDRESS")]
    pub(super) live_page: Option<Loopback>,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(super) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(super) format: target::TargetFormat,
    /// Request header, "Key: value"; may repeat
    #[arg(long, value_name = "HEADER")]
    pub(super) header: Vec<String>,
    /// File with the body of requests whose target has none
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(super) body: String,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Time for a whole answer, from the send, and before that for a connection
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::duration)]
    pub(super) timeout: Duration,
    /// Redirects to follow; -1 takes a redirect as the answer
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(super) redirects: i64,
    #[command(flatten)]
    pub(super) expect: ExpectationArgs,
    #[command(flatten)]
    pub(super) travel: ConnectionArgs,
    #[command(flatten)]
    pub(super) on: DistributedArgs,
}

/// `--rate`, requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IsolateRate(pub(super) f64);

impl FromStr for IsolateRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<RateSetting>().map_err(|error| error.to_string())? {
            RateSetting::Exact(rate) => Ok(Self(rate.per_second())),
            RateSetting::Unlimited => Err("expected a finite rate that the target sustains".to_owned()),
        }
    }
}

/// `--margin`, a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Margin(pub(super) f64);

impl FromStr for Margin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse(),
        };
        let fits = |share: &f64| (2.0 * NULL_DIFFERENCE..=0.5).contains(share);
        share.ok().filter(fits).map(Self).ok_or_else(|| {
            format!("expected a share from {:.0}% to 50%, such as 5% or 0.05", 200.0 * NULL_DIFFERENCE)
        })
    }
}

/// A look takes ten cells of two seconds.
const LEAST: Duration = Duration::from_secs(25);
/// What everything may take where nothing is said: of a comparison alone, and of one with searches, of which a minute each is left for four.
const USUAL: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(360)];
/// A cell is to have some requests of each way, and a lookout of days nobody has.
const SLOWEST: f64 = 1.0;

impl IsolateArgs {
    /// Whether ways are searched after they were compared.
    pub(crate) fn has_searches(&self) -> bool {
        self.capacity
    }

    /// Whether targets may come on standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        let is_said = self.url.is_some() || self.is_comparison() || self.experiment.is_some();
        matches!(self.targets.as_str(), "-") || (self.targets == "stdin" && !is_said)
    }

    /// What of it matters to pods.
    pub(super) fn command_context(&self) -> CommandContext<'_> {
        CommandContext { command: LoadCommand::Isolate, targets: &self.targets, output: None }
    }

    /// What is asked of a cluster, if anything is.
    ///
    /// # Errors
    /// All that does not go together.
    pub(super) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.on.distributed_options(&self.command_context(), self.travel.unsupported_in_pods())
    }

    /// Whether two URLs are compared.
    pub(super) fn is_comparison(&self) -> bool {
        self.a.is_some()
    }

    /// Time for everything together.
    pub(super) fn budget(&self) -> Duration {
        self.budget.unwrap_or(USUAL[usize::from(self.capacity)])
    }

    /// Time for the comparison.
    pub(super) fn budget_of_comparison(&self) -> Duration {
        if self.capacity { limits::study_budget(self.budget()) } else { self.budget() }
    }

    /// What no single flag can know. All of it is said at once.
    ///
    /// # Errors
    /// Flags that do not go together.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut mistakes: Vec<String> =
            self.header.iter().filter_map(|line| Some(header(line).err()?.to_string())).collect();
        let mut refuse = |wrong: bool, text: &str| {
            if wrong {
                mistakes.push(text.to_owned());
            }
        };
        let two = self.is_comparison();
        let targets = self.url.is_some() || self.targets != "stdin";
        let ways = !self.factors.is_empty() || self.experiment.is_some();
        refuse(!two && !ways, "nothing to compare: give --factors, --experiment, or --a and --b");
        refuse(two && ways, "give either --a and --b, or --factors and --experiment");
        refuse(two && targets, "give either --a and --b, or a URL or -targets");
        refuse(
            self.url.is_some() && self.targets != "stdin",
            "a URL and -targets exclude each other: give one",
        );
        self.check_budget(&mut refuse);
        self.check_find(&mut refuse);
        refuse(self.rate.0 < SLOWEST, &format!("--rate must be at least {SLOWEST}/s"));
        refuse(
            self.timeout.is_zero(),
            "-timeout=0 has no limit, but an experiment must end: give a duration above 0",
        );
        refuse(self.redirects < -1, "-redirects must be at least -1");
        refuse(
            ReportFiles::is_same_file(self.json.as_deref(), self.html.as_deref()),
            "--json and --html need two different files",
        );
        mistakes.extend(self.max_rate.and_then(MaxRate::mistake));
        mistakes.extend(goal(self.slo.as_ref()).err().map(|error| format!("--slo: {error}")));
        mistakes.extend(self.travel.mistakes());
        if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
    }

    fn check_budget(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(
            !self.capacity && self.budget() < LEAST,
            &format!("--budget must be at least {LEAST:?}: the first evaluation takes that long"),
        );
        refuse(
            self.capacity && self.budget() < limits::MIN_BUDGET,
            &format!(
                "--budget must be at least {:?} with --capacity: the first evaluation and two searches take that long",
                limits::MIN_BUDGET
            ),
        );
    }

    fn check_find(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(!self.capacity && self.slo.is_some(), "--slo needs --capacity");
        refuse(
            !self.capacity && self.max_rate.is_some(),
            "--max-rate needs --capacity; without it, --rate is the offered rate",
        );
        refuse(
            self.capacity && self.max_rate.is_some_and(|most| most.0 < self.rate.0),
            "--max-rate must be at least --rate, the offered rate of the comparison",
        );
    }
}

const HELP: &str = "\
Example: is it the name, the proxy, or new connections?
  seawall isolate http://shop.default:8080/ --factors name,keep-alive,proxy=none --html ways.html
Requests go every way at the same time, one after the other in an order that is drawn anew for each
round, over connections that are opened anew every ten seconds; what would disturb the others (a
connection limit, a source address, a larger body) takes turns of a second instead. Ways are compared cell by cell with
the reference, which is the target as the other flags have it. The experiment ends when everything
is decided, or with the budget.

  seawall isolate http://shop.default:8080/ --factors proxy=none --capacity --slo 'p99<250ms' --max-rate 2000/s
goes on to what each way bears: the comparison is below the limit, and a way that is faster need not
bear more. The reference and up to three ways that differ from it (who left requests unanswered, who
has errors, who is slower or faster by most; of --a and --b both, whatever was told) are searched one after the
other as find --quick searches, without the cause, each exactly as it was compared and alone. This
offers more than the target takes, many times and briefly. A third of --budget at most is the
comparison's; what it leaves is shared by the searches, 20 s each at least, and whoever gets none is named.

Factors (--factors):
  name          the whole name with a final dot, and its address; each request with a lookup of its own
  address       each address that the name has
  keep-alive    a new connection for each request (with -keepalive=false, or beside name: kept ones)
  connections   one connection (=N: N connections); it and the reference take turns, each at the whole
                --rate
  protocol      HTTP/1.1 where HTTP/2 is spoken, else HTTP/2
  tls           the same URL with or without TLS; =URL where it has a port of its own
  connect-to=HOST:PORT   connected there, whatever the URL says
  body=BYTES    a body of so many bytes, of requests that have one
  source=IP     from this address of this machine
  proxy=URL     through it; =none: around those of the environment or of -proxy

Experiment file:
  reference: {name: through the mesh}
  variants:
    - {name: around the mesh, address: \"10.0.0.7:8080\"}
    - {name: one connection, connections: 1}
A way may have: name, url, address, server-name, protocol (http1 or http2), keep-alive, insecure,
proxy, lookup (true: for each connection), connections, source, body, design (interleaved or blocks).
What it does not name is as the flags have it; a way of --factors is the reference with one thing
different. Where the reference has connections, a source, a body or design: blocks, all ways take turns.
Where all of them have a url, the reference too, no target is needed: each is asked by GET.

Verdicts, of the middle half of the times (and of failures):
  faster, slower    it differs by more than 1 %, or a fifth of a --margin above 5 %
  more, fewer errors   it differs by more than 1 % of requests
  ... 99th percentile   the middle is the same within --margin, and the slowest one in a hundred differ
  not the cause     the middle is the same within --margin, and the tail is not known to differ
  undecided         neither is known: with the time that it would take at this rate
  invalid           this generator was the limit in more than a fifth of its cells
Of two equal ways a difference is told in 3 % of experiments at most, whatever the number of ways. The
99th percentile takes far longer: it is judged where cells have 200 answers, and waited for with --until-p99.

JSON (--json): kind (isolate), version (1), outcome (of the comparison), stop_reason (signal,
overloaded, generator-limited or failed), stop_detail (the reason as a sentence), overloaded_variant
(index of the variant that left requests unanswered; 0 is the reference), generator_warnings,
config, duration_seconds, reference, variants, capacity, time_buckets.
variants: name, description, requests, responses, failed, no_response, retried, failures (reason,
count), response_time_quantiles (quantile, seconds), design, verdict (faster, slower, more-errors,
fewer-errors, p99-faster, p99-slower, equal, undecided or invalid), time_saved_ratio (of the
reference's time; above 0 is faster), time_saved_seconds, error_ratio_difference (above 0 is more
errors), time_buckets, p_difference, p_equivalence, decided_after_seconds, estimated_remaining_seconds,
generator_limited_ratio, p99. Intervals have lower, estimate and upper.
capacity (with --capacity): variants (variant: its index; name; vs_reference: verdict better, same,
not-worse, worse or undecided, with lower, estimate and upper of its breaking rate divided by the
reference's, null where the highest rate hides them, and reason where it is undecided; find: what
find --json writes), not_run (name, reason), skipped_because (why nothing was searched).

In the browser (--live-page 127.0.0.1:0): the page of --html while the experiment goes on, with how far it is and
a button that ends it as the first SIGINT does; the exit code is that of what is known then. Its link
(\"page: http://...\" on standard error) holds a token: whoever has the link sees the experiment and may
end it, nobody else does. When it is over the page is that of --html, and \"Save report\" keeps it as one
offline file; an open page has up to 2 s to hear the end. To see it from elsewhere, by one port at both
ends: ssh -L 8080:127.0.0.1:8080 HOST.

From many pods (--on kubernetes): every pod goes every way equally often, and what all see in the same seconds
is one cell. A pod that is lost is named, and left out of all ways alike. Names are looked up by the pods. Not with --capacity.

The first SIGINT or SIGTERM stops the load at once and tells what is known, in all files, too; the
second ends the program.

Exit codes: 0 everything is decided; 1 bad files, ways that contradict themselves or to which there is no connection: no load
was sent, or nothing could be sent any more; 2 a flag or a value that does not exist; 3 of --a and --b: b is slower, in its tail, too, has more errors, leaves requests unanswered that a answers, or breaks at a lower rate or dies (--capacity), however the comparison ended; 4 the generator was the limit of a way; 8 some could
not be told in the budget (with --until-p99 a 99th percentile, too), or of --a and --b the tail looks twice as slow and was not told (--until-p99), or what they bear was not (--capacity), or the rate was more than the reference bears; 130, 143 ended early by SIGINT, SIGTERM.";

#[cfg(test)]
mod tests {
    use seawall_lab::isolate::answer::VariantVerdict;

    use super::super::vary::FACTORS;
    use super::*;

    #[test]
    fn every_factor_that_can_be_typed_is_in_the_help() {
        for factor in FACTORS {
            let begins = |rest: &str| rest.starts_with([' ', '=']);
            let line = HELP.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(factor));
            assert!(line.is_some_and(begins), "{factor}");
        }
    }

    /// Two of them were in no list.
    #[test]
    fn every_verdict_that_is_written_is_in_the_help_and_in_the_specification() {
        let specification = include_str!("../../../../SPECIFICATION.md");
        for word in VariantVerdict::ALL {
            let word = serde_json::to_value(word).unwrap();
            let word = word.as_str().unwrap();
            assert!(HELP.contains(&format!(" {word}")) || HELP.contains(&format!("\n{word}")), "{word}");
            assert!(specification.contains(&format!("`{word}`")), "{word}");
        }
    }

    #[test]
    fn a_margin_is_a_share_above_what_is_no_difference() {
        assert_eq!("5%".parse(), Ok(Margin(0.05)));
        assert_eq!("0.1".parse(), Ok(Margin(0.1)));
        for bad in ["1%", "60%", "x", "", "-5%"] {
            assert!(bad.parse::<Margin>().unwrap_err().contains("from 2% to 50%"), "{bad}");
        }
    }
}
