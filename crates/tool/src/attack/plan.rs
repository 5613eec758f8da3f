//! From flags to a plan: everything is read and checked here, every mistake in the flags is reported at once, and
//! nothing has been sent when one is found.

use std::fs::File;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::means::{self, MOST_IN_FLIGHT, OTHER_FILES, Spread};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::engine::{GRACE, InFlight, Load, Plan, Results, Setup, Travel};
use seawall_load::files::Files;
use seawall_load::profile;
use seawall_load::rate::Pace;
use seawall_load::request::Style;
use seawall_load::results::Format;
use seawall_load::schedule::{Arrivals, Schedule, Slice, Spacing, Until};
use seawall_load::shard;
use seawall_load::supply::Source;
use seawall_load::target::header;

use super::aim::{Aim, Waits};
use super::args::{self, Args, WhenBusy};

/// The plan of an attack that sends with so many cores at most, of files that are read so.
pub(crate) fn plan(args: &Args, cpus: usize, files: &Files, pods: u64) -> anyhow::Result<Plan> {
    check(args)?;
    let arrivals = arrivals(args, files)?;
    let style = args.travel.style(args.chunked)?;
    let waits = Waits { timeout: args.timeout, deadline: args.deadline, redirects: args.redirects };
    let mut travel = args.travel.engine(waits, &style, files)?;
    let source = source(args, &style, files)?;
    let in_flight = in_flight(args, &source, &mut travel, pods)?;
    let threads = args.threads.unwrap_or_else(|| threads(&arrivals, args.slice, cpus));
    let setup =
        Setup { source, travel, style, threads, spin: args.spin.unwrap_or_else(|| means::spin(threads)) };
    let load = Load {
        name: args.name.clone(),
        arrivals,
        slice: args.slice,
        start_at: args.start_at.map(|start| start.0),
        until: until(args),
        errors: args.max_errors.map(|most| most.0),
        in_flight,
        // Clients of ab and vegeta ask again at once, whatever they were told.
        pause: Duration::ZERO,
        warm_up: args.warm_up,
        grace: GRACE,
        patience: None,
        by_outcome: !args.prometheus_addr.is_empty(),
        evidence: args.evidence,
        by_hit: false,
        cadence: args.cadence.0,
    };
    Ok(Plan { setup, load })
}

/// What no single flag can know. All of it is said at once.
fn check(args: &Args) -> anyhow::Result<()> {
    let mut mistakes: Vec<String> =
        args.header.iter().filter_map(|line| Some(header(line).err()?.to_string())).collect();
    let mut refuse = |wrong: bool, text: &str| {
        if wrong {
            mistakes.push(text.to_owned());
        }
    };
    let unbounded = args.max_workers == u64::MAX && args.concurrency.is_none();
    refuse(
        args.rate == Pace::Unlimited && args.profile.is_none() && unbounded,
        "-rate=0 is a closed loop: it needs -max-workers, the number of clients",
    );
    let closed = args.profile.is_none() && (args.rate == Pace::Unlimited || args.concurrency.is_some());
    refuse(
        closed && !matches!(args.arrivals, args::Arrivals::Even),
        "--arrivals spaces the hits of a rate, and a closed loop has none",
    );
    refuse(
        closed && matches!(args.when_busy, WhenBusy::Drop),
        "--when-busy=drop drops what is due while there is no room, and in a closed loop nothing is",
    );
    refuse(
        args.with_connections && args.to == Format::Gob,
        "--with-connections needs -to=json or -to=csv: vegeta's gob has no place for it",
    );
    refuse(
        closed && !args.slice.is_whole() && args.requests.is_none() && !args.lazy,
        "--slice divides hits among generators, and a closed loop without --requests or -lazy has no number of them",
    );
    refuse(
        !closed && !args.slice.is_whole() && args.start_at.is_none(),
        "--slice of a rate needs --start-at, the same for every generator, or they send no schedule together",
    );
    refuse(args.max_workers == 0, "-max-workers must be above 0");
    refuse(args.concurrency == Some(0), "--concurrency must be above 0");
    refuse(args.requests == Some(0), "--requests must be above 0");
    refuse(args.threads == Some(0), "--threads must be above 0");
    refuse(args.redirects < -1, "-redirects must be -1 or more");
    refuse(
        !args.duration.is_zero() && args.warm_up >= args.duration,
        "--warm-up must be shorter than -duration, or nothing is measured",
    );
    mistakes.extend(args.travel.mistakes());
    if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
}

fn arrivals(args: &Args, files: &Files) -> anyhow::Result<Arrivals> {
    let spacing = match args.arrivals {
        args::Arrivals::Even => Spacing::Even,
        args::Arrivals::Poisson => Spacing::Poisson(args.seed),
        args::Arrivals::Burst(size) => Spacing::Burst(size),
    };
    if let Some(text) = &args.profile {
        let stages = profile::parse(text, |file| files.open(file)).context("--profile")?;
        let schedule = Schedule::new(stages, spacing);
        if schedule.end().is_some_and(|end| end <= nanos(args.warm_up)) {
            bail!("--warm-up must be shorter than --profile, or nothing is measured");
        }
        return Ok(Arrivals::Open(schedule));
    }
    Ok(match args.rate {
        Pace::Exact(rate) if args.concurrency.is_none() => Arrivals::Open(Schedule::constant(rate, spacing)),
        _ => Arrivals::Closed,
    })
}

fn until(args: &Args) -> Until {
    let after = if args.duration.is_zero() { Nanos::MAX } else { nanos(args.duration) };
    Until { after, hits: args.requests.unwrap_or(u64::MAX) }
}

/// What may be in flight at once, and how many connections that takes: each needs a descriptor.
fn in_flight(args: &Args, source: &Source, travel: &mut Travel, pods: u64) -> anyhow::Result<InFlight> {
    let files = raise_open_files()?;
    let room = files.saturating_sub(OTHER_FILES);
    let whole = args.concurrency.unwrap_or(args.max_workers);
    let wanted = if whole == u64::MAX { whole } else { whole.div_ceil(pods) };
    let spread = Spread::of(source, travel, wanted != u64::MAX);
    let least = if wanted != u64::MAX && !spread.is_multiplexed() { wanted } else { 1 };
    if least > room {
        let needed = least.saturating_add(OTHER_FILES);
        bail!(
            "{least} in flight needs {needed} open files, the limit is {files}: raise it in this shell, as root, with \
             prlimit --pid $$ --nofile={needed}"
        );
    }
    let (carried, connections) = spread.within(room, travel.connections as u64);
    travel.connections = usize::try_from(connections)?;
    let most = usize::try_from(wanted.min(carried).min(MOST_IN_FLIGHT).saturating_mul(pods).min(whole))?;
    let when_busy = match args.when_busy {
        WhenBusy::Queue => shard::WhenBusy::Queue,
        WhenBusy::Drop => shard::WhenBusy::Drop,
    };
    Ok(InFlight { most, when_busy })
}

/// Clients that a closed loop may be told to have: each needs a connection.
pub(crate) fn most_clients() -> anyhow::Result<usize> {
    let room = raise_open_files()?.saturating_sub(OTHER_FILES);
    Ok(usize::try_from(room.min(MOST_IN_FLIGHT))?)
}

fn raise_open_files() -> anyhow::Result<u64> {
    means::raise_open_files().context("cannot raise the open files limit")
}

/// A closed loop may use what there is.
fn threads(arrivals: &Arrivals, slice: Slice, cpus: usize) -> usize {
    match arrivals {
        Arrivals::Closed => cpus,
        Arrivals::Open(schedule) => means::threads(schedule.peak() / slice.of() as f64, cpus),
    }
}

fn source(args: &Args, style: &Style, files: &Files) -> anyhow::Result<Source> {
    let aim = Aim {
        name: &args.name,
        targets: &args.targets,
        format: args.format,
        header: &args.header,
        body: &args.body,
        template: args.template.then_some(args.seed),
        files,
    };
    let intake = aim.intake(style)?;
    if args.lazy { Ok(Source::Lazy(intake)) } else { aim.list(intake).map(Source::List) }
}

/// Where results go, if anywhere.
pub(crate) fn results(args: &Args) -> anyhow::Result<Option<Results>> {
    let output: Box<dyn std::io::Write + Send> = match args.output.as_str() {
        "none" => return Ok(None),
        "stdout" | "-" if stdout().is_terminal() => return Ok(None),
        "stdout" | "-" => Box::new(stdout()),
        file => Box::new(File::create(file).with_context(|| format!("cannot write {file}"))?),
    };
    Ok(Some(recorded(args, output)))
}

/// Results that are written there.
pub(crate) fn recorded(args: &Args, output: Box<dyn std::io::Write + Send>) -> Results {
    Results {
        format: args.to,
        output,
        max_body: args.max_body.0,
        carriage: args.with_connections,
        when_full: args.when_full.into(),
    }
}

/// True when results and not the summary go to standard output.
pub(crate) fn results_on_stdout(args: &Args) -> bool {
    matches!(args.output.as_str(), "stdout" | "-") && !stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_as_many_as_the_rate_needs_and_no_more_than_cores() {
        let paced = |rate: &str| match rate.parse() {
            Ok(Pace::Exact(rate)) => Arrivals::Open(Schedule::constant(rate, Spacing::Even)),
            other => panic!("{other:?}"),
        };
        let cases = [
            (Arrivals::Closed, 4, 4),
            (paced("1/s"), 4, 1),
            (paced("120000/s"), 4, 3),
            (paced("9000000/s"), 2, 2),
        ];
        for (arrivals, cpus, expected) in cases {
            assert_eq!(threads(&arrivals, Slice::default(), cpus), expected, "{arrivals:?}");
        }
        let third = Slice::new(0, 3).unwrap();
        assert_eq!(threads(&paced("120000/s"), third, 4), 1, "a third of the rate is sent here");
    }
}
