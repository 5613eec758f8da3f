//! The server on real sockets, with a content that says what it was told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use seawall_testkit::waiting::wait_until_true;

use super::super::{PageFeed, PageServer};
use super::*;

/// Shows a number, and is final from a number on.
struct Counter {
    shown: u64,
    last: u64,
    padding: usize,
}

impl PageContent for Counter {
    type News = u64;

    fn update(&mut self, news: u64) {
        self.shown = news;
    }

    fn is_final(&self) -> bool {
        self.shown >= self.last
    }

    fn page(&self) -> anyhow::Result<String> {
        Ok(format!("page {}", self.shown))
    }

    fn event(&self) -> anyhow::Result<String> {
        Ok(format!("{}{}", self.shown, " ".repeat(self.padding)))
    }

    fn report(&self) -> anyhow::Result<Option<String>> {
        Ok((self.shown > 0).then(|| format!("report {}", self.shown)))
    }

    fn run_command(&self, line: &str) -> String {
        if line == "stop" { "ok stopped".to_owned() } else { format!("error: {line:?}") }
    }
}

struct Served {
    feed: PageFeed<u64>,
    address: SocketAddr,
    query: String,
}

const LAST: u64 = 100;

fn served(padding: usize) -> Served {
    let site = PageServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = site.url();
    let (address, query) = url.strip_prefix("http://").unwrap().split_once("/?").unwrap();
    let (address, query) = (address.parse().unwrap(), query.to_owned());
    Served { feed: site.serve(Counter { shown: 0, last: LAST, padding }).unwrap(), address, query }
}

impl Served {
    fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = head.replace("QUERY", &self.query).replace("HERE", &self.address.to_string());
        // Whoever is refused in the middle of its body may find the connection closed.
        let _ =
            stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        stream
    }

    fn ask(&self, head: &str, body: &str) -> String {
        read(self.send(head, body))
    }

    fn listen(&self) -> TcpStream {
        self.send("GET /events?QUERY HTTP/1.1\r\nHost: HERE", "")
    }

    fn tell(&self, number: u64) {
        while self.feed.try_send(number).is_err() {
            std::thread::yield_now();
        }
    }
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    // A reset ends it as well.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Reads on until this has come.
fn hear(stream: &mut TcpStream, wanted: &str) -> String {
    let (mut heard, mut piece) = (String::new(), [0; 4096]);
    while !heard.contains(wanted) {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{wanted:?} is not in {heard:?}");
        heard.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    heard
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("closed")
}

#[test]
fn whoever_has_the_link_gets_the_page_and_nobody_keeps_or_frames_it() {
    let served = served(0);
    let page = served.ask("GET /?QUERY HTTP/1.1\r\nHost: HERE", "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\npage 0"), "{page}");
    for (name, value) in HARDENED {
        assert!(page.contains(&format!("\r\n{name}: {value}\r\n")), "{name} is not in {page}");
    }
    assert!(page.contains("connection: close"), "{page}");
}

#[test]
fn strangers_are_refused_without_a_word_of_what_they_lack() {
    let served = served(0);
    let refused = [
        "GET / HTTP/1.1\r\nHost: HERE",
        "GET /nothing HTTP/1.1\r\nHost: HERE",
        "GET /?token=00000000000000000000000000000000 HTTP/1.1\r\nHost: HERE",
        "GET /?QUERY HTTP/1.1\r\nHost: evil.example",
        "GET /?QUERY HTTP/1.1",
        "POST /control?QUERY HTTP/1.1\r\nHost: HERE\r\nOrigin: http://evil.example",
    ]
    .map(|head| served.ask(head, ""));
    for answer in &refused {
        assert_eq!(status(answer), "403", "{answer}");
    }
    let body = |answer: &String| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert!(refused.iter().all(|answer| body(answer) == body(&refused[0])));
}

#[test]
fn commands_are_posts_of_a_line() {
    let served = served(0);
    let post = "POST /control?QUERY HTTP/1.1\r\nHost: HERE\r\nOrigin: http://HERE";
    let obeyed = served.ask(post, "stop");
    assert!(status(&obeyed) == "200" && obeyed.ends_with("ok stopped\n"), "{obeyed}");
    let wrong = served.ask(post, "go");
    assert!(status(&wrong) == "422" && wrong.ends_with("error: \"go\"\n"), "{wrong}");
    let asked = served.ask("GET /control?QUERY HTTP/1.1\r\nHost: HERE", "");
    assert!(status(&asked) == "405" && asked.contains("allow: POST"), "{asked}");
    assert_eq!(status(&served.ask("POST /?QUERY HTTP/1.1\r\nHost: HERE", "")), "405");
}

#[test]
fn a_command_of_any_length_is_not_read() {
    let served = served(0);
    let post = "POST /control?QUERY HTTP/1.1\r\nHost: HERE";
    assert_eq!(status(&served.ask(post, &"s".repeat(LONGEST_LINE))), "422");
    assert_eq!(status(&served.ask(post, &"s".repeat(LONGEST_LINE + 1))), "413");
    let answer = served.ask(post, &"s".repeat(1 << 20));
    assert!(["413", "closed"].contains(&status(&answer)), "{answer}");
}

#[test]
fn a_report_is_there_once_anything_was_measured() {
    let served = served(0);
    let get = "GET /report.html?QUERY HTTP/1.1\r\nHost: HERE";
    assert_eq!(status(&served.ask(get, "")), "409");
    served.tell(3);
    let mut events = served.listen();
    hear(&mut events, "data: 3\n");
    let report = served.ask(get, "");
    assert!(report.contains("attachment") && report.ends_with("\r\n\r\nreport 3"), "{report}");
}

#[test]
fn an_open_page_hears_what_is_new_and_then_the_end() {
    let served = served(0);
    let mut events = served.listen();
    let head = hear(&mut events, "event: run\ndata: 0\n\n");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    served.tell(1);
    hear(&mut events, "event: run\ndata: 1\n\n");
    // Dropping the feed waits for the page, which has what it wants when it closes the connection.
    let ended = std::thread::spawn(move || served.feed.send_last(LAST));
    hear(&mut events, &format!("event: end\ndata: {LAST}\n\n"));
    events.shutdown(Shutdown::Both).unwrap();
    ended.join().unwrap();
}

#[test]
fn the_end_waits_for_an_open_page_no_longer_than_a_moment() {
    let served = served(0);
    let mut events = served.listen();
    hear(&mut events, "data: 0\n");
    served.feed.send_last(LAST);
    let rest = read(events);
    assert!(rest.contains(&format!("event: end\ndata: {LAST}\n\n")), "{rest}");
}

#[test]
fn one_page_too_many_is_told_so_and_gets_a_place_when_another_is_closed() {
    let served = served(0);
    let mut pages: Vec<_> = (0..PAGES).map(|_| served.listen()).collect();
    for page in &mut pages {
        hear(page, "data: 0\n");
    }
    let refused = read(served.listen());
    assert!(status(&refused) == "503" && refused.contains("which is the limit: close one"), "{refused}");
    // Whoever has a page open can still steer.
    assert_eq!(status(&served.ask("POST /control?QUERY HTTP/1.1\r\nHost: HERE", "stop")), "200");
    drop(pages.pop());
    wait_until_true("a place", || {
        let mut first = [0; 12];
        served.listen().read_exact(&mut first).unwrap();
        &first == b"HTTP/1.1 200"
    });
}

/// Any user of the machine could keep the one who has the link from stopping the run.
#[test]
fn silent_connections_make_way_for_whoever_has_the_link_and_are_closed() {
    let served = served(0);
    let mut page = served.listen();
    hear(&mut page, "data: 0\n");
    let silent: Vec<_> = (0..3 * CONNECTIONS).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    assert_eq!(status(&served.ask("POST /control?QUERY HTTP/1.1\r\nHost: HERE", "stop")), "200");
    served.tell(1);
    hear(&mut page, "data: 1\n");
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// A page that stops reading must not use memory or delay the run, and another page must still receive every latest update.
#[test]
fn a_page_that_does_not_read_holds_up_neither_the_run_nor_another_page() {
    let served = served(1 << 20);
    let silent = served.listen();
    let mut other = served.listen();
    for number in 1..20 {
        served.tell(number);
        hear(&mut other, &format!("data: {number} "));
    }
    let held = std::thread::spawn(move || read(silent).len());
    drop(other);
    served.feed.send_last(LAST);
    assert!(held.join().unwrap() < 20 << 20, "it was told less than all");
}
