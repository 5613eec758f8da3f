//! What a run came to, on one screen: no line wider than a terminal of 80, or than a narrower one, and no more than 40 of them.
//!
//! What does not fit is counted, and stands in the files. A bracket is shown where there is one, beside the rates that were tested; a rate
//! that was only passed on the way up is never called what the target can do.

pub(super) mod closed_loop;
mod server_side;

use seawall_cause::class::CauseClass;
use seawall_lab::find::find_report::{
    FindConfig, FindOutcome, FindReport, FindStopReason, ReportedArrivals, ReportedCause,
    ReportedFailureMode, ReportedLimit, ReportedRecovery, ReportedTrial, ReportedVerdict,
};

use super::formatting::{
    format_confidence, format_count, format_named_estimate, format_percent, format_rate_without_unit,
    format_seconds,
};
use crate::text_wrap::{truncate_line, wrap_and_truncate};

/// The widest screen, in columns.
pub(super) const MAX_COLUMNS: usize = 80;
/// The narrowest screen, in columns.
const NARROW: usize = 40;
/// The width of the row names, in columns.
const NAMES: usize = 15;
/// Lines of a screen of [`MAX_COLUMNS`] columns; of a narrower one as many more as it takes to hold the same.
const HIGH: usize = 40;
/// Of each list that could be long, and lines of one text.
const EVIDENCE: usize = 3;
const WORDS: usize = 3;
const TEXT: usize = 4;

/// The whole screen, of so many columns.
pub(super) fn format_screen(answer: &FindReport, columns: usize) -> String {
    let mut sheet = FindScreen::new(columns.clamp(NARROW, MAX_COLUMNS));
    sheet.head(answer);
    sheet.limits(answer);
    sheet.target_traits(answer);
    sheet.targets_not_covered(answer);
    sheet.causes(answer);
    sheet.rest(answer);
    sheet.fit()
}

/// Lines, those first that must be seen.
struct FindScreen {
    wide: usize,
    lines: Vec<String>,
    /// Lines that there may be no room for, and are counted then.
    more: Vec<String>,
    foot: Vec<String>,
}

impl FindScreen {
    fn new(wide: usize) -> Self {
        Self { wide, lines: Vec::new(), more: Vec::new(), foot: Vec::new() }
    }

    fn head(&mut self, answer: &FindReport) {
        let (headline, [target, goal]) = format_headline_target_goal(answer);
        self.lines.extend(wrap_and_truncate("", &headline, 2, self.wide));
        self.row("target", &target);
        self.row("goal", &goal);
        if let Some((name, text)) = describe_stop_reason(answer) {
            self.row(name, &text);
        }
    }

    fn limits(&mut self, answer: &FindReport) {
        self.gap();
        if let Some(closed) = &answer.closed_loop {
            return closed_loop::closed_loop_rows(closed, answer)
                .into_iter()
                .for_each(|(name, text)| self.row(name, &text));
        }
        self.row("error cliff", &limit(&answer.breaking_rate, answer));
        if answer.config.slo.latency.is_some() {
            self.row("latency knee", &limit(&answer.latency_breaking_rate, answer));
        }
        if let Some(fails) = answer.failure_mode {
            self.row("overloaded", &format!("{}{}", in_words_of(fails), top_failure(answer)));
        }
        if let Some(goodput) = answer.goodput.filter(|_| answer.outcome != FindOutcome::UnstableBaseline) {
            self.row(
                "goodput",
                &format!("{} good responses/s in overload", format_rate_without_unit(goodput)),
            );
        }
    }

    fn target_traits(&mut self, answer: &FindReport) {
        if let Some(found) = answer.quota_exhaustion {
            let (after, goodput) = (
                format_count(found.after_requests),
                format_rate_without_unit(found.goodput_after_exhaustion),
            );
            self.row(
                "depletes",
                &format!("after {after} requests, the target serves only {goodput} requests/s: it does not sustain higher rates"),
            );
        }
        if let Some(burst) = answer.burst_requests.filter(|burst| *burst >= 1.0) {
            self.row(
                "burst",
                &format!(
                    "the target serves about {} requests above its limit before it breaks",
                    format_count(burst)
                ),
            );
        }
        if answer.closed_loop.is_none() && answer.is_found() || answer.recovery != ReportedRecovery::default()
        {
            self.row("recovery", &recovery(answer));
        }
        if let Some(held) = answer.untested_burst.filter(|_| answer.outcome != FindOutcome::UnstableBaseline)
        {
            let (rate, time, requests) = (
                format_rate_without_unit(held.rate),
                format_seconds(held.held_seconds),
                format_count(held.requests),
            );
            self.row(
                "not tested",
                &format!(
                    "whether the target has a burst allowance above {requests} requests (the target sustained {rate} requests/s for only {time})"
                ),
            );
        }
    }

    /// That a list of targets is longer than what all trials sent: a cache may hide a lower limit.
    fn targets_not_covered(&mut self, answer: &FindReport) {
        let sent: u64 = answer.trials.iter().map(ReportedTrial::sent_requests).sum();
        let targets = answer.config.target_count as u64;
        if sent < targets && answer.is_found() {
            let (sent, targets) = (format_count(sent as f64), format_count(targets as f64));
            self.row(
                "not covered",
                &format!("the trials sent {sent} requests to a list of {targets} targets: the targets without a request can have a lower limit"),
            );
        }
    }

    fn causes(&mut self, answer: &FindReport) {
        self.gap();
        match &answer.cause {
            None if answer.closed_loop.is_some() => {
                self.row("cause", "not searched with --closed-loop");
            }
            None => self.row("cause", "not searched"),
            Some(cause) if is_unknown_cause(cause) => self.cause("cause", &unknown(answer), cause),
            Some(cause) => self.cause("cause", &held(cause, &candidate_causes(answer)), cause),
        }
        answer
            .other_causes
            .iter()
            .take(2)
            .for_each(|cause| self.cause("and", &held(cause, &[&cause.name]), cause));
        self.target_lost(answer);
        for tie in answer.ambiguous_causes.iter().take(2) {
            self.row("cannot tell", &format!("{}: {}", tie.causes.join(" from "), tie.how_to_tell));
        }
        server_side::evidence_rows(answer, self.wide)
            .into_iter()
            .for_each(|(name, text)| self.row(name, &text));
    }

    /// That the target is no longer there, and what it said of itself around that, beyond what speaks for a cause.
    fn target_lost(&mut self, answer: &FindReport) {
        let Some(since) = &answer.target_lost_during else { return };
        self.row(
            "target lost",
            &format!(
                "the target stopped answering during the experiment \"{since}\"; the cause is based only on the experiments before it"
            ),
        );
        let last = answer.server_metrics.last().map(|window| window.facts.iter());
        let facts = last.into_iter().flatten().filter(|fact| fact.cause.is_none());
        for fact in facts.take(WORDS) {
            self.row("", &format!("- server metrics: {}", fact.text));
        }
    }

    fn cause(&mut self, name: &str, class: &str, cause: &ReportedCause) {
        let figures: Vec<_> = cause.estimates.iter().filter_map(format_named_estimate).collect();
        let figures = if figures.is_empty() { String::new() } else { format!("; {}", figures.join(", ")) };
        self.row(name, &format!("{class}{figures}"));
        for sign in cause.evidence.iter().take(EVIDENCE) {
            let times = sign.likelihood_ratio.map_or_else(String::new, |ratio| {
                format!(", {} times likelier", format_rate_without_unit(ratio))
            });
            self.row("", &format!("- {} ({}{times})", sign.observation, sign.experiment));
        }
    }

    fn rest(&mut self, answer: &FindReport) {
        let mut more = Self::new(self.wide);
        let excluded = answer.excluded_causes.iter().map(|out| (&*out.name, &*out.reason));
        more.classes("excluded", excluded);
        more.classes("undecided", answer.undecided_causes.iter().map(|not| (&*not.name, &*not.reason)));
        let silent = server_side::unchanged_counter_rows(answer, self.wide);
        silent.into_iter().for_each(|(name, text)| more.row(name, &text));
        self.more = more.lines;
        let number =
            |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (trials, tried) =
            (number(answer.trials.len(), "trial"), number(answer.experiments.len(), "experiment"));
        let mut foot = Self::new(self.wide);
        foot.gap();
        let disturbed =
            disturbed_trials(answer).map_or_else(String::new, |disturbed| format!("; {disturbed}"));
        foot.row(
            "",
            &format!("{trials} and {tried} in {}{disturbed}", format_seconds(answer.duration_seconds)),
        );
        self.foot = foot.lines;
    }

    /// Classes of which the same is said, in one row for all of them.
    fn classes<'a>(&mut self, name: &str, said: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
        for (class, why) in said {
            match groups.iter_mut().find(|group| group.1 == why) {
                Some(group) => group.0.push(class),
                None => groups.push((vec![class], why)),
            }
        }
        for (at, (classes, why)) in groups.iter().enumerate() {
            let classes = classes.join(", ");
            let text = server_side::shorten_list(why, self.wide, |why| format!("{classes}: {why}"));
            self.row(if at == 0 { name } else { "" }, &text);
        }
    }

    /// An empty line, but no two.
    fn gap(&mut self) {
        self.lines.push(String::new());
    }

    /// A name and a text that goes on below itself, for some lines.
    fn row(&mut self, name: &str, text: &str) {
        let begin = format!("  {name:<width$}", width = NAMES - 2);
        let (mut lines, most) =
            (wrap_and_truncate(&begin, text, NAMES, self.wide), lines_of(TEXT, self.wide));
        if lines.len() > most {
            lines.truncate(most);
            lines.push(format!("{:NAMES$}…", ""));
        }
        self.lines.extend(lines);
    }

    fn fit(self) -> String {
        let (high, wide) = (lines_of(HIGH, self.wide), self.wide);
        let Self { mut lines, mut more, foot, .. } = self;
        let room = high.saturating_sub(lines.len() + foot.len());
        if more.len() > room {
            let left = more.len() + 1 - room;
            more.truncate(room.saturating_sub(1));
            more.push(truncate_line(
                &format!("{:NAMES$}… {left} more lines: see --json or --html", ""),
                wide,
            ));
        }
        lines.extend(more);
        // Only evidence without end could have come so far.
        lines.truncate(high - foot.len());
        lines.extend(foot);
        lines.join("\n") + "\n"
    }
}

/// What a reader must know if they read no more; then of whom, and by what goal.
pub(super) fn format_headline_target_goal(answer: &FindReport) -> (String, [String; 2]) {
    let goal = match &answer.closed_loop {
        Some(closed) => closed_loop::format_goal(closed, &answer.config),
        None => goal(&answer.config),
    };
    (headline(answer), [asked(&answer.config), goal])
}

/// How many trials this machine disturbed, in words, and which of them count.
fn disturbed_trials(answer: &FindReport) -> Option<String> {
    let count = |is: fn(&ReportedTrial) -> bool| answer.trials.iter().filter(|trial| is(trial)).count();
    let invalid = count(|trial| trial.invalid_reason.is_some() && trial.port_exhaustions == 0);
    let delayed = count(|trial| trial.generator_delay.is_some());
    let share = match (invalid, delayed) {
        (0, 0) => return None,
        (_, 0) => "disturbed trials do not count".to_owned(),
        (0, _) => {
            "the delay does not change the verdicts of these trials, but these trials count less".to_owned()
        }
        _ => format!(
            "{invalid} disturbed trials do not count, and the delay does not change the verdicts of the others"
        ),
    };
    let all = invalid + delayed;
    Some(format!("this machine disturbed {all} trial{}: {share}", if all == 1 { "" } else { "s" }))
}

/// As many lines as hold what so many of the widest do.
fn lines_of(most: usize, wide: usize) -> usize {
    (most * MAX_COLUMNS).div_ceil(wide)
}

/// Whether a row has room for the whole of a text.
fn fits(text: &str, wide: usize) -> bool {
    wrap_and_truncate(&" ".repeat(NAMES), text, NAMES, wide).len() <= lines_of(TEXT, wide)
}

/// The likeliest cause, and before it is said how sure that is, those that cannot be told from it.
pub(super) fn candidate_causes(answer: &FindReport) -> Vec<&str> {
    let Some(cause) = &answer.cause else { return Vec::new() };
    let is_open = |class: &str| answer.other_causes.iter().all(|also| also.name != class);
    let tied =
        answer.ambiguous_causes.iter().map(|tie| &tie.causes).filter(|between| between.contains(&cause.name));
    let mut classes = vec![&*cause.name];
    for class in tied.flatten().filter(|class| is_open(class)) {
        if !classes.contains(&&**class) {
            classes.push(class);
        }
    }
    classes
}

/// What holds, of classes that cannot be told apart, and how sure that is.
fn held(cause: &ReportedCause, candidates: &[&str]) -> String {
    let sure = format_confidence(cause.score);
    match candidates {
        [] | [_] if is_generator_cause(cause) => cause.name.clone(),
        [] | [_] => format!("{} ({sure} sure)", cause.name),
        several => format!("{} ({sure} sure that one of these is the cause)", several.join(" or ")),
    }
}

/// Why no class is named: what would tell some may not have had the room for it.
fn unknown(answer: &FindReport) -> String {
    let barred = answer.undecided_causes.iter().filter(|not| not.needs_higher_max_rate);
    let barred: Vec<_> = barred.map(|not| &*not.name).collect();
    match barred.as_slice() {
        [] => "unknown: the observations fit no known cause".to_owned(),
        classes => format!("unknown: --max-rate is too low for the experiments on {}", classes.join(" or ")),
    }
}

/// Whether it is no class at all.
pub(super) fn is_unknown_cause(cause: &ReportedCause) -> bool {
    cause.name == "unknown"
}

/// Whether this machine's own checks name the cause: such a cause has no probability.
pub(super) fn is_generator_cause(cause: &ReportedCause) -> bool {
    cause.name == CauseClass::Generator.slug()
}

fn headline(answer: &FindReport) -> String {
    if let Some(closed) = &answer.closed_loop {
        return closed_loop::format_headline(closed, answer);
    }
    let is_roughly = answer.outcome == FindOutcome::Found && is_rough(answer);
    format_outcome_line(answer) + if is_roughly { "; --thorough narrows this range" } else { "" }
}

/// How it ended, and the limit or what was held, in one line.
pub(crate) fn format_outcome_line(answer: &FindReport) -> String {
    let ReportedLimit { lower, highest_good_rate: good, .. } = answer.breaking_rate;
    let between = format_limit_range(&answer.breaking_rate);
    // Errors below one in a thousand take thousands of answers to tell: what only broke nothing is said so.
    let offered = answer.untested_burst.map(|held| {
        format!(
            "{}/s was sustained for {}",
            format_rate_without_unit(held.rate),
            format_seconds(held.held_seconds)
        )
    });
    let held = match good {
        Some(good) => format!("{}/s was sustained", format_rate_without_unit(good)),
        None => offered.unwrap_or_else(|| "no rate was sustained".to_owned()),
    };
    match answer.outcome {
        FindOutcome::Found if answer.quota_exhaustion.is_some() => {
            format!("FOUND: the target breaks {between}, once its burst allowance is used up")
        }
        FindOutcome::Found if answer.is_latency_limit() => {
            format!(
                "FOUND: the target does not break, but responses become late {}",
                format_limit_range(&answer.latency_breaking_rate)
            )
        }
        FindOutcome::Found if is_rough(answer) => format!("FOUND, roughly: the target breaks {between}"),
        FindOutcome::Found => format!("FOUND: the target breaks {between}"),
        FindOutcome::Metastable => format!("METASTABLE: the target breaks {between} and does not recover"),
        FindOutcome::NoLimitFound => {
            format!("NO LIMIT FOUND: the target did not break up to --max-rate; {held}")
        }
        FindOutcome::GeneratorLimited => {
            format!(
                "GENERATOR-LIMITED: the target's limit is unknown, because the generator was the limit; {held}"
            )
        }
        FindOutcome::UnstableBaseline => unstable(answer),
        FindOutcome::TargetDied => format!("TARGET DIED: the target stopped answering; {held}"),
        FindOutcome::Undecided if lower.is_some() => {
            format!("UNDECIDED: the target may break {between}; the trials do not agree")
        }
        FindOutcome::Undecided => format!("UNDECIDED: the trials do not agree on a limit; {held}"),
        FindOutcome::Interrupted if lower.is_some() => {
            format!("INTERRUPTED: so far, the target breaks {between}")
        }
        FindOutcome::Interrupted => format!("INTERRUPTED: no limit was found; {held}"),
    }
}

/// In which a limit is.
pub(crate) fn format_limit_range(limit: &ReportedLimit) -> String {
    match (
        limit.lower.zip(limit.upper),
        limit.highest_good_rate.zip(limit.lowest_bad_rate),
        limit.lowest_bad_rate,
    ) {
        (Some((lower, upper)), ..) => {
            format!(
                "between {} and {} requests/s",
                format_rate_without_unit(lower),
                format_rate_without_unit(upper)
            )
        }
        (None, Some((good, bad)), _) => {
            format!(
                "between {} and {} requests/s, as far as tested",
                format_rate_without_unit(good),
                format_rate_without_unit(bad)
            )
        }
        (None, None, Some(bad)) => format!("at {} requests/s or below", format_rate_without_unit(bad)),
        (None, None, None) => "at an unknown rate".to_owned(),
    }
}

/// Beyond this factor a bracket is a guess at where to look.
const WIDEST: f64 = 2.0;

/// Of a cliff that lasts.
fn is_rough(answer: &FindReport) -> bool {
    let ReportedLimit { lower, upper, .. } = answer.breaking_rate;
    let is_wide = lower.zip(upper).is_some_and(|(lower, upper)| upper > WIDEST * lower);
    is_wide && answer.quota_exhaustion.is_none() && !answer.is_latency_limit()
}

/// The goal is not kept at the first rate, or at none.
fn unstable(answer: &FindReport) -> String {
    let highest = answer.trials.iter().map(|trial| trial.rate).fold(0.0, f64::max);
    match answer.trials.as_slice() {
        [] => "UNSTABLE BASELINE: the target misses the goal even at very low load".to_owned(),
        [only] => format!("UNSTABLE BASELINE: at {}/s, {}", format_rate_without_unit(only.rate), only.reason),
        [first, ..] => format!(
            "UNSTABLE BASELINE: the target misses the goal at every tested rate from {}/s to {}/s",
            format_rate_without_unit(first.rate),
            format_rate_without_unit(highest)
        ),
    }
}

fn asked(asked: &FindConfig) -> String {
    let by = asked.request_fingerprint.as_ref().and_then(|sent| sent.via.as_deref());
    let by = by.map_or_else(String::new, |by| format!(" {by}"));
    match asked.target_count {
        0 | 1 => format!("{}{by}", asked.target),
        many => format!("{many} targets, the first {}{by}", asked.target),
    }
}

fn goal(asked: &FindConfig) -> String {
    let arrivals = match asked.arrivals {
        ReportedArrivals::Constant => "constant",
        ReportedArrivals::Poisson => "poisson",
    };
    let connections = if asked.connections.keep_alive { "keep-alive" } else { "one connection per request" };
    let most = asked
        .max_rate
        .map_or_else(String::new, |most| format!(", at most {}/s", format_rate_without_unit(most)));
    format!(
        "{}; {arrivals} arrivals, {connections} ({}), {}{most}",
        format_slo(asked),
        asked.connections.protocol,
        asked.effort
    )
}

/// Of latency and errors.
pub(crate) fn format_slo(asked: &FindConfig) -> String {
    let late = asked.slo.latency.map(|late| {
        let quantile = format_percent(1.0 - late.max_late_ratio);
        format!("p{} below {}, ", quantile.trim_end_matches(" %"), format_seconds(late.limit_seconds))
    });
    format!("{}errors below {}", late.unwrap_or_default(), format_percent(asked.slo.max_error_ratio))
}

/// What ended a run early, with a name for it; of one that has its limit only what was left out.
pub(super) fn describe_stop_reason(answer: &FindReport) -> Option<(&'static str, String)> {
    let left_out = answer.not_run.join("; ");
    if let Some(reason) = &answer.undecided_reason {
        return Some(("undecided", reason.clone()));
    }
    Some(match answer.stop_reason? {
        FindStopReason::Inconclusive => return None,
        FindStopReason::Signal => {
            ("cut short", "the run was stopped on request; continue it with --resume".to_owned())
        }
        FindStopReason::Budget if answer.is_found() && !left_out.is_empty() => {
            ("left out", format!("{left_out}: too little of the budget (--budget) was left; continue with --resume"))
        }
        FindStopReason::Budget => {
            ("cut short", "too little of the budget (--budget) was left for the next trials; continue the run with --resume".to_owned())
        }
    })
}

/// The most frequent failure of the failed trial with the most failures, after a colon; empty without failures.
fn top_failure(answer: &FindReport) -> String {
    let failed = answer.trials.iter().filter(|trial| trial.verdict == ReportedVerdict::Bad);
    let most = failed
        .filter(|trial| trial.top_failure.is_some())
        .max_by(|one, other| one.error_ratio.total_cmp(&other.error_ratio));
    let failure = most.and_then(|trial| trial.top_failure.as_ref());
    failure.map_or_else(String::new, |failure| {
        let share = if failure.ratio > 0.995 { "" } else { "mostly " };
        format!(": {share}{}", failure.kind)
    })
}

fn in_words_of(fails: ReportedFailureMode) -> &'static str {
    match fails {
        ReportedFailureMode::Rejecting => "responses stay fast, and some are errors",
        ReportedFailureMode::Hanging => "responses stay fast, and some never come",
        ReportedFailureMode::BoundedQueue => "responses become slow, and some are errors",
        ReportedFailureMode::Queueing => "responses become slow",
        ReportedFailureMode::Crashing => "the target stops answering until it is restarted",
    }
}

/// The bracket, and beside it what was tested.
fn limit(limit: &ReportedLimit, answer: &FindReport) -> String {
    let bracket = match (limit.lower, limit.estimate, limit.upper) {
        (Some(lower), Some(point), Some(upper)) => {
            let so_far = if answer.is_found() { "" } else { " so far" };
            format!(
                "{}/s, 97 % interval {} to {}{so_far}; ",
                format_rate_without_unit(point),
                format_rate_without_unit(lower),
                format_rate_without_unit(upper)
            )
        }
        _ if answer.is_found() => "no interval; tested: ".to_owned(),
        _ => "not found; tested: ".to_owned(),
    };
    let good = limit.highest_good_rate.map(|good| {
        let time =
            limit.held_seconds.map_or_else(String::new, |time| format!(" for {}", format_seconds(time)));
        format!("GOOD {}/s{time}", format_rate_without_unit(good))
    });
    let bad = limit.lowest_bad_rate.map(|bad| format!("BAD {}/s", format_rate_without_unit(bad)));
    let tested: Vec<_> = good.into_iter().chain(bad).collect();
    // What was held so briefly that its errors cannot be told is held all the same, and no verdict.
    let briefly =
        answer.untested_burst.filter(|_| answer.outcome != FindOutcome::UnstableBaseline).map(|held| {
            let goal = format_percent(answer.config.slo.max_error_ratio);
            format!(
                "{}/s for {}, too few responses to judge an error share below {goal}",
                format_rate_without_unit(held.rate),
                format_seconds(held.held_seconds)
            )
        });
    let tested = match briefly {
        _ if !tested.is_empty() => tested.join(", "),
        Some(briefly) => briefly,
        None => "no rate".to_owned(),
    };
    format!("{bracket}{tested}")
}

fn recovery(answer: &FindReport) -> String {
    let calm = answer
        .recovery
        .time_seconds
        .map(|calm| format!("responses are fast again {} after the overload", format_seconds(calm)));
    let holds = match answer.recovery.is_recovered {
        Some(true) => {
            let queue = format_seconds(answer.recovery.queue_seconds.unwrap_or_default());
            return calm
                .into_iter()
                .chain([format!(
                    "the target sustains its earlier rate at once after a queue of {queue} (longer queues were not tested)"
                )])
                .collect::<Vec<_>>()
                .join("; ");
        }
        Some(false) => "the target no longer sustains its earlier rate",
        None if answer.outcome == FindOutcome::Metastable => "the target recovers only without load",
        None => "it was not tested whether the target sustains its earlier rate again",
    };
    calm.into_iter().chain([holds.to_owned()]).collect::<Vec<_>>().join("; ")
}
