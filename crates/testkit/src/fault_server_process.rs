//! A server of plants, and an exchange with a page that a run serves, both of the program that is tested.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A server of plants; killed when dropped.
#[derive(Debug)]
pub struct FaultServerProcess {
    /// Its process.
    pub child: Child,
    /// The URL of the fault server.
    pub url: String,
}

impl FaultServerProcess {
    /// Starts `emulate server` with this fault and waits until it is ready.
    ///
    /// # Errors
    /// The program does not start, or its first line does not hold its URL.
    pub fn start(program: &str, plant: &str) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["emulate", "server", "--listen", "127.0.0.1:0", "--json", "--fault", plant]);
        let mut planted = Self { child: command.stdout(Stdio::piped()).spawn()?, url: String::new() };
        let mut line = String::new();
        let said = planted.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(said).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        ready["url"].as_str().ok_or(io::ErrorKind::InvalidData)?.clone_into(&mut planted.url);
        Ok(planted)
    }
}

impl Drop for FaultServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole answer of a run's page with this link, whatever the path.
///
/// # Errors
/// It is not there, or ends before its answer does.
pub fn request_live_page(link: &str, method: &str, path: &str, body: &str) -> io::Result<String> {
    let place = link.strip_prefix("http://").and_then(|rest| rest.split_once("/?"));
    let (host, query) = place.ok_or(io::ErrorKind::InvalidInput)?;
    let mut stream = TcpStream::connect(host)?;
    let length = body.len();
    let head =
        format!("{method} {path}?{query} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
