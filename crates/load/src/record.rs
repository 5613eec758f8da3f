//! One completed request as vegeta 12 writes it.
//!
//! The engine's writer thread keeps one [`Record`], clears it and fills it again for every request, so that recording allocates
//! nothing once its buffers have grown. [`crate::results`] turns records into bytes and back; [`crate::charted_timeline`] sums them. This
//! module knows no format and no socket.
//!
//! The fields and their meaning are vegeta's (`lib/results.go`), with one stricter rule: `timestamp` is the instant at which the
//! request was *due*, and `latency_ns` runs from that instant, so that the figures show a late generator.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One request and its outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The name of the attack, `-name`.
    pub attack: String,
    /// The number of the request in the attack, from 0.
    pub seq: u64,
    /// The status code; 0 without a response.
    pub code: u16,
    /// The time when the request was due.
    pub due_timestamp: ZonedTimestamp,
    /// The time from [`Record::due_timestamp`] to the last byte of the response or to the failure. Signed because the formats are.
    pub latency_ns: i64,
    /// Bytes of the request body.
    pub bytes_out: u64,
    /// Bytes of the response body.
    pub bytes_in: u64,
    /// The error: a transport error, or the status line of a status outside 200..=399. It is empty if the request succeeded.
    pub error: String,
    /// The kept part of the response body.
    pub response_body: Vec<u8>,
    /// True if there is a body and it is empty, unlike an absent body. Go has an empty slice and nil, which JSON distinguishes.
    /// Never true beside a body.
    pub empty_body: bool,
    /// The request method.
    pub method: String,
    /// The request URL.
    pub url: String,
    /// The response headers; absent without a response.
    pub response_headers: ResponseHeaders,
    /// The connection that carried the request, if the run records connections. vegeta has no such field.
    pub connection: RecordedConnection,
}

/// The connection that carried a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordedConnection {
    /// The run does not record connections.
    #[default]
    ConnectionNotRecorded,
    /// The request never had a connection.
    None,
    /// The timings of the connection; if the request was sent again or redirected, those of its last connection.
    Timings(ConnectionTimings),
}

/// The state of a connection when it took the request, and the time of the first response byte. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionTimings {
    /// The number of the connection in the run, from 1, in the order in which connections were begun.
    pub connection_id: u64,
    /// The number of requests that the connection carried before this one.
    pub reuse_count: u64,
    /// The time since the connection last carried a request, or was opened. 0 if it carried another request at the same time.
    #[serde(rename = "idle_seconds", with = "crate::duration_json")]
    pub idle: u64,
    /// The duration of the TCP handshake.
    #[serde(rename = "connect_seconds", with = "crate::duration_json")]
    pub connect: u64,
    /// The duration of the TLS handshake. `None` without TLS.
    #[serde(rename = "tls_seconds", with = "crate::duration_json")]
    pub tls: Option<u64>,
    /// The time from the first byte of the request to the first byte of the response. `None` if no byte came.
    #[serde(rename = "first_byte_seconds", with = "crate::duration_json")]
    pub first_byte: Option<u64>,
}

impl Record {
    /// Empties every field and keeps the buffers.
    pub fn clear(&mut self) {
        self.attack.clear();
        self.seq = 0;
        self.code = 0;
        self.due_timestamp = ZonedTimestamp::default();
        self.latency_ns = 0;
        self.bytes_out = 0;
        self.bytes_in = 0;
        self.error.clear();
        self.response_body.clear();
        self.empty_body = false;
        self.method.clear();
        self.url.clear();
        self.response_headers.clear();
        self.connection = RecordedConnection::ConnectionNotRecorded;
    }

    /// True if vegeta counts the request as a success: status 200..=399.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..400).contains(&self.code)
    }

    /// Returns the time of the last byte, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn end_unix_ns(&self) -> i128 {
        self.due_timestamp.unix_ns() + i128::from(self.latency_ns)
    }
}

/// An instant with the time zone in which it was written.
///
/// Equality is that of Go's `==` after a round trip: same instant *and* same zone. Go's zero time (year 1, UTC) is representable,
/// because vegeta omits it from gob and so every reader must be able to produce it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZonedTimestamp {
    seconds: i64,
    nanos: u32,
    zone: Zone,
}

/// The time zone of the clock that stamped a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Zone {
    /// UTC itself, written as `Z`.
    #[default]
    Utc,
    /// Seconds east of UTC. Zero is distinct from [`Zone::Utc`] only in gob, as in Go.
    SecondsEast(i32),
}

impl Zone {
    /// Returns the offset in seconds east of UTC.
    #[must_use]
    pub fn seconds_east(self) -> i32 {
        match self {
            Self::Utc => 0,
            Self::SecondsEast(seconds) => seconds,
        }
    }
}

/// The seconds between 0001-01-01 and 1970-01-01, both UTC (Go's `unixToInternal`, time/time.go).
pub(crate) const YEAR_ONE_TO_UNIX: i64 = 62_135_596_800;
const NANOS: i64 = 1_000_000_000;

impl Default for ZonedTimestamp {
    /// Returns Go's zero time: 0001-01-01T00:00:00Z.
    fn default() -> Self {
        Self { seconds: -YEAR_ONE_TO_UNIX, nanos: 0, zone: Zone::Utc }
    }
}

impl ZonedTimestamp {
    /// Converts nanoseconds since the Unix epoch.
    #[must_use]
    pub fn from_unix_ns(ns: i64, zone: Zone) -> Self {
        Self { seconds: ns.div_euclid(NANOS), nanos: ns.rem_euclid(NANOS).unsigned_abs() as u32, zone }
    }

    /// Converts seconds since the Unix epoch and nanoseconds after them; `None` if `nanos` is not below 10^9.
    #[must_use]
    pub fn from_unix(seconds: i64, nanos: u32, zone: Zone) -> Option<Self> {
        (i64::from(nanos) < NANOS).then_some(Self { seconds, nanos, zone })
    }

    /// Returns the nanoseconds since the Unix epoch; the type is wide enough for every instant of the formats.
    #[must_use]
    pub fn unix_ns(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos)
    }

    /// Returns the whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds after [`ZonedTimestamp::unix_seconds`].
    #[must_use]
    pub fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// Returns the time zone in which the instant was written.
    #[must_use]
    pub fn zone(self) -> Zone {
        self.zone
    }
}

/// Response headers: names in byte order, the values of one name in the order in which they came.
///
/// Absent headers (no response: Go's nil map) differ from present but empty ones, as in the formats. One buffer holds all the
/// text, so that clearing and refilling allocates nothing. Values are bytes, because HTTP lets servers send Latin-1. A name
/// without a value can come only from a file: a server cannot send one.
#[derive(Clone, Default)]
pub struct ResponseHeaders {
    present: bool,
    text: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    name: usize,
    value: usize,
    end: usize,
    kind: Kind,
}

/// The kind of an entry: a value of a name, or a bare name without a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Valued,
    EmptyList,
    NilList,
}

impl ResponseHeaders {
    /// Makes the empty headers of a response. [`Self::default`] means that there was no response.
    #[must_use]
    pub const fn new_present() -> Self {
        Self { present: true, text: Vec::new(), entries: Vec::new() }
    }

    /// Marks that there was a response, even if it has no header.
    pub fn mark_present(&mut self) {
        self.present = true;
    }

    /// True if there was no response.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        !self.present
    }

    /// Makes the headers absent and keeps the memory.
    pub fn clear(&mut self) {
        self.present = false;
        self.text.clear();
        self.entries.clear();
    }

    /// Adds a header with its name as it is spelled.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.present = true;
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.finish(start, value);
    }

    /// Adds a name with an empty list of values (`[]` in JSON), if it is not there yet.
    pub fn add_name_without_values(&mut self, name: &[u8]) {
        self.push_bare(name, Kind::EmptyList);
    }

    /// Adds a name without even a list (Go's nil, `null` in JSON), if it is not there yet.
    pub fn add_name_with_nil_values(&mut self, name: &[u8]) {
        self.push_bare(name, Kind::NilList);
    }

    fn push_bare(&mut self, name: &[u8], kind: Kind) {
        self.present = true;
        if !self.entries.iter().any(|e| &self.text[e.name..e.value] == name) {
            let start = self.text.len();
            self.text.extend_from_slice(name);
            self.insert(start, self.text.len(), kind);
        }
    }

    /// Adds a header with its name in Go's canonical form (`content-type` becomes `Content-Type`), as vegeta
    /// records what the wire brought. A name that is not an HTTP token stays as it is.
    pub fn push_canonical(&mut self, name: &[u8], value: &[u8]) {
        self.present = true;
        let start = self.text.len();
        self.text.extend_from_slice(name);
        if name.iter().all(|&b| is_token_byte(b)) {
            canonicalise_header_name(&mut self.text[start..]);
        }
        self.finish(start, value);
    }

    /// Moves the entry whose name starts at `start` behind the last entry of the same name.
    fn finish(&mut self, start: usize, value: &[u8]) {
        let split = self.text.len();
        self.text.extend_from_slice(value);
        self.insert(start, split, Kind::Valued);
    }

    fn insert(&mut self, start: usize, split: usize, kind: Kind) {
        let name = &self.text[start..split];
        let at = self.entries.partition_point(|e| &self.text[e.name..e.value] <= name);
        self.entries.insert(at, Entry { name: start, value: split, end: self.text.len(), kind });
    }

    /// True if there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns every name and value, one pair per value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let values = self.entries.iter().filter(|e| e.kind == Kind::Valued);
        values.map(|e| (&self.text[e.name..e.value], &self.text[e.value..e.end]))
    }

    /// Returns every name once, with its values, or without a list for Go's nil.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], Option<impl ExactSizeIterator<Item = &[u8]>>)> {
        let name = |e: &Entry| &self.text[e.name..e.value];
        self.entries.chunk_by(move |a, b| name(a) == name(b)).map(move |run| {
            // A bare name is the first entry of its name; values that came after it make it like any other name.
            let values = &run[usize::from(run[0].kind != Kind::Valued)..];
            let nil = values.is_empty() && run[0].kind == Kind::NilList;
            (name(&run[0]), (!nil).then(|| values.iter().map(|e| &self.text[e.value..e.end])))
        })
    }

    /// Returns the number of distinct names.
    #[must_use]
    pub fn name_count(&self) -> usize {
        self.groups().count()
    }
}

impl PartialEq for ResponseHeaders {
    fn eq(&self, other: &Self) -> bool {
        let of = |headers: &Self| (headers.present, headers.entries.len());
        let list = |(name, values): (_, Option<_>)| (name, values.map(Iterator::collect::<Vec<_>>));
        of(self) == of(other) && self.groups().map(list).eq(other.groups().map(list))
    }
}

impl Eq for ResponseHeaders {}

impl fmt::Debug for ResponseHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_absent() {
            return f.write_str("absent");
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let list = |values: Option<_>| values.map(|values| Iterator::map(values, text).collect::<Vec<_>>());
        f.debug_map().entries(self.groups().map(|(name, values)| (text(name), list(values)))).finish()
    }
}

/// True for a token character of RFC 9110 section 5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Changes a name to upper case at the start and after each hyphen, and to lower case elsewhere (Go's
/// `textproto.CanonicalMIMEHeaderKey`).
pub(crate) fn canonicalise_header_name(name: &mut [u8]) {
    let mut upper = true;
    for byte in name {
        *byte = if upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        upper = *byte == b'-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_grouped_in_name_order_and_values_in_arrival_order() {
        let mut headers = ResponseHeaders::default();
        headers.push_canonical(b"set-cookie", b"b=2");
        headers.push_canonical(b"CONTENT-type", b"text/plain");
        headers.push_canonical(b"Set-Cookie", b"a=1");
        let groups: Vec<_> =
            headers.groups().map(|(name, values)| (name, values.unwrap().collect::<Vec<_>>())).collect();
        assert_eq!(
            groups,
            [
                (&b"Content-Type"[..], vec![&b"text/plain"[..]]),
                (&b"Set-Cookie"[..], vec![&b"b=2"[..], &b"a=1"[..]]),
            ]
        );
        assert_eq!(headers.name_count(), 2);
    }

    #[test]
    fn instants_before_the_epoch_keep_their_nanoseconds() {
        let before = ZonedTimestamp::from_unix_ns(-1, Zone::Utc);
        assert_eq!((before.unix_seconds(), before.subsec_nanos(), before.unix_ns()), (-1, 999_999_999, -1));
    }
}
