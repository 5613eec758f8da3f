//! Outcomes by target as JSON and back, exactly, within the bounds that they have in memory.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BOUNDS, Kind, Outcome, Outcomes, TARGETS, find, place};
use crate::fault::Fault;

/// One place, with what it stands for spelled out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    target: usize,
    outcome: Spelled,
    count: u64,
    buckets: [u64; BOUNDS.len() + 1],
    nanos: u128,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Spelled {
    Status(u16),
    OtherStatus,
    Failure(String),
}

impl From<Kind> for Spelled {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Status(status) => Self::Status(status),
            Kind::OtherStatus => Self::OtherStatus,
            Kind::Fault(kind) => Self::Failure(Fault::name(kind).to_owned()),
        }
    }
}

impl Spelled {
    fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Status(status) => Kind::Status(*status),
            Self::OtherStatus => Kind::OtherStatus,
            Self::Failure(name) => Kind::Fault((0..Fault::KINDS).find(|&kind| Fault::name(kind) == name)?),
        })
    }
}

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.filled().map(|(target, outcome)| {
            let Outcome { kind, count, buckets, nanos, bytes_in, bytes_out } = outcome.clone();
            Told { target, outcome: kind.into(), count, buckets, nanos, bytes_in, bytes_out }
        }))
    }
}

impl<'de> Deserialize<'de> for Outcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut outcomes = Self::default();
        for told in Vec::<Told>::deserialize(deserializer)? {
            let Told { target, outcome, count, buckets, nanos, bytes_in, bytes_out } = told;
            let kind = outcome.kind().filter(|_| target < TARGETS && count > 0);
            let kind = kind.ok_or_else(|| D::Error::custom("an outcome that nobody counts"))?;
            if outcomes.0.len() <= target {
                outcomes.0.resize_with(target + 1, Vec::new);
            }
            let places = &mut outcomes.0[target];
            if find(places, kind).is_some() || place(places, kind).kind != kind {
                return Err(D::Error::custom("an outcome that is there twice, or has no place"));
            }
            *place(places, kind) = Outcome { kind, count, buckets, nanos, bytes_in, bytes_out };
        }
        Ok(outcomes)
    }
}
