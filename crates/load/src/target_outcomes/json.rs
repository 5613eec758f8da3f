//! Outcomes by target as JSON and back, exactly, within the bounds that they have in memory.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BUCKET_BOUNDS, MAX_TARGETS, OutcomeCounts, RequestOutcome, TargetOutcomes, find, place};
use crate::request_failure_reason::RequestFault;

/// One entry, with its outcome by name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeJson {
    target: usize,
    outcome: OutcomeName,
    count: u64,
    buckets: [u64; BUCKET_BOUNDS.len() + 1],
    #[serde(rename = "total_seconds", with = "crate::duration_json")]
    total_time: u128,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeName {
    Status(u16),
    OtherStatus,
    Failure(String),
}

impl From<RequestOutcome> for OutcomeName {
    fn from(kind: RequestOutcome) -> Self {
        match kind {
            RequestOutcome::Status(status) => Self::Status(status),
            RequestOutcome::OtherStatus => Self::OtherStatus,
            RequestOutcome::Fault(kind) => Self::Failure(RequestFault::name_of_kind(kind).to_owned()),
        }
    }
}

impl OutcomeName {
    fn kind(&self) -> Option<RequestOutcome> {
        Some(match self {
            Self::Status(status) => RequestOutcome::Status(*status),
            Self::OtherStatus => RequestOutcome::OtherStatus,
            Self::Failure(name) => RequestOutcome::Fault(
                (0..RequestFault::KIND_COUNT).find(|&kind| RequestFault::name_of_kind(kind) == name)?,
            ),
        })
    }
}

impl Serialize for TargetOutcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.filled().map(|(target, outcome)| {
            let OutcomeCounts { kind, count, buckets, total_time, bytes_in, bytes_out } = outcome.clone();
            OutcomeJson { target, outcome: kind.into(), count, buckets, total_time, bytes_in, bytes_out }
        }))
    }
}

impl<'de> Deserialize<'de> for TargetOutcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut outcomes = Self::default();
        for told in Vec::<OutcomeJson>::deserialize(deserializer)? {
            let OutcomeJson { target, outcome, count, buckets, total_time, bytes_in, bytes_out } = told;
            let kind = outcome.kind().filter(|_| target < MAX_TARGETS && count > 0);
            let kind = kind.ok_or_else(|| D::Error::custom("unknown outcome"))?;
            if outcomes.0.len() <= target {
                outcomes.0.resize_with(target + 1, Vec::new);
            }
            let places = &mut outcomes.0[target];
            if find(places, kind).is_some() || place(places, kind).kind != kind {
                return Err(D::Error::custom("an outcome occurs twice or is unknown"));
            }
            *place(places, kind) = OutcomeCounts { kind, count, buckets, total_time, bytes_in, bytes_out };
        }
        Ok(outcomes)
    }
}
