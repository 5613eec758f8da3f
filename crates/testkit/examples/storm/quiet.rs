//! Quiet pods: each asks 20 times a second, half of it on kept connections and half on new ones.
//!
//! The schedule is open: latency runs from the instant a request was due, so a server that stands still shows in every request that
//! came due meanwhile. A lane is a thread that asks, waits and asks again; what came due while it waited is asked late
//! and counts as late. At the end it prints one line of figures; percentiles are by exact sorting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::arguments::Arguments;

/// Between two requests of one lane. A pod has as many lanes as make 20 requests a second, so that a request waits for one before
/// it only where answers take far longer than any should.
const PERIOD: Duration = Duration::from_millis(400);
const LANES: u32 = 8;

/// The longest that anybody waits for an answer: as long as the most patient of the client libraries.
const PATIENCE: Duration = Duration::from_secs(5);

/// The kubelet's default for a probe.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// A series of requests, all alike.
#[derive(Clone)]
struct Lane {
    to: SocketAddr,
    from: Ipv4Addr,
    path: String,
    period: Duration,
    /// When the first is due, from the start.
    offset: Duration,
    keeps: bool,
    patience: Duration,
}

/// What became of them.
#[derive(Default)]
struct Answers {
    /// From the due instant, of those that were answered well.
    took: Vec<Duration>,
    failed: Vec<String>,
    /// Kept connections that the server had closed before the request; the request went out again on a new one.
    reopened: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let time = arguments.seconds("seconds")?.ok_or("--seconds is missing")?;
    let path = arguments.required("path")?;
    let pods = arguments.addresses("from")?;
    let warm = lanes(arguments.address("to")?, &pods, path);
    let control = arguments.value("control")?.map_or_else(Vec::new, |to| lanes(to, &pods, path));
    let start = Instant::now() + Duration::from_millis(20);
    let spawn = |lanes: Vec<Lane>| -> Vec<_> {
        lanes.into_iter().map(|lane| thread::spawn(move || lane.ask_until(start, start + time))).collect()
    };
    let series =
        [spawn(warm), spawn(control), spawn(cold(arguments, &pods, time)?), spawn(health(arguments, time)?)];
    let names = ["warm", "control", "cold", "health"];
    let line: Vec<String> =
        names.iter().zip(series).map(|(name, lanes)| figures(name, together(lanes))).collect();
    println!("{}", line.join(" "));
    Ok(())
}

/// The kept connections and the new ones of all pods, evenly through the period.
fn lanes(to: SocketAddr, pods: &[Ipv4Addr], path: &str) -> Vec<Lane> {
    let count = u32::try_from(pods.len()).unwrap_or(u32::MAX) * LANES;
    let places = (0..LANES).flat_map(|lane| pods.iter().map(move |from| (*from, lane % 2 == 0)));
    places
        .zip(0..)
        .map(|((from, keeps), n)| Lane {
            to,
            from,
            path: path.into(),
            period: PERIOD,
            offset: PERIOD * n / count,
            keeps,
            patience: PATIENCE,
        })
        .collect()
}

/// Credentials that nobody has asked for before, each on a connection of its own and waiting for no other.
fn cold(arguments: &Arguments, pods: &[Ipv4Addr], time: Duration) -> Result<Vec<Lane>, String> {
    let (Some(path), Some(period)) = (arguments.text("cold"), arguments.seconds("cold-every")?) else {
        return Ok(Vec::new());
    };
    Ok(singly(arguments.address("to")?, pods[0], path, period, PATIENCE, time))
}

/// What the kubelet does, but more often.
fn health(arguments: &Arguments, time: Duration) -> Result<Vec<Lane>, String> {
    let Some(to) = arguments.value("health")? else { return Ok(Vec::new()) };
    let period = Duration::from_millis(500);
    Ok(singly(to, Ipv4Addr::LOCALHOST, "/healthz", period, PROBE_PATIENCE, time))
}

/// A lane for each request.
fn singly(
    to: SocketAddr,
    from: Ipv4Addr,
    path: &str,
    every: Duration,
    patience: Duration,
    time: Duration,
) -> Vec<Lane> {
    let path = |n: u32| path.replace('#', &format!("#-{n}"));
    (0..)
        .map(|n| (n, every / 2 + every * n))
        .take_while(|(_, offset)| *offset < time)
        .map(|(n, offset)| Lane { to, from, path: path(n), period: time, offset, keeps: false, patience })
        .collect()
}

impl Lane {
    fn ask_until(self, start: Instant, end: Instant) -> Answers {
        let mut answers = Answers::default();
        let mut kept = None;
        let mut due = start + self.offset;
        let mut number = 0;
        while due < end {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            number += 1;
            // A lane that fell behind for good does not prolong the run: what it did not come to ask was not answered.
            if Instant::now() > end + self.patience / 2 {
                answers.failed.push("never asked, so late were those before it".into());
            } else {
                self.ask(due, number, &mut kept, &mut answers);
            }
            due += self.period;
        }
        answers
    }

    fn ask(&self, due: Instant, number: u64, kept: &mut Option<TcpStream>, answers: &mut Answers) {
        let path = self.path.replace('#', &format!("{}-{number}", std::process::id()));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nMetadata-Flavor: Google\r\n\r\n", self.to);
        let mut outcome = Err(ErrorKind::NotConnected.into());
        if let Some(stream) = kept.as_mut() {
            outcome = exchange(stream, &request);
            answers.reopened += u64::from(outcome.as_ref().is_err_and(is_stale));
        }
        // As every library does when the server has let go of a connection that it kept.
        if outcome.as_ref().is_err_and(is_stale) {
            outcome = self.connect().and_then(|mut stream| {
                let outcome = exchange(&mut stream, &request);
                *kept = Some(stream);
                outcome
            });
        }
        if !self.keeps || outcome.is_err() {
            *kept = None;
        }
        match outcome {
            Ok(200) => answers.took.push(due.elapsed()),
            Ok(status) => answers.failed.push(status.to_string()),
            // A read whose time is over is an operation that would block.
            Err(error) if error.kind() == ErrorKind::WouldBlock => answers.failed.push("timeout".into()),
            Err(error) => answers.failed.push(format!("{:?}", error.kind())),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        socket.set_tcp_nodelay(true)?;
        socket.connect_timeout(&self.to.into(), self.patience)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        Ok(stream)
    }
}

/// The server closed before it read the request.
fn is_stale(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

/// The status of one answer, read to its end.
fn exchange(stream: &mut TcpStream, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            // Only a connection that said nothing at all is stale.
            Ok(0) if received.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Err(io::Error::other("cut off")),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(status) = whole(&received)? {
            return Ok(status);
        }
    }
}

/// The status, once the whole answer is there.
fn whole(received: &[u8]) -> io::Result<Option<u16>> {
    let odd = || io::Error::other("not the beginning of an answer");
    let Some(head) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&received[..head]).map_err(|_| odd())?.to_ascii_lowercase();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(odd)?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let body = &received[head + 4..];
    let complete = length.map_or_else(|| body.ends_with(b"0\r\n\r\n"), |length: usize| body.len() >= length);
    Ok(complete.then_some(status))
}

fn together(lanes: Vec<thread::JoinHandle<Answers>>) -> Answers {
    let mut all = Answers::default();
    for lane in lanes {
        let Ok(answers) = lane.join() else {
            all.failed.push("the client itself".into());
            continue;
        };
        all.took.extend(answers.took);
        all.failed.extend(answers.failed);
        all.reopened += answers.reopened;
    }
    all.took.sort_unstable();
    all
}

/// `name_p50=… name_p99=…`: words that a script can read, times in milliseconds.
fn figures(name: &str, answers: Answers) -> String {
    let milliseconds =
        |time: Option<&Duration>| time.map_or("-".into(), |time| format!("{:.2}", time.as_secs_f64() * 1e3));
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|q| milliseconds(quantile(&answers.took, q)));
    let (count, failed) = (answers.took.len() + answers.failed.len(), answers.failed.len());
    let mut why = answers.failed;
    why.sort_unstable();
    why.dedup();
    let why = if why.is_empty() { "-".into() } else { why.join(",").replace(' ', "_") };
    let reopened = answers.reopened;
    format!(
        "{name}_n={count} {name}_p50={p50} {name}_p99={p99} {name}_max={most} {name}_failed={failed} {name}_why={why} {name}_reopened={reopened}"
    )
}

/// The least value that this share of all is not above.
fn quantile(sorted: &[Duration], q: f64) -> Option<&Duration> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1))
}
