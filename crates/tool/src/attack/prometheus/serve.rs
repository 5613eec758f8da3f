//! The smallest server a scraper needs: one request per connection, any path, an answer, the end.
//!
//! One thread, one connection at a time; nobody can hold it for longer than [`PATIENCE`] per step, so that whoever can
//! reach the port can delay a scrape and nothing else. It shares nothing with the senders.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use seawall_load::clock::{RunClock, nanos};

use super::text::ScrapeFormat;

/// For a whole request to arrive, and for each write of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest request.
const LONGEST: usize = 8 << 10;

/// Answers with `text` until the program ends.
pub(super) fn accept_loop(listener: &TcpListener, text: impl Fn(ScrapeFormat) -> String) {
    loop {
        match listener.accept() {
            // A scraper that goes away is its own loss.
            Ok((stream, _)) => _ = answer(&stream, &text),
            // Out of descriptors, most likely: the senders' connections have them. Some will be free again.
            Err(_) => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
}

fn answer(mut stream: &TcpStream, text: impl Fn(ScrapeFormat) -> String) -> io::Result<()> {
    let head = head(stream)?;
    let dialect = dialect(&head);
    let body = text(dialect);
    stream.set_write_timeout(Some(PATIENCE))?;
    let kind = dialect.content_type();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if head.starts_with("HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

/// A request up to its empty line.
fn head(mut stream: &TcpStream) -> io::Result<String> {
    let clock = RunClock::start();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = nanos(PATIENCE).saturating_sub(clock.now());
        if left == 0 || head.len() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(Duration::from_nanos(left)))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend_from_slice(&piece[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// OpenMetrics for those who name it, as Prometheus does; weights are not looked at.
fn dialect(head: &str) -> ScrapeFormat {
    let accept = head.lines().filter(|line| {
        line.split_once(':').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("accept"))
    });
    let wants = accept.into_iter().any(|line| line.contains("application/openmetrics-text"));
    if wants { ScrapeFormat::OpenMetrics } else { ScrapeFormat::PrometheusText }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    fn asked(request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (stream, _) = listener.accept().unwrap();
        // A refusal is a closed connection.
        let _ = answer(&stream, |dialect| format!("{dialect:?}\n"));
        drop(stream);
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn any_path_is_answered_in_the_dialect_that_was_asked_for() {
        assert!(asked("GET /any HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("\r\n\r\nPrometheusText\n"));
        let open = "GET /metrics HTTP/1.1\r\nACCEPT: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n";
        let answer = asked(open);
        assert!(
            answer.contains("Content-Length: 12\r\n") && answer.ends_with("\r\n\r\nOpenMetrics\n"),
            "{answer}"
        );
    }

    #[test]
    fn a_head_request_gets_no_body() {
        assert!(asked("HEAD / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    }

    #[test]
    fn half_a_request_and_an_endless_one_get_nothing() {
        assert_eq!(asked("GET / HTTP/1.1\r\n"), "");
        assert_eq!(asked(&format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(2 * LONGEST))), "");
    }
}
