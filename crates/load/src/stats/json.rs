//! Figures as JSON and back, exactly: histograms as in an HDR log (V2, deflated, base64), counts by name.
//!
//! Sums and extremes are separate fields, because the buckets do not hold them exactly; whole numbers may exceed 2^53. Empty
//! figures are left out or `null`. Inconsistent figures are refused, because sums of figures are not checked again.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{LatencyHistogram, RequestTimes, StatusCounts};
use crate::latency_distribution::{Distribution, Precision};
use crate::request_failure_reason::{OutcomeClass, RequestFault};
use crate::results::hdr;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistogramJson {
    hdr: String,
    sum: i128,
    min: i64,
    max: i64,
}

impl Serialize for LatencyHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(buckets) = self.0.histogram() else { return serializer.serialize_none() };
        let hdr = hdr::encode(buckets).map_err(S::Error::custom)?;
        HistogramJson { hdr, sum: self.0.sum(), min: self.0.min(), max: self.0.max() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(HistogramJson { hdr, sum, min, max }) = Option::deserialize(deserializer)? else {
            return Ok(Self::default());
        };
        let buckets = hdr::decode(&hdr).ok_or_else(|| D::Error::custom("expected a histogram in base64"))?;
        Distribution::from_buckets(buckets, Precision::Three, sum, min..=max)
            .map(Self)
            .ok_or_else(|| D::Error::custom("the histogram contradicts its sum, min or max"))
    }
}

impl Serialize for StatusCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for StatusCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut statuses = Self::default();
        for (status, count) in BTreeMap::<u16, u64>::deserialize(deserializer)? {
            let place = status.checked_sub(100).and_then(|at| statuses.0.get_mut(usize::from(at)));
            *place.ok_or_else(|| unknown("status", &status))? = count;
        }
        Ok(statuses)
    }
}

fn unknown<E: serde::de::Error>(what: &str, name: &dyn Display) -> E {
    E::custom(format!("{name} is not a {what}"))
}

/// Returns the index of a kind of failure.
fn kind<E: serde::de::Error>(name: &str) -> Result<usize, E> {
    (0..RequestFault::KIND_COUNT)
        .find(|&kind| RequestFault::name_of_kind(kind) == name)
        .ok_or_else(|| unknown("kind of failure", &name))
}

/// Counts of failures, by the names of their kinds.
pub(super) mod failures {
    use super::{BTreeMap, Deserialize, Deserializer, RequestFault, Serializer, kind};

    pub(crate) fn serialize<S: Serializer>(
        counts: &[u64; RequestFault::KIND_COUNT],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let named = counts.iter().enumerate().map(|(kind, count)| (RequestFault::name_of_kind(kind), count));
        serializer.collect_map(named.filter(|(_, count)| **count > 0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u64; RequestFault::KIND_COUNT], D::Error> {
        let mut counts = [0; RequestFault::KIND_COUNT];
        for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            counts[kind(&name)?] = count;
        }
        Ok(counts)
    }
}

/// The error text of one failure of each kind.
pub(super) mod failure_examples {
    use super::{BTreeMap, Deserialize, Deserializer, RequestFault, Serializer, kind};

    pub(crate) fn serialize<S: Serializer>(
        examples: &[Option<Box<str>>; RequestFault::KIND_COUNT],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let told = examples.iter().enumerate();
        serializer.collect_map(
            told.filter_map(|(kind, example)| Some((RequestFault::name_of_kind(kind), example.as_deref()?))),
        )
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[Option<Box<str>>; RequestFault::KIND_COUNT], D::Error> {
        let mut examples: [Option<Box<str>>; RequestFault::KIND_COUNT] = Default::default();
        for (name, text) in BTreeMap::<String, Box<str>>::deserialize(deserializer)? {
            examples[kind(&name)?] = Some(text);
        }
        Ok(examples)
    }
}

/// The times of each class that has any, by the name of the class.
pub(super) mod classes {
    use super::{BTreeMap, Deserialize, Deserializer, OutcomeClass, RequestTimes, Serializer, unknown};

    pub(crate) fn serialize<S: Serializer>(
        classes: &[RequestTimes; OutcomeClass::COUNT],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let named = OutcomeClass::ALL.map(|class| (class.name(), &classes[class as usize]));
        let filled = |times: &RequestTimes| times.response_time.count() + times.service_time.count() > 0;
        serializer.collect_map(named.into_iter().filter(|(_, times)| filled(times)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[RequestTimes; OutcomeClass::COUNT], D::Error> {
        let mut classes: [RequestTimes; OutcomeClass::COUNT] = Default::default();
        for (name, times) in BTreeMap::<String, RequestTimes>::deserialize(deserializer)? {
            let class = OutcomeClass::ALL.into_iter().find(|class| class.name() == name);
            let class = class.ok_or_else(|| unknown("class of outcome", &name))?;
            classes[class as usize] = times;
        }
        Ok(classes)
    }
}
