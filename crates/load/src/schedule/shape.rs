//! The shapes of a rate within a stage, and their integral in both directions: instant to requests, requests to instant.
//!
//! This module knows one stage, from its own start on; [`super::Schedule`] puts stages one after the other.

use std::sync::Arc;

use super::{HIT, ONE, Position};
use crate::clock::{Nanos, SECOND};
use crate::rate::RequestRate;

/// The parts of a request to which the area under a curve is rounded: floating-point noise must not become a request.
const GRAIN: f64 = (1u64 << 20) as f64;

/// The shape of the rate within a stage.
#[derive(Debug, Clone, PartialEq)]
pub enum RateShape {
    /// A constant rate.
    Hold(RequestRate),
    /// A rate that changes linearly over the stage.
    Ramp {
        /// The rate at the start, in requests per second.
        from: f64,
        /// The rate at the end, in requests per second.
        to: f64,
    },
    /// A mean rate with a sine on top, starting at the mean and rising.
    Sine {
        /// The mean rate, in requests per second.
        mean: f64,
        /// The amplitude, in requests per second; at most the mean.
        amplitude: f64,
        /// The length of one period.
        period: Nanos,
    },
    /// Recorded offsets from the stage's start, ascending.
    Replay(Arc<[Nanos]>),
}

impl RateShape {
    pub(super) fn rate(&self, at: Nanos, length: Option<Nanos>) -> f64 {
        match self {
            Self::Hold(rate) => rate.requests_per_second(),
            Self::Ramp { from, to } => from + (to - from) * at as f64 / length.unwrap_or(at.max(1)) as f64,
            Self::Sine { mean, amplitude, period } => mean + amplitude * swing(at, *period).sin(),
            Self::Replay(_) => self.hits_until(at, length) as f64 / ONE * SECOND as f64 / at.max(1) as f64,
        }
    }

    pub(super) fn peak(&self, length: Option<Nanos>) -> f64 {
        match self {
            Self::Hold(rate) => rate.requests_per_second(),
            Self::Ramp { from, to } => from.max(*to),
            Self::Sine { mean, amplitude, .. } => mean + amplitude,
            Self::Replay(_) => self.rate(length.unwrap_or(SECOND), length),
        }
    }

    /// Returns the integral of the rate from the stage's start to `at`.
    pub(super) fn hits_until(&self, at: Nanos, length: Option<Nanos>) -> Position {
        let hits = match self {
            Self::Hold(rate) => {
                let (scaled, period) = (u128::from(at) * u128::from(rate.hits()), u128::from(rate.period()));
                let whole = u64::try_from(scaled / period).map(|whole| Position::from(whole) << HIT);
                return whole.map_or(Position::MAX, |whole| whole + ((scaled % period) << HIT) / period);
            }
            Self::Ramp { from, .. } => (from + self.rate(at, length)) / 2.0 * seconds(at),
            Self::Sine { mean, amplitude, period } => {
                sine_hits(seconds(at), *mean, *amplitude, seconds(*period))
            }
            Self::Replay(offsets) => {
                return (offsets.partition_point(|&offset| offset < at) as Position) << HIT;
            }
        };
        // A tiny positive area counts as more than nothing, or a run would miss its first request.
        let least = if hits > 0.0 { 1.0 } else { 0.0 };
        ((hits * GRAIN).round().max(least) * (ONE / GRAIN)) as Position
    }

    /// Returns the inverse of [`RateShape::hits_until`]. It is exact for a held rate, and within a nanosecond or two for curves.
    pub(super) fn instant_of_position(&self, position: Position, length: Option<Nanos>) -> Option<Nanos> {
        let hits = position as f64 / ONE;
        let seconds = match self {
            Self::Hold(rate) => {
                let (whole, fraction) = ((position >> HIT) as u64, position as u64);
                let period = u128::from(rate.period());
                let scaled = u128::from(whole) * period + ((u128::from(fraction) * period) >> HIT);
                return u64::try_from(scaled / u128::from(rate.hits())).ok();
            }
            Self::Replay(offsets) => return offsets.get(usize::try_from(position >> HIT).ok()?).copied(),
            Self::Ramp { from, to } => ramp_instant(hits, *from, *to, seconds(length?)),
            Self::Sine { mean, amplitude, period } => sine_instant(hits, *mean, *amplitude, seconds(*period)),
        };
        let ns = seconds * SECOND as f64;
        (ns.is_finite() && ns < u64::MAX as f64).then(|| ns.round() as u64)
    }
}

fn seconds(ns: Nanos) -> f64 {
    ns as f64 / SECOND as f64
}

fn swing(at: Nanos, period: Nanos) -> f64 {
    std::f64::consts::TAU * (at % period.max(1)) as f64 / period.max(1) as f64
}

/// Solves `from t + slope t^2 / 2 = hits` in the form that does not cancel when the slope is small.
fn ramp_instant(hits: f64, from: f64, to: f64, length: f64) -> f64 {
    let slope = (to - from) / length;
    let root = (from * from + 2.0 * slope * hits).max(0.0).sqrt();
    if hits == 0.0 { 0.0 } else { 2.0 * hits / (from + root) }
}

fn sine_hits(at: f64, mean: f64, amplitude: f64, period: f64) -> f64 {
    let turn = std::f64::consts::TAU / period;
    mean * at + amplitude / turn * (1.0 - (turn * at).cos())
}

/// Bisects between the two instants that bound the sine's share of the requests. The function is monotone, so the search always
/// ends.
fn sine_instant(hits: f64, mean: f64, amplitude: f64, period: f64) -> f64 {
    let most = amplitude * period / std::f64::consts::PI;
    let (mut low, mut high) = (((hits - most) / mean).max(0.0), hits / mean);
    while high - low > 0.5 / SECOND as f64 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if sine_hits(middle, mean, amplitude, period) < hits { low = middle } else { high = middle }
    }
    high
}
