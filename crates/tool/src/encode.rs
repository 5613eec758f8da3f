//! `seawall encode`: results from any of the three formats to any other, record by record.
//!
//! Nothing is added up and nothing kept: memory does not depend on the number of results.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use seawall_load::results::{EncodeError, Encoder, ResultFormat};

use crate::report::input::{self, ClassifiedInputs, MergedInputs};
use crate::report::output::ReportOutput;

/// Flags of `seawall encode`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_override_self = true)]
pub(crate) struct EncodeArgs {
    /// Output format: gob, json or csv
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    to: ResultFormat,
    /// Output file
    #[arg(long, value_name = "FILE", default_value = "stdout")]
    output: String,
    /// Results in gob, JSON or CSV; encode detects the format [default: stdin]
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

const HELP: &str = "\
The formats are vegeta's, byte for byte:
  gob   Go's binary encoding, what `attack` writes into a pipe
  json  one object per line: attack, seq, code, timestamp, latency (ns), bytes_out, bytes_in,
        error, body (base64), method, url, headers
  csv   no header line; 1 timestamp (ns since 1970), 2 code, 3 latency (ns), 4 bytes out,
        5 bytes in, 6 error, 7 body (base64), 8 attack, 9 seq, 10 method, 11 url,
        12 response headers (base64 of a MIME block)

timestamp is the instant at which a request was scheduled. latency is the time from that instant
to the last byte of the response. CSV has no time zone, so instants read from CSV are in UTC.

encode merges several inputs in the order of time. If an input is cut or damaged, encode names it on
standard error, keeps the results before the damage, and exits with 1. After the first Ctrl-C,
encode reads the rest of a pipe; a second Ctrl-C ends encode at once.

Examples:
  echo 'GET http://127.0.0.1:8080/' | seawall attack -rate=100 -duration=10s > results.gob
  seawall encode results.gob | jq -r 'select(.code != 200) | .error'
  seawall encode -to=csv monday.gob tuesday.json > both.csv";

/// Runs the command.
///
/// # Errors
/// Inputs that cannot be opened or hold no results, an output that cannot be written.
#[expect(clippy::needless_pass_by_value, reason = "the command owns its arguments")]
pub(crate) fn run(args: EncodeArgs) -> anyhow::Result<ExitCode> {
    let inputs =
        ClassifiedInputs::classify(input::open_inputs(&args.files)?)?.reject_intervals("`seawall encode`")?;
    let mut inputs = input::merge_inputs(inputs.results.into_iter().chain(inputs.hdr_logs));
    let live = input::reads_stdin(&args.files);
    let mut encoder = Encoder::new(args.to, sink(ReportOutput::open(&args.output)?, live)?);
    let interrupted = interrupted()?;
    let written = copy(&mut inputs, &mut encoder, &interrupted, live);
    let (Ok(count) | Err(CopyError { count, .. })) = &written;
    let problems: Vec<String> = inputs.broken_inputs().iter().map(ToString::to_string).collect();
    if *count == 0 && !problems.is_empty() {
        bail!(problems.join("; "));
    }
    match written {
        Ok(_) => encoder.flush().context("cannot write the results")?,
        // The reader at the other end (head, say) has seen enough.
        Err(CopyError { error: EncodeError::Io(error), .. }) if error.kind() == io::ErrorKind::BrokenPipe => {
        }
        Err(CopyError { error, .. }) => return Err(error).context("cannot write the results"),
    }
    Ok(crate::report::report_problems(&problems))
}

struct CopyError {
    count: u64,
    error: EncodeError,
}

fn copy(
    inputs: &mut MergedInputs,
    encoder: &mut Encoder<impl Write>,
    interrupted: &AtomicBool,
    live: bool,
) -> Result<u64, CopyError> {
    let mut count = 0;
    while let Some((_, record)) = inputs.next_record() {
        encoder.encode(record).map_err(|error| CopyError { count, error })?;
        count += 1;
        // What feeds a pipe got the same signal and ends it; a file would go on.
        if !live && interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(count)
}

/// Unbuffered when results arrive as they happen, so that the next program sees each at once.
fn sink(output: ReportOutput, live: bool) -> anyhow::Result<Box<dyn Write>> {
    Ok(match output {
        ReportOutput::Stdout => {
            let stdout = std::fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if live { Box::new(stdout) } else { Box::new(buffered(stdout)) }
        }
        ReportOutput::File(file, _) => Box::new(buffered(file)),
    })
}

fn buffered<W: Write>(sink: W) -> io::BufWriter<W> {
    io::BufWriter::with_capacity(256 << 10, sink)
}

/// Set by the first Ctrl-C; the second one ends the program.
fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))?;
    Ok(flag)
}
