//! The flags of `seawall isolate`, as typed, and which of them do not go together.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use seawall_isolate::looks::NULL_DIFFERENCE;
use seawall_lab::isolate::variant_capacity;
use seawall_lab::objective::Objectives;
use seawall_load::rate::{self, RateSetting};
use seawall_load::target;

use super::factors::FactorSpec;
use crate::atomic_file::ReportFiles;
use crate::attack::connection_args::ConnectionArgs;
use crate::attack::request_args::RequestArgs;
use crate::distributed::{DistributedArgs, DistributedOptions, DistributionFlags, LoadCommand};
use crate::expectation_args::ExpectationArgs;
use crate::find::args::{MaxRate, search_goal};
use crate::live_page::LoopbackAddress;

/// The flags of `isolate`: the variants, the load and the output.
#[derive(Debug, clap::Args)]
pub(crate) struct IsolateArgs {
    /// Target URL; http:// is optional; without a URL, see --targets
    #[arg(value_name = "URL")]
    pub(super) url: Option<String>,
    /// YAML or JSON file with the variants; see seawall help comparison
    #[arg(long, value_name = "FILE")]
    pub(super) experiment: Option<PathBuf>,
    /// Built-in variants, comma-separated, such as keep-alive,proxy=none
    #[arg(long, value_name = "FACTORS", value_delimiter = ',')]
    pub(super) factors: Vec<FactorSpec>,
    /// URL of the first of two builds or configurations (the reference)
    #[arg(long, value_name = "URL", requires = "b")]
    pub(super) a: Option<String>,
    /// URL of the second of the two builds or configurations
    #[arg(long, value_name = "URL", requires = "a")]
    pub(super) b: Option<String>,
    /// Total rate of all variants; choose a rate below the limit of the target
    #[arg(long, value_name = "N[/UNIT]", default_value = "200/s", allow_negative_numbers = true)]
    pub(super) rate: IsolateRate,
    /// Time limit of the experiment [default: 2m; 6m with --capacity]
    #[arg(long, value_name = "DURATION", value_parser = rate::parse_duration)]
    pub(super) budget: Option<Duration>,
    /// "not the cause" means: equal within this share; isolate still reports a smaller difference that is certain
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub(super) margin: Margin,
    /// Continue until the verdict on the 99th percentile is decided, too
    #[arg(long)]
    pub(super) until_p99: bool,
    /// After the comparison, search for the limits of the reference and of the variants that differ from it
    #[arg(long)]
    pub(super) capacity: bool,
    /// With --capacity: objectives for each variant: one percentile, errors, or both [default: errors<0.1%]
    #[arg(long, value_name = "CONDITIONS", action = clap::ArgAction::Append)]
    pub(super) slo: Vec<Objectives>,
    /// With --capacity: highest rate to offer
    #[arg(long, value_name = "N[/UNIT]", allow_negative_numbers = true)]
    pub(super) max_rate: Option<MaxRate>,
    /// File for the result as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// File for the result as one offline HTML page; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Serve a live page of the experiment at this loopback address, such as 127.0.0.1:0
    #[arg(long, value_name = "ADDRESS")]
    pub(super) live_page: Option<LoopbackAddress>,
    /// Targets file
    #[arg(long, value_name = "FILE", default_value = "stdin")]
    pub(super) targets: String,
    /// Format of the targets: http or json
    #[arg(long, default_value = "http")]
    pub(super) format: target::TargetFormat,
    #[command(flatten)]
    pub(super) request_args: RequestArgs,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Time limit to connect, and again to respond
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = rate::parse_duration)]
    pub(super) timeout: Duration,
    /// Maximum number of redirects to follow; -1: take the redirect as the response
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    pub(super) redirects: i64,
    #[command(flatten)]
    pub(super) expectation_args: ExpectationArgs,
    #[command(flatten)]
    pub(super) connection_args: ConnectionArgs,
    #[command(flatten)]
    pub(super) distributed_args: DistributedArgs,
}

/// `--rate`, requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct IsolateRate(pub(super) f64);

impl FromStr for IsolateRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<RateSetting>().map_err(|error| error.to_string())? {
            RateSetting::Exact(rate) => Ok(Self(rate.requests_per_second())),
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

/// The shortest budget: a first evaluation takes ten time buckets of two seconds.
const LEAST: Duration = Duration::from_secs(25);
/// The default budgets: of a comparison alone, and of a comparison with searches, which has a minute for each of four searches.
const USUAL: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(360)];
/// The lowest rate: each time bucket needs some requests of each variant, and nobody waits for days.
const SLOWEST: f64 = 1.0;

impl IsolateArgs {
    /// Returns true if the limits of variants are searched after the comparison.
    pub(crate) fn searches_capacity(&self) -> bool {
        self.capacity
    }

    /// Returns true if targets can come on standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        let is_said = self.url.is_some() || self.compares_two_urls() || self.experiment.is_some();
        matches!(self.targets.as_str(), "-") || (self.targets == "stdin" && !is_said)
    }

    /// Returns the flags that matter for the distribution to pods.
    pub(super) fn command_io(&self) -> DistributionFlags<'_> {
        DistributionFlags { command: LoadCommand::Isolate, targets: &self.targets, output: None }
    }

    /// Returns the options of `--on`; `None` without `--on`.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(super) fn distributed_options(&self) -> anyhow::Result<Option<DistributedOptions>> {
        self.distributed_args
            .distributed_options(&self.command_io(), self.connection_args.unsupported_in_pods())
    }

    /// Returns true if two URLs are compared.
    pub(super) fn compares_two_urls(&self) -> bool {
        self.a.is_some()
    }

    /// Returns the time for the comparison and the searches together.
    pub(super) fn total_budget(&self) -> Duration {
        self.budget.unwrap_or(USUAL[usize::from(self.capacity)])
    }

    /// Time for the comparison.
    pub(super) fn comparison_budget(&self) -> Duration {
        if self.capacity { variant_capacity::study_budget(self.total_budget()) } else { self.total_budget() }
    }

    /// Checks all combinations of flags, and reports all errors at once.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let has_urls = self.url.is_some() || self.compares_two_urls() || self.experiment.is_some();
        let mut mistakes = self.request_args.validation_errors(has_urls);
        let mut refuse = |wrong: bool, text: &str| {
            if wrong {
                mistakes.push(text.to_owned());
            }
        };
        let two = self.compares_two_urls();
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
            "-timeout=0 sets no time limit, but an experiment must end: give a duration above 0",
        );
        refuse(self.redirects < -1, "-redirects must be at least -1");
        refuse(
            ReportFiles::is_same_file(self.json.as_deref(), self.html.as_deref()),
            "--json and --html need two different files",
        );
        mistakes.extend(self.max_rate.and_then(MaxRate::validation_error));
        mistakes.extend(search_goal(&self.slo).err().map(|error| format!("--slo: {error}")));
        mistakes.extend(self.connection_args.validation_errors());
        if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
    }

    fn check_budget(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(
            !self.capacity && self.total_budget() < LEAST,
            &format!("--budget must be at least {LEAST:?}: the first evaluation takes that long"),
        );
        refuse(
            self.capacity && self.total_budget() < variant_capacity::MIN_WHOLE_RUN_BUDGET,
            &format!(
                "--budget must be at least {:?} with --capacity: the first evaluation and two searches take that long",
                variant_capacity::MIN_WHOLE_RUN_BUDGET
            ),
        );
    }

    fn check_find(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(!self.capacity && !self.slo.is_empty(), "--slo needs --capacity");
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

#[cfg(test)]
mod tests {
    use seawall_lab::isolate::isolate_report::VariantVerdict;

    use super::super::factors::FACTOR_NAMES;
    use super::*;

    const FACTOR_HELP: &str = include_str!("../help/comparison.txt");

    #[test]
    fn every_factor_that_can_be_typed_is_in_the_help() {
        for factor in FACTOR_NAMES {
            let begins = |rest: &str| rest.starts_with([' ', '=']);
            let line = FACTOR_HELP.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(factor));
            assert!(line.is_some_and(begins), "{factor}");
        }
    }

    /// Two of them were in no list.
    #[test]
    fn every_verdict_that_is_written_is_in_the_help_and_in_the_specification() {
        let help = include_str!("../help/json.txt");
        let specification = include_str!("../../../../SPECIFICATION.md");
        for word in VariantVerdict::ALL {
            let word = serde_json::to_value(word).unwrap();
            let word = word.as_str().unwrap();
            assert!(
                [" ", "(", "\n"].iter().any(|before| help.contains(&format!("{before}{word}"))),
                "{word}"
            );
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
