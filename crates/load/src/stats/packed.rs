//! Figures in as few bytes as possible: exact counts, and latencies with a given number of significant digits.
//!
//! Counts are JSON without names. Histograms are numbers of seven bits a byte: the distances of their buckets, then the counts in
//! the buckets. All of it is deflated together, because histograms of one interval are similar, and encoded in base64. The order
//! of the figures belongs to this version of the program, so writer and reader must have the same version.

use std::io::{Read, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram as Buckets;
use serde::{Deserialize, Serialize};

use super::{LatencyHistogram, LoadStats, RequestTimes, StatusCounts, WrongAnswerCounts, json};
use crate::by_variant::StatsByVariant;
use crate::latency_distribution::{Distribution, Precision};
use crate::request_failure_reason::RequestFault;
use crate::results::hdr::{BucketLayout, MAX_VALUES};
use crate::target_outcomes::TargetOutcomes;

/// The maximum size of inflated figures: a histogram of three digits with every bucket filled takes half a megabyte.
const MAX_INFLATED: u64 = 16 << 20;

/// The counts, in the order of the fields.
#[derive(Serialize, Deserialize)]
struct Counts(
    [u64; 15],
    u64,
    #[serde(with = "json::failures")] [u64; RequestFault::KIND_COUNT],
    StatusCounts,
    #[serde(with = "json::failure_examples")] [Option<Box<str>>; RequestFault::KIND_COUNT],
    TargetOutcomes,
    Vec<(String, u64, u64)>,
    WrongAnswerCounts,
    StatusCounts,
);

impl LoadStats {
    /// Packs the figures with this number of significant digits of each latency. A histogram does not become coarser than
    /// `digits`, but the text does not tell how precise it was before.
    pub(crate) fn packed(&self, digits: u8) -> String {
        let mut bytes = serde_json::to_vec(&self.counts()).unwrap_or_default();
        bytes.push(b'\n');
        self.every_histogram().for_each(|one| pack(&mut bytes, one, digits));
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        let deflated = encoder.write_all(&bytes).and_then(|()| encoder.finish());
        debug_assert!(deflated.is_ok(), "a write to memory does not fail");
        BASE64_STANDARD.encode(deflated.unwrap_or_default())
    }

    /// Decodes the text that [`LoadStats::packed`] made with this number of digits; `None` for any other text.
    pub(crate) fn unpacked(packed: &str, digits: u8) -> Option<Self> {
        let deflated = BASE64_STANDARD.decode(packed).ok()?;
        let mut bytes = Vec::new();
        ZlibDecoder::new(&deflated[..]).take(MAX_INFLATED).read_to_end(&mut bytes).ok()?;
        let end = memchr::memchr(b'\n', &bytes)?;
        let mut stats = Self::counted(serde_json::from_slice(&bytes[..end]).ok()?)?;
        let mut rest = &bytes[end + 1..];
        for one in stats.every_histogram_mut() {
            *one = unpack(&mut rest, digits)?;
        }
        rest.is_empty().then_some(stats)
    }

    fn counts(&self) -> Counts {
        let variants =
            self.variants.iter().map(|(name, of)| (name.to_owned(), of.completed, of.good)).collect();
        let Self { in_flight_peak, failures, statuses, failure_examples, outcomes, .. } = self;
        Counts(
            self.counters(),
            *in_flight_peak,
            *failures,
            statuses.clone(),
            failure_examples.clone(),
            outcomes.clone(),
            variants,
            self.wrong_answers.clone(),
            self.wrong_answer_statuses.clone(),
        )
    }

    fn counted(counts: Counts) -> Option<Self> {
        let Counts(
            counters,
            in_flight_peak,
            failures,
            statuses,
            failure_examples,
            outcomes,
            variants,
            wrong_answers,
            wrong_answer_statuses,
        ) = counts;
        let variants = StatsByVariant::from_counts(variants)?;
        let mut stats = Self {
            in_flight_peak,
            failures,
            statuses,
            failure_examples,
            outcomes,
            variants,
            wrong_answers,
            wrong_answer_statuses,
            ..Self::default()
        };
        stats.counters_mut().into_iter().zip(counters).for_each(|(ours, told)| *ours = told);
        Some(stats)
    }

    fn every_histogram(&self) -> impl Iterator<Item = &LatencyHistogram> {
        let times = self.classes.iter().chain(self.variants.iter().map(|(_, of)| &of.times));
        self.histograms().into_iter().chain(
            times.flat_map(|RequestTimes { service_time, response_time }| [service_time, response_time]),
        )
    }

    fn every_histogram_mut(&mut self) -> impl Iterator<Item = &mut LatencyHistogram> {
        let Self {
            send_lag,
            generator_lag,
            scheduler_lag,
            lookup,
            connect,
            tls,
            write,
            first_byte,
            body,
            classes,
            variants,
            ..
        } = self;
        let times = classes.iter_mut().chain(variants.each_variant_times_mut());
        let times =
            times.flat_map(|RequestTimes { service_time, response_time }| [service_time, response_time]);
        [send_lag, generator_lag, scheduler_lag, lookup, connect, tls, write, first_byte, body]
            .into_iter()
            .chain(times)
    }
}

fn layout(digits: u8) -> BucketLayout {
    BucketLayout { lowest_discernible: 1, digits }
}

/// Writes the number of filled buckets and, if there are any: the smallest bucket, the distance from it to the largest bucket,
/// the sum, the distances between the buckets, and their counts.
fn pack(out: &mut Vec<u8>, one: &LatencyHistogram, digits: u8) {
    let filled = coarse(one.distribution(), digits);
    varint(out, filled.len() as u128);
    if filled.is_empty() {
        return;
    }
    let (min, max) = (one.min(), one.max());
    let sum = u128::try_from(one.distribution().sum()).unwrap_or(0);
    [min.into(), max.saturating_sub(min).into(), sum].into_iter().for_each(|number| varint(out, number));
    let mut next = 0;
    for (index, _) in &filled {
        varint(out, (index - next).into());
        next = index + 1;
    }
    filled.iter().for_each(|(_, count)| varint(out, (*count).into()));
}

/// Returns the buckets with this number of digits, by their index, and their counts. Each bucket consists of whole finer buckets.
fn coarse(values: &Distribution, digits: u8) -> Vec<(u64, u64)> {
    let mut filled: Vec<(u64, u64)> = Vec::new();
    for (value, count) in values.buckets() {
        let index = layout(digits).bucket_index(value);
        match filled.last_mut() {
            Some((last, all)) if *last == index => *all += count,
            _ => filled.push((index, count)),
        }
    }
    filled
}

fn unpack(bytes: &mut &[u8], digits: u8) -> Option<LatencyHistogram> {
    let filled = usize::try_from(unvarint(bytes)?).ok()?;
    if filled == 0 {
        return Some(LatencyHistogram::default());
    }
    // Each bucket takes a byte or more in each of two lists. A larger number is damage, and no memory is allocated for it.
    if filled > bytes.len() {
        return None;
    }
    let min = u64::try_from(unvarint(bytes)?).ok()?;
    let max = min.checked_add(u64::try_from(unvarint(bytes)?).ok()?)?;
    let sum = i128::try_from(unvarint(bytes)?).ok()?;
    let mut indices = Vec::with_capacity(filled);
    let mut next = 0_u64;
    for _ in 0..filled {
        let index = next.checked_add(u64::try_from(unvarint(bytes)?).ok()?)?;
        indices.push(index);
        next = index.checked_add(1)?;
    }
    let mut buckets = Buckets::new(3).ok()?;
    let mut least = Some(min);
    for index in indices {
        let count = u64::try_from(unvarint(bytes)?).ok()?;
        refine(&mut buckets, layout(digits), index, count, (&mut least, max))?;
    }
    let known = i64::try_from(min).ok()?..=i64::try_from(max).ok()?;
    let spread = (buckets.len() <= MAX_VALUES)
        .then(|| Distribution::from_buckets(buckets, Precision::Three, sum, known))??;
    Some(LatencyHistogram(spread))
}

/// Adds the values of a bucket, which may be coarse. One value of the first bucket is the smallest of all. The others are the
/// largest possible, so that no quantile is too small.
fn refine(
    buckets: &mut Buckets<u64>,
    layout: BucketLayout,
    index: u64,
    count: u64,
    (least, max): (&mut Option<u64>, u64),
) -> Option<()> {
    let mut rest = count.checked_sub(1)?;
    let high = layout.lowest_bucket_value(index.checked_add(1)?).map_or(u64::MAX, |next| next - 1).min(max);
    match least.take() {
        Some(min) => buckets.record(min).ok()?,
        None => rest = count,
    }
    buckets.record_n(high, rest).ok()
}

/// Writes a number with seven bits a byte, least first.
fn varint(out: &mut Vec<u8>, mut rest: u128) {
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn unvarint(bytes: &mut &[u8]) -> Option<u128> {
    let mut number = 0_u128;
    for at in 0..19 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u128::from(byte & 127).checked_shl(7 * at)?;
        if *byte < 128 {
            return Some(number);
        }
    }
    None
}
