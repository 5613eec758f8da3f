//! `seawall doctor`: what is wrong with this node or pod before any load is sent.
//!
//! Reads flags, lends the checks of the crate `doctor` a machine and a clock, and shows what they say: [`screen`] for people, [`json_document`] for
//! programs. Knows no check by name.

mod json_document;
mod screen;

use std::io::{ErrorKind, Write as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustix::event::{Timespec, poll};
use rustix::termios::tcgetwinsize;
use seawall_core::{Clock, file};
use seawall_doctor::{
    ALL, CheckContext, DoctorCheck, DoctorFinding, DoctorStatus, HttpUrl, NetworkFetcher, checked_name,
};
use seawall_probe::LocalFiles;

use self::json_document::DoctorReport;
use crate::atomic_file::{AtomicFile, is_stdout};
use crate::exit;

/// Flags of `seawall doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Checks to run, as --list names them [default: all]
    #[arg(value_name = "CHECK", value_parser = check)]
    checks: Vec<&'static DoctorCheck>,
    /// List the checks and what each check can find; run no check
    #[arg(long, conflicts_with_all = ["json", "checks"])]
    list: bool,
    /// File for the findings as JSON; - is standard output, and the text then goes to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the DNS lookup of this name; write the name exactly as your programs do; repeatable
    #[arg(long, value_name = "NAME", value_parser = checked_name)]
    lookup: Vec<String>,
    /// File with the resolver's configuration [default: /etc/resolv.conf]
    #[arg(long, value_name = "FILE")]
    resolv_conf: Option<String>,
    /// URL of Envoy's admin port [default: http://127.0.0.1:15000 (Istio's), then :9901]
    #[arg(long, value_name = "URL", value_parser = place)]
    envoy_admin: Option<HttpUrl>,
}

fn place(url: &str) -> Result<HttpUrl, &'static str> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    HttpUrl::of_url(&url).ok_or("expected a URL such as http://127.0.0.1:9901")
}

fn check(name: &str) -> Result<&'static DoctorCheck, String> {
    let known = || ALL.iter().map(|check| check.id).collect::<Vec<_>>().join(", ");
    let found = ALL.iter().find(|check| check.id == name);
    found.ok_or_else(|| format!("unknown check: expected one of {}", known()))
}

const HELP: &str = "\
doctor examines the machine, pod or container in which it runs, and changes nothing. It sends only DNS questions (check dns), requests to Envoy's \
admin address (sidecar), and requests to metadata servers (identity). The requests of identity go to the addresses that SDKs use, such as those in GCE_METADATA_HOST, AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_CONTAINER_CREDENTIALS_FULL_URI and IDENTITY_ENDPOINT. doctor names the servers of Azure's Service Fabric, Arc and Cloud Shell, but sends them no request. It shows no credential. A check takes at most five seconds. doctor does not need root, but sees less without root. It reports what it cannot see as unknown, and says where to look.

Exit code: 0 nothing is wrong; 9 an error (a problem that does harm now or soon); 10 a warning and no error; 8 doctor found nothing wrong, but could not see everything; 1 a file cannot be used; 2 a flag, a check or a value does not exist.

Example: seawall doctor
         seawall doctor dns --lookup api.example.com
         seawall doctor identity
         seawall doctor sidecar --envoy-admin http://127.0.0.1:9901
         seawall doctor ports --json -";

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or written, named.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        return show(&screen::format_check_list(ALL, width(false)), false).map(|()| ExitCode::SUCCESS);
    }
    let checks = chosen(&args.checks);
    if let Some(path) = &args.resolv_conf {
        check_configuration(path)?;
    }
    // Before anything is looked at, so that what could not be written is not looked for.
    let draft = args.json.as_deref().map(AtomicFile::create).transpose()?;
    let beside = args.json.as_deref().is_some_and(is_stdout);
    let width = width(beside);
    let found =
        examine(&checks, args, |check, found| show(&screen::format_check(check.id, found, width), beside))?;
    let worst = found.iter().map(|finding| finding.status).max().unwrap_or(DoctorStatus::Ok);
    if let Some(draft) = draft {
        draft.write_and_commit(&DoctorReport::new(worst, &found).to_json()?)?;
    }
    show(&screen::format_counts(&found), beside)?;
    Ok(ExitCode::from(exit_code(worst)))
}

/// The largest `resolv.conf`: of a thousand times a pod's.
const LARGEST: usize = 64 << 10;

/// A configuration that is not there is told of by the check, which looks at more than that.
fn check_configuration(path: &str) -> anyhow::Result<()> {
    match Path::new(path).try_exists() {
        Ok(true) => file::read_text(Path::new(path), LARGEST)
            .map(drop)
            .map_err(|why| anyhow!("--resolv-conf: {path} {why}")),
        _ => Ok(()),
    }
}

/// These checks, in the order of the list and each once; all if none is named.
fn chosen(named: &[&'static DoctorCheck]) -> Vec<&'static DoctorCheck> {
    let is_named = |check: &&DoctorCheck| named.is_empty() || named.iter().any(|named| named.id == check.id);
    ALL.iter().filter(is_named).collect()
}

/// Runs checks one after the other, and hands on what each found as soon as it is known.
fn examine(
    checks: &[&DoctorCheck],
    args: &DoctorArgs,
    mut told: impl FnMut(&DoctorCheck, &[DoctorFinding]) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<DoctorFinding>> {
    let clock = Clock::system();
    let wait = |time| pass(&clock, time);
    let now = || Duration::from_nanos(clock.now().as_nanos());
    let site = CheckContext {
        files: &LocalFiles,
        sleep: &wait,
        now: &now,
        names_to_look_up: &args.lookup,
        resolv_conf_path: args.resolv_conf.as_deref().unwrap_or("/etc/resolv.conf"),
        http_fetcher: &NetworkFetcher { now: &now },
        wall: &|| clock.wall_time(),
        environment: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        envoy_admin: args.envoy_admin.as_ref(),
    };
    let mut all = Vec::new();
    for check in checks {
        let found = check.run(&site);
        told(check, &found)?;
        all.extend(found);
    }
    Ok(all)
}

/// Lets time pass in which the machine is watched; says how much it was. A signal may cut it short.
fn pass(clock: &Clock, time: Duration) -> Duration {
    let begun = clock.now();
    if let Ok(time) = Timespec::try_from(time) {
        // Nothing is waited for but the time.
        let _ = poll(&mut [], Some(&time));
    }
    clock.now().since(begun)
}

/// Columns of where the text goes.
fn width(beside: bool) -> usize {
    let size = if beside { tcgetwinsize(stderr()) } else { tcgetwinsize(stdout()) };
    // A terminal that does not know its size says 0.
    screen::wrap_width(size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0))
}

fn show(text: &str, beside: bool) -> anyhow::Result<()> {
    if beside {
        // It may be closed: what counts is written to standard output.
        let _ = stderr().lock().write_all(text.as_bytes());
        return Ok(());
    }
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough: `seawall doctor | head` is no mistake, and the exit code tells the rest.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

fn exit_code(worst: DoctorStatus) -> u8 {
    match worst {
        DoctorStatus::Ok => exit::SUCCESS,
        DoctorStatus::Unknown => exit::UNDECIDED,
        DoctorStatus::Warning => exit::DOCTOR_WARNING,
        DoctorStatus::Error => exit::DOCTOR_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_run_once_in_the_order_of_the_list_and_all_if_none_is_named() {
        let names = |asked: &[&str]| -> Vec<_> {
            let asked: Vec<_> = asked.iter().map(|name| check(name).unwrap()).collect();
            chosen(&asked).iter().map(|check| check.id).collect()
        };
        assert_eq!(names(&[]), ALL.iter().map(|check| check.id).collect::<Vec<_>>());
        assert_eq!(names(&["ports", "ports"]), ["ports"]);
    }

    #[test]
    fn a_check_that_is_not_known_is_refused_with_those_that_are() {
        let refused = check("port").err().unwrap();
        assert!(refused.starts_with("unknown check: expected one of ports, "), "{refused}");
    }

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let codes = [DoctorStatus::Ok, DoctorStatus::Unknown, DoctorStatus::Warning, DoctorStatus::Error]
            .map(exit_code);
        assert_eq!(codes, [0, 8, 10, 9]);
    }
}
