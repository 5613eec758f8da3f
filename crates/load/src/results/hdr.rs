//! Latency histograms as an HDR log: small, exact to add up, and readable by every HdrHistogram tool.
//!
//! A log is text: a header, then a line per histogram with an optional tag, its start, its length, its largest value in
//! milliseconds, and the histogram itself, deflated and in base64. Several logs, of several generators for instance,
//! add up without loss: bucket counts are sums. Values are nanoseconds.
//!
//! Format: HdrHistogram's `HistogramLogWriter` and `Histogram.encodeIntoCompressedByteBuffer` (V2) in Java. The codec
//! is our own because the one in the Rust crate reserves what a file claims to need, up to four gigabytes.

use std::io::{self, BufRead, Read, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;

use crate::latency_distribution::Distribution;

/// The cookie of an uncompressed histogram with 64-bit counts of variable width.
const PLAIN: u32 = 0x1c84_9313;
/// The cookie of a deflated histogram.
const DEFLATED: u32 = 0x1c84_9314;
const HEADER: usize = 40;

/// The maximum length of a line. A histogram of three digits with every bucket filled is shorter.
const MAX_LINE: u64 = 4 << 20;
/// The maximum size of an inflated histogram.
const MAX_INFLATED: u64 = 64 << 20;
/// The maximum number of values in one histogram: hundreds of millions a second for an hour. It keeps sums from overflowing.
pub(crate) const MAX_VALUES: u64 = 1 << 40;
/// The maximum number of tags.
const MAX_TAGS: usize = 64;

/// Writes a log, line by line.
#[derive(Debug)]
pub struct HdrLogWriter<W> {
    out: W,
}

impl<W: Write> HdrLogWriter<W> {
    /// Writes the header; `start` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn start(mut out: W, start: f64) -> io::Result<Self> {
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(Self { out })
    }

    /// Writes the values of an interval that began `since` seconds after the start; writes nothing without values. The tag
    /// (`response`, `service`, `lag`) must not contain a comma.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn add(&mut self, tag: &str, since: f64, length: f64, values: &Distribution) -> io::Result<()> {
        let Some(histogram) = values.histogram() else { return Ok(()) };
        let max_ms = values.max() as f64 / 1e6;
        let blob = encode(histogram)?;
        writeln!(self.out, "Tag={tag},{since:.3},{length:.3},{max_ms:.3},{blob}")
    }
}

impl<W: Write> HdrLogWriter<W> {
    /// Flushes the output, so that the added lines can be read.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// One line of a log.
#[derive(Debug)]
pub struct HdrLogEntry {
    /// The name of the measurement; empty if the log has none.
    pub tag: String,
    /// The start of the interval, in seconds since the Unix epoch.
    pub start: f64,
    /// The values, in nanoseconds.
    pub values: Distribution,
}

/// A mistake in a log.
#[derive(Debug, thiserror::Error)]
pub enum HdrLogError {
    /// The operating system refused to read on.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line is too long or has the wrong number of columns.
    #[error("line {0} does not have the format of an HDR log")]
    Line(u64),
    /// A histogram cannot be decoded, or has too many values.
    #[error("line {0} has no complete histogram, or its histogram has more than 2^40 values")]
    Histogram(u64),
    /// There are too many tags.
    #[error("the log has more than {MAX_TAGS} tags")]
    TooManyTags,
}

/// True if an input begins like a log.
#[must_use]
pub fn is_log(head: &[u8]) -> bool {
    [&b"#["[..], b"\"StartTimestamp\"", b"Tag="].iter().any(|mark| head.starts_with(mark))
}

/// Adds all histograms of a log to `sums`, by tag.
///
/// # Errors
/// [`HdrLogError`]; the lines before the damaged line have been added.
pub fn add_log_by_tag(
    input: &mut impl BufRead,
    sums: &mut Vec<(String, Distribution)>,
) -> Result<(), HdrLogError> {
    read(input, |HdrLogEntry { tag, values, .. }| {
        if let Some((_, sum)) = sums.iter_mut().find(|(known, _)| *known == tag) {
            sum.merge(&values);
        } else if sums.len() < MAX_TAGS {
            sums.push((tag, values));
        } else {
            return Err(HdrLogError::TooManyTags);
        }
        Ok(())
    })
}

/// Calls `each` with every histogram of a log. Stops at the first error of `each`.
///
/// # Errors
/// [`HdrLogError`]; the lines before the damaged line have been passed to `each`.
pub fn read(
    input: &mut impl BufRead,
    mut each: impl FnMut(HdrLogEntry) -> Result<(), HdrLogError>,
) -> Result<(), HdrLogError> {
    let (mut line, mut base) = (Vec::new(), 0.0);
    for number in 1.. {
        line.clear();
        let read = input.take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
        if read == MAX_LINE {
            return Err(HdrLogError::Line(number));
        }
        let text = line.trim_ascii();
        match text.first() {
            None if read == 0 => return Ok(()),
            Some(b'#') => base = base_time(text).unwrap_or(base),
            None | Some(b'"') => {}
            Some(_) => each(logged(text, number, base)?)?,
        }
    }
    Ok(())
}

/// Parses a line such as `#[BaseTime: 1735787045.500 (seconds since epoch)]`.
fn base_time(line: &[u8]) -> Option<f64> {
    let rest = str::from_utf8(line.strip_prefix(b"#[BaseTime: ")?).ok()?;
    rest.split_whitespace().next()?.parse().ok()
}

fn logged(line: &[u8], number: u64, base: f64) -> Result<HdrLogEntry, HdrLogError> {
    let line = str::from_utf8(line).map_err(|_| HdrLogError::Line(number))?;
    let (tag, rest) = match line.strip_prefix("Tag=") {
        Some(tagged) => tagged.split_once(',').ok_or(HdrLogError::Line(number))?,
        None => ("", line),
    };
    let [start, _, _, blob] = *rest.split(',').collect::<Vec<_>>() else {
        return Err(HdrLogError::Line(number));
    };
    let start: f64 = start.parse().map_err(|_| HdrLogError::Line(number))?;
    let values = decode(blob).ok_or(HdrLogError::Histogram(number))?;
    Ok(HdrLogEntry { tag: tag.to_owned(), start: base + start, values: Distribution::from(&values) })
}

/// Encodes a histogram as a line of a log has it.
pub(crate) fn encode(values: &Histogram<u64>) -> io::Result<String> {
    Ok(BASE64_STANDARD.encode(deflated(values)?))
}

/// Decodes the text that [`encode`] made, if its counts are in range.
pub(crate) fn decode(blob: &str) -> Option<Histogram<u64>> {
    let values = BASE64_STANDARD.decode(blob).ok().and_then(|bytes| inflated(&bytes));
    values.filter(|values| values.len() <= MAX_VALUES)
}

fn deflated(values: &Histogram<u64>) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain(values))?;
    let body = encoder.finish()?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([&DEFLATED.to_be_bytes()[..], &length.to_be_bytes(), &body].concat())
}

/// Writes the header, then the counts of all buckets up to the last one in use; a run of empty buckets is one negative number.
fn plain(values: &Histogram<u64>) -> Vec<u8> {
    let layout = BucketLayout { lowest_discernible: values.low(), digits: values.sigfig() };
    let (mut counts, mut next) = (Vec::new(), 0);
    for step in values.iter_recorded() {
        let index = layout.bucket_index(step.value_iterated_to());
        if index > next {
            varint(&mut counts, next.cast_signed() - index.cast_signed());
        }
        varint(&mut counts, i64::try_from(step.count_at_value()).unwrap_or(i64::MAX));
        next = index + 1;
    }
    let mut out = Vec::with_capacity(HEADER + counts.len());
    out.extend_from_slice(&PLAIN.to_be_bytes());
    // The counts of a histogram take less than four gigabytes, even at five digits.
    out.extend_from_slice(&(counts.len() as u32).to_be_bytes());
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&u32::from(layout.digits).to_be_bytes());
    out.extend_from_slice(&layout.lowest_discernible.to_be_bytes());
    out.extend_from_slice(&values.high().to_be_bytes());
    out.extend_from_slice(&1_f64.to_be_bytes());
    out.append(&mut counts);
    out
}

fn inflated(bytes: &[u8]) -> Option<Histogram<u64>> {
    let (cookie, rest) = bytes.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*cookie) == PLAIN {
        return histogram(bytes);
    }
    let (length, body) = rest.split_first_chunk::<4>()?;
    let whole = u32::from_be_bytes(*cookie) == DEFLATED && u32::from_be_bytes(*length) as usize == body.len();
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(body).take(MAX_INFLATED).read_to_end(&mut plain);
    (whole && read.is_ok()).then(|| histogram(&plain)).flatten()
}

fn histogram(plain: &[u8]) -> Option<Histogram<u64>> {
    let (header, mut counts) = plain.split_first_chunk::<HEADER>()?;
    let word = |at: usize| header[at..at + 4].try_into().map(u32::from_be_bytes).ok();
    let long = |at: usize| header[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    let ratio_is_one = long(32)? == 1_f64.to_bits();
    if word(0)? != PLAIN || word(4)? as usize != counts.len() || word(8)? != 0 || !ratio_is_one {
        return None;
    }
    let layout = BucketLayout { lowest_discernible: long(16)?, digits: u8::try_from(word(12)?).ok()? };
    if layout.lowest_discernible == 0 || layout.lowest_discernible > u64::from(u32::MAX) || layout.digits > 5
    {
        return None;
    }
    let mut values =
        Histogram::new_with_bounds(layout.lowest_discernible, layout.lowest_discernible * 2, layout.digits)
            .ok()?;
    values.auto(true);
    let mut index = 0_u64;
    while !counts.is_empty() {
        let number = unvarint(&mut counts)?;
        if let Ok(count) = u64::try_from(number) {
            values.record_n(layout.lowest_bucket_value(index)?, count).ok()?;
            index += 1;
        } else {
            index = index.checked_add(number.unsigned_abs())?;
        }
    }
    Some(values)
}

/// The layout of buckets: the lowest sub-buckets are `2^unit` wide, and each later half of a bucket is twice as wide as the half
/// before it.
#[derive(Clone, Copy)]
pub(crate) struct BucketLayout {
    pub(crate) lowest_discernible: u64,
    pub(crate) digits: u8,
}

impl BucketLayout {
    fn unit(&self) -> u32 {
        self.lowest_discernible.ilog2()
    }

    /// Returns half the sub-buckets of a bucket, as a power of two: enough for a precision of `digits`.
    fn half(&self) -> u32 {
        (2 * 10_u64.pow(u32::from(self.digits))).next_power_of_two().ilog2().max(1) - 1
    }

    pub(crate) fn bucket_index(&self, value: u64) -> u64 {
        let (unit, half) = (self.unit(), self.half());
        let units = value >> unit;
        let bucket = units.checked_ilog2().unwrap_or(0).saturating_sub(half);
        (u64::from(bucket) << half) + (units >> bucket)
    }

    /// Returns the smallest value of a bucket, `None` beyond 64 bits.
    pub(crate) fn lowest_bucket_value(&self, index: u64) -> Option<u64> {
        let (unit, half) = (self.unit(), self.half());
        let bucket = (index >> half).saturating_sub(1);
        let units = index - (bucket << half);
        let shift = u32::try_from(bucket).ok()? + unit;
        (shift < 64 && units.leading_zeros() >= shift).then(|| units << shift)
    }
}

/// Writes a zigzag number with seven bits a byte, least first; a ninth byte holds eight.
fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    for _ in 0..8 {
        if rest < 128 {
            out.push(rest as u8);
            return;
        }
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn unvarint(bytes: &mut &[u8]) -> Option<i64> {
    let mut folded = 0_u64;
    for at in 0..9 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if *byte < 128 || at == 8 {
            folded |= u64::from(*byte) << (7 * at);
            break;
        }
        folded |= u64::from(byte & 127) << (7 * at);
    }
    Some((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(digits: u8, seed: u64, count: u64) -> Histogram<u64> {
        let mut values = Histogram::new(digits).unwrap();
        let spread = |i: u64| (i * seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (20 + i % 40);
        (1..=count).for_each(|i| values.record(spread(i)).unwrap());
        values
    }

    fn counts(values: &Histogram<u64>) -> Vec<(u64, u64)> {
        values.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    #[test]
    fn every_bucket_returns() {
        for digits in 0..=5 {
            let written = values(digits, 7, 3000);
            let read = inflated(&deflated(&written).unwrap()).unwrap();
            assert_eq!(counts(&read), counts(&written), "{digits} digits");
        }
    }

    #[test]
    fn indices_and_values_are_inverse_up_to_the_largest() {
        for (low, digits) in [(1, 0), (1, 3), (1000, 2), (1, 5)] {
            let layout = BucketLayout { lowest_discernible: low, digits };
            let last = layout.bucket_index(u64::MAX);
            for index in (0..last.min(3000)).chain(last.saturating_sub(3000)..=last) {
                assert_eq!(
                    layout.bucket_index(layout.lowest_bucket_value(index).unwrap()),
                    index,
                    "low {low}, {digits} digits"
                );
            }
            assert_eq!(layout.lowest_bucket_value(last + 1), None);
        }
    }

    /// The sum of two generators' logs equals the log of one generator with all requests.
    #[test]
    fn logs_add_up_exactly() {
        let (a, b) = (values(3, 11, 5000), values(3, 13, 7000));
        let mut both = a.clone();
        both.add(&b).unwrap();
        let log = |tag, values: &Histogram<u64>| {
            let mut log = HdrLogWriter::start(Vec::new(), 1_735_787_045.5).unwrap();
            log.add("nothing", 0.0, 60.0, &Distribution::default()).unwrap();
            log.add(tag, 1.25, 60.0, &Distribution::from(values)).unwrap();
            log.out
        };
        let mut sums = Vec::new();
        for log in [log("response", &a), log("response", &b), log("lag", &a)] {
            assert!(is_log(&log));
            add_log_by_tag(&mut &log[..], &mut sums).unwrap();
            let late = |logged: HdrLogEntry| {
                assert!((logged.start - 1_735_787_046.75).abs() < 1e-9, "{}", logged.start);
                Ok(())
            };
            read(&mut &log[..], late).unwrap();
        }
        assert_eq!(sums.iter().map(|(tag, _)| tag.as_str()).collect::<Vec<_>>(), ["response", "lag"]);
        assert_eq!(sums[0].1.buckets().collect::<Vec<_>>(), counts(&both));
        assert_eq!(sums[0].1.quantile(0.99).unsigned_abs(), both.value_at_quantile(0.99));
    }

    #[test]
    fn bytes_that_are_no_histogram_are_refused() {
        let good = deflated(&values(3, 3, 60)).unwrap();
        for cut in 0..good.len() {
            assert!(inflated(&good[..cut]).is_none(), "cut at {cut}");
        }
        let plain = plain(&values(3, 3, 60));
        for at in 0..plain.len() {
            for byte in [0, 1, 127, 128, 255] {
                let mut damaged = plain.clone();
                damaged[at] = byte;
                // The text is read or refused without a panic; counts can be anything.
                let _ = histogram(&damaged);
            }
        }
    }
}
