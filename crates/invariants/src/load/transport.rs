//! Properties that hold for a connection that brings any bytes in any pieces, with any number of requests in flight, canceled,
//! broken off and retried in between: nothing panics, buffers are bounded, each request ends exactly once whatever the server
//! does, no request succeeds without a response, and afterwards the next request succeeds. Called by `tests/transport_bytes.rs`
//! and by the fuzz targets `http1` and `http2`.

#![expect(clippy::expect_used, reason = "a broken invariant panics")]

use std::collections::BTreeSet;
use std::mem::MaybeUninit;

use seawall_http::{BodyDecoder, BodyEvent, HeadLimits, Header, Parsed, parse_response};
use seawall_load::transport_harness::{HarnessEvent, HarnessEventKind, HarnessResponse, TransportHarness};

/// The HTTP version of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One request at a time.
    Http1,
    /// One request per stream, without TLS and without asking.
    Http2,
}

/// The heads that the transport takes (`load/src/transport/response_parser.rs`).
const LIMITS: HeadLimits = HeadLimits { max_head_bytes: 256 * 1024, max_target_bytes: 0 };

/// Lines of such a head.
const LINES: usize = 1024;

/// Bytes that one stream brings in all: more than one turn reads.
const MOST_SAID: usize = 1 << 20;

/// The largest number of requests in flight.
const MOST_UNDER_WAY: usize = 32;

/// The number of rounds after which every request in flight has ended if the server is silent: a request is retried up to seven
/// times, and is at worst alone in its round.
const ROUNDS: usize = 9 * MOST_UNDER_WAY;

const MILLISECOND: u64 = 1_000_000;

/// Does what the bytes say, each an act with what it needs behind it, then has the server go away.
pub fn check_script(protocol: Protocol, input: &[u8]) {
    let mut stage = Stage::new(protocol);
    let mut script = Script(input);
    while let Some(byte) = script.byte() {
        stage.act(byte, &mut script);
        stage.heed();
    }
    stage.end_all();
    stage.answers_again();
}

/// The unread rest of the input.
struct Script<'i>(&'i [u8]);

impl<'i> Script<'i> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A byte, and so many more.
    fn piece(&mut self) -> &'i [u8] {
        let length = usize::from(self.byte().unwrap_or(0));
        let (piece, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        piece
    }
}

/// The client, and what is known of it.
struct Stage {
    protocol: Protocol,
    client: TransportHarness,
    hits: Vec<Hit>,
    streams: Vec<Stream>,
}

/// The events of a request since it was last sent.
#[derive(Debug, Clone, Copy, Default)]
struct Hit {
    sent: bool,
    wrote: bool,
    head: bool,
    ended: bool,
    at: u64,
}

/// The bytes that the server has sent on a stream, and the responses that were read from them.
#[derive(Debug, Default)]
struct Stream {
    said: Vec<u8>,
    /// Bytes that answers took.
    taken: usize,
    /// The server has ended it politely.
    over: bool,
    answers: usize,
    bytes: u64,
}

impl Stage {
    fn new(protocol: Protocol) -> Self {
        let client = TransportHarness::new(protocol == Protocol::Http2).expect("a client");
        Self { protocol, client, hits: Vec::new(), streams: Vec::new() }
    }

    fn act(&mut self, byte: u8, script: &mut Script<'_>) {
        let (kind, with) = (byte & 15, usize::from(byte >> 4));
        let stream = self.pick(with);
        match (kind, stream) {
            (0, _) => self.launch(with),
            (6, _) => self.cancel(with),
            (7, _) => self.pass([0, MILLISECOND, 400 * MILLISECOND, 1000 * MILLISECOND][with & 3]),
            (10, _) => self.client.drive_marked_connections(),
            (11, _) => self.turn(),
            (1, Some(stream)) => self.say(stream, script.piece()),
            (2, Some(stream)) => self.bring(stream, script.piece()),
            (3, Some(stream)) => self.flood(stream, script),
            (4, Some(stream)) => self.client.decide_connect_attempt(stream, with & 8 == 0),
            (5, Some(stream)) => self.end(stream, with & 8 == 0),
            (8, Some(stream)) => self.client.set_write_room(stream, [0, 10, 1000, 1 << 20][with >> 2]),
            (9, Some(stream)) => _ = self.client.deliver_poller_report(stream),
            (12, Some(stream)) => {
                let frame = frame(script);
                self.bring(stream, &frame);
            }
            (13, Some(stream)) => {
                let answer = self.good(2 * (with as u8 >> 2) + 1);
                self.bring(stream, &answer);
            }
            (14, _) => {
                self.launch(with);
                self.open_latest();
            }
            (_, _) => self.open_latest(),
        }
    }

    /// One of the latest streams.
    fn pick(&self, with: usize) -> Option<usize> {
        let streams = self.client.stream_count();
        (streams > 0).then(|| streams - 1 - with % 4 % streams)
    }

    fn launch(&mut self, which: usize) {
        if self.client.unfinished_request_numbers().count() == MOST_UNDER_WAY {
            return;
        }
        let hit = self.client.launch(which);
        assert_eq!(hit, self.hits.len() as u64);
        self.hits.push(Hit { at: self.client.now(), ..Hit::default() });
    }

    fn cancel(&mut self, which: usize) {
        let all: Vec<_> = self.client.unfinished_request_numbers().collect();
        let Some(&hit) = all.get(which % all.len().max(1)) else { return };
        assert!(self.client.cancel(hit));
        self.hits[hit as usize].ended = true;
    }

    fn pass(&mut self, span: u64) {
        self.client.advance_time(span);
        self.client.expire_attempts();
    }

    /// Runs one turn as the event loop does: first the ready streams, then the pending work.
    fn turn(&mut self) {
        for stream in 0..self.client.stream_count() {
            self.client.deliver_poller_report(stream);
        }
        self.client.drive_marked_connections();
    }

    fn open_latest(&mut self) {
        if let Some(stream) = self.pick(0) {
            self.client.decide_connect_attempt(stream, true);
        }
        self.turn();
    }

    fn say(&mut self, stream: usize, bytes: &[u8]) {
        let said = &mut self.stream(stream).said;
        let bytes = &bytes[..bytes.len().min(MOST_SAID - said.len())];
        if self.client.send_from_server(stream, bytes) {
            self.stream(stream).said.extend_from_slice(bytes);
        }
    }

    fn bring(&mut self, stream: usize, bytes: &[u8]) {
        self.say(stream, bytes);
        self.client.deliver_poller_report(stream);
    }

    /// Sends one piece to the client many times.
    fn flood(&mut self, stream: usize, script: &mut Script<'_>) {
        let times = 1 << (script.byte().unwrap_or(0) & 15);
        let piece = script.piece();
        self.say(stream, &piece.repeat(times.min(MOST_SAID / piece.len().max(1))));
    }

    fn end(&mut self, stream: usize, well: bool) {
        self.client.end_stream(stream, well);
        self.stream(stream).over |= well;
    }

    fn stream(&mut self, stream: usize) -> &mut Stream {
        let streams = self.client.stream_count();
        self.streams.resize_with(streams.max(self.streams.len()), Stream::default);
        &mut self.streams[stream]
    }

    /// A complete answer, over HTTP/2 on this stream.
    fn good(&self, stream: u8) -> Vec<u8> {
        match self.protocol {
            Protocol::Http1 => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec(),
            // Settings, and a head that ends the stream: `:status: 200` (RFC 7541, appendix A).
            Protocol::Http2 => {
                [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, 1, 1, 5, 0, 0, 0, stream, 0x88]].concat()
            }
        }
    }

    /// Looks at all that has been told, and at what is held.
    fn heed(&mut self) {
        while let Some(news) = self.client.next_event() {
            self.note(&news);
        }
        let held = self.client.held_resources();
        assert!(held.connections <= TransportHarness::MAX_CONNECTIONS, "{held:?}");
        assert_eq!(held.streams, held.connections, "no stream is open that no connection has");
        let each = if self.protocol == Protocol::Http1 { 1 } else { TransportHarness::MAX_STREAMS };
        assert!(held.requests_on_connections <= each * held.connections, "{held:?}");
        let under_way = self.client.unfinished_request_numbers().count();
        assert_eq!(
            held.requests_on_connections + held.waiting_requests,
            under_way,
            "whatever is under way is somewhere: {held:?}"
        );
        assert_eq!(self.hits.iter().filter(|hit| !hit.ended).count(), under_way);
    }

    fn note(&mut self, news: &HarnessEvent) {
        let number = news.request_number.expect("nothing is told of a hit after its end");
        let hit = &mut self.hits[number as usize];
        assert!(!hit.ended && news.at >= hit.at, "{news:?} of {hit:?}");
        hit.at = news.at;
        match &news.kind {
            HarnessEventKind::Sent => assert!(!std::mem::replace(&mut hit.sent, true)),
            HarnessEventKind::LastRequestByte => {
                assert!(hit.sent && !std::mem::replace(&mut hit.wrote, true));
            }
            HarnessEventKind::FirstResponseByte => {
                assert!(hit.sent && !std::mem::replace(&mut hit.head, true));
            }
            HarnessEventKind::Retried => *hit = Hit { at: news.at, ..Hit::default() },
            HarnessEventKind::Failed => hit.ended = true,
            HarnessEventKind::Answered(answered) => {
                assert!(hit.head);
                hit.ended = true;
                self.answered(answered);
            }
        }
    }

    fn answered(&mut self, answered: &HarnessResponse) {
        assert!(
            answered.kept_byte_count <= TransportHarness::MAX_KEPT_BYTES
                && answered.kept_byte_count as u64 <= answered.body_byte_count
        );
        let unread = self.client.unread_byte_count(answered.stream_index);
        let protocol = self.protocol;
        let stream = self.stream(answered.stream_index);
        match protocol {
            Protocol::Http1 => stream.brought(answered, unread),
            Protocol::Http2 => stream.may_have_brought(answered, unread),
        }
    }

    /// Ends the server, politely or not, for good, and checks that all requests in flight end without being canceled.
    fn end_all(&mut self) {
        for round in 0.. {
            for stream in 0..self.client.stream_count() {
                self.client.decide_connect_attempt(stream, false);
                // A system without a server takes what is written, or resets the stream.
                self.client.set_write_room(stream, 1 << 20);
                self.end(stream, (stream + self.hits.len()).is_multiple_of(2));
            }
            self.turn();
            self.heed();
            if self.client.unfinished_request_numbers().next().is_none()
                && self.client.held_resources().connections == 0
            {
                return;
            }
            assert!(round < ROUNDS, "it never comes to rest: {:?}", self.client.held_resources());
        }
    }

    fn answers_again(&mut self) {
        self.launch(0);
        self.open_latest();
        let (stream, answer) = (self.client.stream_count() - 1, self.good(1));
        self.turn();
        self.bring(stream, &answer);
        self.heed();
        assert_eq!(self.stream(stream).answers, 1);
    }
}

impl Stream {
    /// Over HTTP/1.1: the next bytes that were read are this answer, whole, and say what it says.
    fn brought(&mut self, answered: &HarnessResponse, unread: usize) {
        let read = &self.said[..self.said.len() - unread];
        let over = self.over && unread == 0;
        let (status, bytes, taken) =
            answer(&read[self.taken..], &answered.method, over).expect("an answer that is whole");
        assert_eq!((status, bytes), (answered.status, answered.body_byte_count));
        self.taken += taken;
        self.answers += 1;
    }

    /// Over HTTP/2: no more answers than streams that ended, no more bytes than came.
    fn may_have_brought(&mut self, answered: &HarnessResponse, unread: usize) {
        let (ended, bytes) = frames(&self.said[..self.said.len() - unread]);
        self.answers += 1;
        self.bytes += answered.body_byte_count;
        assert!(self.answers <= ended.len() && self.bytes <= bytes, "{self:?} of {ended:?} with {bytes}");
        assert!((200..=999).contains(&answered.status), "{answered:?}");
    }
}

/// The first answer of some bytes, read at once: its status, its body's length, and how many bytes it took.
fn answer(bytes: &[u8], method: &str, over: bool) -> Option<(u16, u64, usize)> {
    let mut at = 0;
    let (status, framing) = loop {
        let mut room: [MaybeUninit<Header<'_>>; LINES] = [const { MaybeUninit::uninit() }; LINES];
        let Ok(Parsed::Complete(head, taken)) = parse_response(&bytes[at..], method, &mut room, &LIMITS)
        else {
            return None;
        };
        at += taken;
        if head.status >= 200 || head.status == 101 {
            break (head.status, head.framing);
        }
    };
    let (mut decoder, mut length) = (BodyDecoder::of_response(framing), 0);
    loop {
        match decoder.decode(&bytes[at..]).ok()? {
            BodyEvent::Data(data, taken) => {
                length += data.len() as u64;
                at += taken;
            }
            BodyEvent::End(taken) => return Some((status, length, at + taken)),
            BodyEvent::NeedMore(taken) => {
                return (over && decoder.is_complete_at_eof()).then_some((status, length, at + taken));
            }
        }
    }
}

/// Streams that have a head and an end, and bytes of bodies (RFC 9113, section 4.1).
fn frames(mut bytes: &[u8]) -> (BTreeSet<u32>, u64) {
    let (mut headed, mut ended, mut data) = (BTreeSet::new(), BTreeSet::new(), 0);
    while let [a, b, c, kind, flags, s, t, u, v, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*s & 0x7f, *t, *u, *v]);
        let Some(after) = rest.get(length..) else { break };
        if *kind == 1 {
            headed.insert(stream);
        }
        if *kind == 0 {
            data += length as u64;
        }
        if *kind < 2 && flags & 1 != 0 {
            ended.insert(stream);
        }
        bytes = after;
    }
    (&headed & &ended, data)
}

/// A frame of this kind with these flags on this stream.
fn frame(script: &mut Script<'_>) -> Vec<u8> {
    let [kind, flags, stream] = [(); 3].map(|()| script.byte().unwrap_or(0));
    let payload = script.piece();
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
}
