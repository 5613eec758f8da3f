//! From flags to a plan: everything is read and checked here, every mistake in the flags is reported at once, and
//! nothing has been sent when one is found.

use std::fs::File;
use std::io::{Write as _, stderr, stdout};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context as _, bail};
use seawall_lab::generator_resources::{self, HostsAndStreams, MOST_IN_FLIGHT, RESERVED_DESCRIPTORS};
use seawall_load::clock::{Nanos, nanos};
use seawall_load::engine::{
    DEFAULT_LATE_SEND_TIME_AFTER_END, InFlightLimit, LoadSpec, ResultsOutput, RunPlan, SessionSetup,
    TransportOptions,
};
use seawall_load::input_files::InputFiles;
use seawall_load::load_profile;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestSource;
use seawall_load::results::ResultFormat;
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule, ScheduleShard, StopCondition};
use seawall_load::sender;

use super::args::{self, AttackArgs, MAX_KEPT_BODY_BYTES, OnSaturationFlag};
use super::load_args::RecordsOutput;
use super::targets::{RequestLimits, TargetFlags};

/// The plan of an attack that sends with so many cores at most, of files that are read so.
pub(crate) fn plan_attack(
    args: &AttackArgs,
    cpus: usize,
    files: &InputFiles,
    pods: u64,
) -> anyhow::Result<RunPlan> {
    check(args)?;
    let arrivals = arrivals(args, files)?;
    let style = args.connection_args.request_framing(args.chunked)?;
    let waits =
        RequestLimits { timeout: args.timeout, deadline: args.deadline, max_redirects: args.redirects };
    let mut travel = args.connection_args.to_transport_options(waits, &style, files)?;
    let source = source(args, &style, files)?;
    if let RequestSource::List(list) = &source {
        args.connection_args.warn_of_unused_connect_to(list.requests().iter().map(PreparedRequest::origin));
    }
    let in_flight = in_flight(args, &source, &mut travel, pods)?;
    let threads = args.threads.unwrap_or_else(|| threads(&arrivals, args.shard, cpus));
    let setup = SessionSetup {
        source,
        transport: travel,
        framing: style,
        max_threads: threads,
        busy_poll_max_wait: args.busy_poll.unwrap_or_else(|| generator_resources::max_busy_poll(threads)),
    };
    let load = LoadSpec {
        first_request_index: 0,
        name: args.name.clone(),
        arrivals,
        shard: args.shard,
        start_unix_ns: args.start_at.map(|start| start.0),
        stop_condition: until(args),
        error_budget: args.max_errors.map(|most| most.0),
        in_flight_limit: in_flight,
        // Clients of ab and vegeta ask again at once, whatever they were told.
        failure_pause: Duration::ZERO,
        warm_up: args.warm_up,
        late_send_time_after_end: DEFAULT_LATE_SEND_TIME_AFTER_END,
        drain_timeout: None,
        collect_target_outcomes: !args.prometheus_addr.is_empty(),
        max_response_samples_per_outcome: args.sample_responses,
        report_each_request: false,
        interval: args.interval.0,
    };
    Ok(RunPlan { session: setup, load })
}

/// Checks all combinations of flags, and reports all errors at once.
fn check(args: &AttackArgs) -> anyhow::Result<()> {
    let has_urls = !args.urls.is_empty();
    let mut mistakes = args.request_args.validation_errors(has_urls);
    let mut refuse = |wrong: bool, text: &str| {
        if wrong {
            mistakes.push(text.to_owned());
        }
    };
    refuse(has_urls && args.targets != "stdin", "a URL and -targets exclude each other: give one");
    refuse(
        has_urls && args.lazy,
        "-lazy reads targets until the end of a file: give -targets instead of a URL",
    );
    refuse(
        has_urls && args.connection_args.has_custom_idle_limit(),
        "-connections limits idle connections, as in vegeta. With a URL, give -c N for N clients (wrk's --connections), or --max-connections N",
    );
    let closed = args.is_closed_loop();
    refuse(
        closed && args.in_flight_limit().is_none(),
        "-rate=0 is a closed loop: give its number of clients with -max-workers",
    );
    refuse(
        closed && !matches!(args.arrivals, args::ArrivalSpacingFlag::Constant),
        "--arrivals needs a rate, but a closed loop has none",
    );
    refuse(
        closed && matches!(args.on_saturation, OnSaturationFlag::Drop),
        "--on-saturation=drop needs a rate, but a closed loop has none",
    );
    refuse(
        args.connection_timings && args.to == ResultFormat::Gob,
        "--connection-timings needs -to=json or -to=csv: vegeta's gob format has no fields for them",
    );
    refuse(
        closed && !args.shard.is_whole() && args.requests.is_none() && !args.lazy,
        "--shard divides the total number of requests, but a closed loop has no fixed total: add --requests or -lazy",
    );
    refuse(
        !closed && !args.shard.is_whole() && args.start_at.is_none(),
        "--shard with a rate needs the same --start-at on every generator",
    );
    refuse(args.max_workers == 0, "-max-workers must be above 0");
    refuse(args.concurrency == Some(0), "--concurrency must be above 0");
    refuse(args.requests == Some(0), "--requests must be above 0");
    refuse(args.threads == Some(0), "--threads must be above 0");
    refuse(args.redirects < -1, "-redirects must be at least -1");
    refuse(
        !args.send_duration().is_zero() && args.warm_up >= args.send_duration(),
        "--warm-up must be shorter than -duration",
    );
    mistakes.extend(args.connection_args.validation_errors());
    if mistakes.is_empty() { Ok(()) } else { bail!("{}", mistakes.join("\n")) }
}

fn arrivals(args: &AttackArgs, files: &InputFiles) -> anyhow::Result<ArrivalModel> {
    let spacing = match args.arrivals {
        args::ArrivalSpacingFlag::Constant => ArrivalSpacing::Constant,
        args::ArrivalSpacingFlag::Poisson => ArrivalSpacing::Poisson(args.seed),
        args::ArrivalSpacingFlag::Burst(size) => ArrivalSpacing::Burst(size),
    };
    if let Some(text) = &args.stages {
        let stages = load_profile::parse(text, |file| files.open(file)).context("--stages")?;
        let schedule = Schedule::new(stages, spacing);
        if schedule.end().is_some_and(|end| end <= nanos(args.warm_up)) {
            bail!("--warm-up must be shorter than --stages");
        }
        return Ok(ArrivalModel::Open(schedule));
    }
    Ok(match args.open_loop_rate().filter(|_| !args.is_closed_loop()) {
        Some(rate) => ArrivalModel::Open(Schedule::constant(rate, spacing)),
        None => ArrivalModel::Closed,
    })
}

fn until(args: &AttackArgs) -> StopCondition {
    let after = if args.send_duration().is_zero() { Nanos::MAX } else { nanos(args.send_duration()) };
    StopCondition { stop_time: after, max_requests: args.requests.unwrap_or(u64::MAX) }
}

/// Limits the requests in flight and sets the limit of connections: each needs a descriptor.
fn in_flight(
    args: &AttackArgs,
    source: &RequestSource,
    travel: &mut TransportOptions,
    pods: u64,
) -> anyhow::Result<InFlightLimit> {
    let files = raise_open_files()?;
    let room = files.saturating_sub(RESERVED_DESCRIPTORS);
    let whole = args.in_flight_limit().unwrap_or(u64::MAX);
    let wanted = if whole == u64::MAX { whole } else { whole.div_ceil(pods) };
    let spread = HostsAndStreams::of(source, travel, wanted != u64::MAX);
    let least = if wanted != u64::MAX && !spread.is_multiplexed() { wanted } else { 1 };
    if least > room {
        let needed = least.saturating_add(RESERVED_DESCRIPTORS);
        bail!(
            "{least} requests in flight need {needed} open files, but the limit is {files}: raise the limit in this shell, as \
             root, with prlimit --pid $$ --nofile={needed}"
        );
    }
    let (carried, connections) = spread.limits_for_descriptors(room, travel.max_connections as u64);
    travel.max_connections = usize::try_from(connections)?;
    let most = usize::try_from(wanted.min(carried).min(MOST_IN_FLIGHT).saturating_mul(pods).min(whole))?;
    let on_saturation = match args.on_saturation {
        OnSaturationFlag::Queue => sender::SaturationPolicy::Queue,
        OnSaturationFlag::Drop => sender::SaturationPolicy::Drop,
    };
    Ok(InFlightLimit { limit: most, on_saturation })
}

/// Clients that a closed loop may be told to have: each needs a connection.
pub(crate) fn max_closed_loop_clients() -> anyhow::Result<usize> {
    let room = raise_open_files()?.saturating_sub(RESERVED_DESCRIPTORS);
    Ok(usize::try_from(room.min(MOST_IN_FLIGHT))?)
}

fn raise_open_files() -> anyhow::Result<u64> {
    generator_resources::raise_open_files().context("cannot raise the open files limit")
}

/// A closed loop may use what there is.
fn threads(arrivals: &ArrivalModel, shard: ScheduleShard, cpus: usize) -> usize {
    match arrivals {
        ArrivalModel::Closed => cpus,
        ArrivalModel::Open(schedule) => {
            generator_resources::sender_threads(schedule.peak() / shard.shard_count() as f64, cpus)
        }
    }
}

fn source(args: &AttackArgs, style: &RequestFraming, files: &InputFiles) -> anyhow::Result<RequestSource> {
    let aim = TargetFlags {
        attack_name: &args.name,
        urls: args.urls.iter().map(String::as_str).collect(),
        targets_file: &args.targets,
        format: args.format,
        request_args: &args.request_args,
        expectation_args: &args.expectation_args,
        template_seed: args.template.then_some(args.seed),
        files,
    };
    let intake = aim.open_request_reader(style)?;
    if args.lazy {
        Ok(RequestSource::Lazy(intake))
    } else {
        aim.read_request_list(intake).map(RequestSource::List)
    }
}

/// Opens the output for results; `None` if none are written.
pub(crate) fn open_results_output(args: &AttackArgs) -> anyhow::Result<Option<ResultsOutput>> {
    let output: Box<dyn std::io::Write + Send> = match args.records_output() {
        RecordsOutput::Nowhere => return Ok(None),
        RecordsOutput::Stdout => Box::new(stdout()),
        RecordsOutput::File(file) => {
            Box::new(File::create(file).with_context(|| format!("cannot write {file}"))?)
        }
    };
    Ok(Some(build_results_output(args, output)))
}

/// Results that are written there.
pub(crate) fn build_results_output(
    args: &AttackArgs,
    output: Box<dyn std::io::Write + Send>,
) -> ResultsOutput {
    ResultsOutput {
        format: args.to,
        output,
        max_body: args.max_body.0,
        cut_body_callback: (args.max_body.0 == MAX_KEPT_BODY_BYTES).then_some(warn_of_cut_body),
        write_connection_timings: args.connection_timings,
        on_slow_output: args.on_slow_output.into(),
    }
}

/// Once, whichever thread comes first.
fn warn_of_cut_body(bytes: u64) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Nothing is lost if nobody can read it.
        let _ = writeln!(
            stderr(),
            "seawall: the results keep only the first 64 MiB of a body of {bytes} bytes, even with a larger -max-body"
        );
    });
}

/// True when results and not the summary go to standard output.
pub(crate) fn are_results_on_stdout(args: &AttackArgs) -> bool {
    args.records_output() == RecordsOutput::Stdout
}

/// Returns true if a response may fail a condition. Targets that are read during the run can have conditions of their own.
pub(crate) fn can_fail_expectations(plan: &RunPlan) -> bool {
    match &plan.session.source {
        RequestSource::List(list) => list.requests().iter().any(|request| request.expectations().is_some()),
        _ => true,
    }
}

/// True if a request of the run can be sent over HTTP/2: in clear text if that is asked for, and over TLS if the server agrees.
pub(crate) fn can_use_http2(plan: &RunPlan) -> bool {
    let http2 = &plan.session.transport.http2;
    http2.prior_knowledge
        || http2.over_tls
            && match &plan.session.source {
                RequestSource::List(list) => list.requests().iter().any(|request| request.origin().tls),
                _ => true,
            }
}

#[cfg(test)]
mod tests {
    use seawall_load::rate::RateSetting;

    use super::*;

    #[test]
    fn threads_are_as_many_as_the_rate_needs_and_no_more_than_cores() {
        let paced = |rate: &str| match rate.parse() {
            Ok(RateSetting::Exact(rate)) => {
                ArrivalModel::Open(Schedule::constant(rate, ArrivalSpacing::Constant))
            }
            other => panic!("{other:?}"),
        };
        let cases = [
            (ArrivalModel::Closed, 4, 4),
            (paced("1/s"), 4, 1),
            (paced("120000/s"), 4, 3),
            (paced("9000000/s"), 2, 2),
        ];
        for (arrivals, cpus, expected) in cases {
            assert_eq!(threads(&arrivals, ScheduleShard::default(), cpus), expected, "{arrivals:?}");
        }
        let third = ScheduleShard::new(0, 3).unwrap();
        assert_eq!(threads(&paced("120000/s"), third, 4), 1, "a third of the rate is sent here");
    }
}
