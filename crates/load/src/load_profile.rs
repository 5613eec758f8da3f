//! Parses the load over time as users write it: stages in words, separated by commas.
//!
//! `hold 100/s for 30s, ramp 100/s to 1000/s for 1m, step 100/s to 500/s by 100/s every 10s,
//! sine 500/s by 200/s every 1m for 5m, replay offsets.txt`
//!
//! A file that is replayed has an offset per line, from the start of its stage: a duration, or a plain number of milliseconds as
//! in h2load's `--timing-script-file`. Called by the tool; makes [`ProfileStage`]s and nothing else.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Nanos, nanos};
use crate::rate::{RateParseError, RequestRate, parse_duration};
use crate::schedule::{ProfileStage, RateShape};

/// The reason why a text is not a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text does not match the form of any stage.
    #[error(
        "{0:?} is not a stage: expected `hold RATE [for TIME]`, `ramp RATE to RATE for TIME`, \
         `step RATE to RATE by RATE every TIME`, `sine RATE by RATE every TIME for TIME` or `replay FILE`"
    )]
    Stage(String),
    /// A word in the stage is not a valid rate or duration.
    #[error("{stage:?}: {reason}")]
    RateOrDuration {
        /// The stage.
        stage: String,
        /// The mistake.
        reason: RateParseError,
    },
    /// A stage that is well-formed but invalid, such as one without a duration before another stage.
    #[error("{stage:?}: {reason}")]
    InvalidStage {
        /// The stage.
        stage: String,
        /// The mistake.
        reason: &'static str,
    },
    /// The file of offsets is invalid or cannot be read.
    #[error("{file}:{line}: {reason}")]
    Offsets {
        /// The name of the file.
        file: String,
        /// The line, from 1; 0 for the file as a whole.
        line: usize,
        /// The mistake.
        reason: String,
    },
}

/// The maximum number of steps. A tiny `by` with a large `to` would make too many.
const MOST_STEPS: f64 = 10_000.0;

/// The maximum number of recorded offsets that are kept in memory, 8 bytes each.
const MOST_OFFSETS: usize = 1 << 27;

/// Parses a profile; `open` opens the files that it names.
///
/// # Errors
/// Returns the first [`ProfileError`].
pub fn parse<R: BufRead>(
    text: &str,
    open: impl Fn(&str) -> std::io::Result<R>,
) -> Result<Vec<ProfileStage>, ProfileError> {
    let mut stages = Vec::new();
    let sentences: Vec<&str> = text.split(',').map(str::trim).collect();
    for (index, sentence) in sentences.iter().enumerate() {
        let more = stage(sentence, &open)?;
        let endless = more.iter().any(|stage| stage.length.is_none());
        if endless && index + 1 < sentences.len() {
            return Err(sense(sentence, "each stage before the last one needs a duration (for TIME)"));
        }
        stages.extend(more);
    }
    if stages.iter().all(|stage| stage.shape == PAUSE) {
        return Err(sense(text, "at least one stage needs a rate above 0"));
    }
    Ok(stages)
}

/// A stage without requests: a ramp from 0 to 0.
const PAUSE: RateShape = RateShape::Ramp { from: 0.0, to: 0.0 };

fn stage<R: BufRead>(
    sentence: &str,
    open: &impl Fn(&str) -> std::io::Result<R>,
) -> Result<Vec<ProfileStage>, ProfileError> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let rate = |word: &str| word.parse::<RequestRate>().map_err(|reason| bad_word(sentence, reason));
    let time = |word: &str| match parse_duration(word) {
        Ok(time) if time.is_zero() => Err(sense(sentence, "a time must be above 0")),
        Ok(time) => Ok(time),
        Err(reason) => Err(bad_word(sentence, reason)),
    };
    match words[..] {
        ["hold", at] => Ok(vec![ProfileStage { shape: RateShape::Hold(rate(at)?), length: None }]),
        ["hold", at, "for", length] => {
            let shape = if is_nothing(at) { PAUSE } else { RateShape::Hold(rate(at)?) };
            Ok(vec![lasting(shape, time(length)?)])
        }
        ["ramp", from, "to", to, "for", length] => {
            let (from, to) = (speed(sentence, from)?, speed(sentence, to)?);
            if from + to == 0.0 {
                return Err(sense(
                    sentence,
                    "a ramp needs at least one rate above 0; for a pause use `hold 0 for TIME`",
                ));
            }
            Ok(vec![lasting(RateShape::Ramp { from, to }, time(length)?)])
        }
        ["step", from, "to", to, "by", by, "every", length] => {
            steps(sentence, [rate(from)?, rate(to)?, rate(by)?], time(length)?)
        }
        ["sine", mean, "by", amplitude, "every", period, "for", length] => {
            let (mean, amplitude) =
                (rate(mean)?.requests_per_second(), rate(amplitude)?.requests_per_second());
            if amplitude > mean {
                return Err(sense(sentence, "the amplitude must not exceed the mean rate"));
            }
            Ok(vec![lasting(
                RateShape::Sine { mean, amplitude, period: nanos(time(period)?) },
                time(length)?,
            )])
        }
        ["replay", file] => replay(file, open),
        _ => Err(ProfileError::Stage(sentence.to_owned())),
    }
}

/// Parses the start or end rate of a ramp, which may be 0.
fn speed(sentence: &str, word: &str) -> Result<f64, ProfileError> {
    if is_nothing(word) {
        return Ok(0.0);
    }
    word.parse::<RequestRate>()
        .map(RequestRate::requests_per_second)
        .map_err(|reason| bad_word(sentence, reason))
}

fn is_nothing(word: &str) -> bool {
    word == "0" || word.starts_with("0/")
}

fn bad_word(sentence: &str, reason: RateParseError) -> ProfileError {
    ProfileError::RateOrDuration { stage: sentence.to_owned(), reason }
}

fn sense(sentence: &str, reason: &'static str) -> ProfileError {
    ProfileError::InvalidStage { stage: sentence.to_owned(), reason }
}

fn lasting(shape: RateShape, length: Duration) -> ProfileStage {
    ProfileStage { shape, length: Some(nanos(length)) }
}

/// Returns a stage for each rate from the first to the last, upwards or downwards.
fn steps(
    sentence: &str,
    [from, to, by]: [RequestRate; 3],
    length: Duration,
) -> Result<Vec<ProfileStage>, ProfileError> {
    let (from, to, by) = (from.requests_per_second(), to.requests_per_second(), by.requests_per_second());
    let count = ((to - from).abs() / by + 1e-9).floor();
    if count >= MOST_STEPS {
        return Err(sense(sentence, "the stage has more than 10000 steps"));
    }
    let rates = (0..=count as u64).map(|step| from + (to - from).signum() * by * step as f64);
    let stages = rates
        .map(|rate| RequestRate::from_per_second(rate).map(|rate| lasting(RateShape::Hold(rate), length)));
    stages
        .collect::<Option<_>>()
        .ok_or_else(|| sense(sentence, "the rate of each step must be at least one request in 1000 s"))
}

fn replay<R: BufRead>(
    file: &str,
    open: &impl Fn(&str) -> std::io::Result<R>,
) -> Result<Vec<ProfileStage>, ProfileError> {
    let bad = |line: usize, reason: String| ProfileError::Offsets { file: file.to_owned(), line, reason };
    let mut offsets: Vec<Nanos> = Vec::new();
    for (index, line) in open(file).map_err(|error| bad(0, error.to_string()))?.lines().enumerate() {
        let line = line.map_err(|error| bad(index + 1, error.to_string()))?;
        let Some(word) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let offset = offset(word).ok_or_else(|| {
            bad(index + 1, format!("{word:?} is not an offset: expected milliseconds or a duration"))
        })?;
        if offsets.last().is_some_and(|&last| last > offset) {
            return Err(bad(
                index + 1,
                format!("the offset {word} is less than the offset on the previous line"),
            ));
        }
        if offsets.len() == MOST_OFFSETS {
            return Err(bad(index + 1, format!("the file has more than {MOST_OFFSETS} offsets")));
        }
        offsets.push(offset);
    }
    let Some(&last) = offsets.last() else { return Err(bad(0, "the file has no offsets".to_owned())) };
    Ok(vec![ProfileStage { shape: RateShape::Replay(Arc::from(offsets)), length: Some(last + 1) }])
}

fn offset(word: &str) -> Option<Nanos> {
    let milliseconds =
        if word.ends_with(|c: char| c.is_ascii_digit()) { format!("{word}ms") } else { word.to_owned() };
    // The largest value can be the end of a stage, but not the due time of a request.
    parse_duration(&milliseconds).ok().map(nanos).filter(|&offset| offset < Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::schedule::{ArrivalSpacing, Schedule};

    fn read(text: &str) -> Result<Vec<ProfileStage>, String> {
        let open = |file: &str| match file {
            "offsets" => Ok(std::io::Cursor::new("# recorded\n0\n1.5\n20ms 7 kB\n")),
            "backwards" => Ok(std::io::Cursor::new("2\n1\n")),
            "late" => Ok(std::io::Cursor::new("18446744073709551615ns\n")),
            "empty" => Ok(std::io::Cursor::new("")),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        parse(text, open).map_err(|bad| bad.to_string())
    }

    fn hits(text: &str) -> u64 {
        let schedule = Schedule::new(read(text).unwrap(), ArrivalSpacing::Constant);
        schedule.hits_before(schedule.end().unwrap())
    }

    #[test]
    fn every_sentence_makes_its_hits() {
        assert_eq!(hits("hold 100/s for 30s"), 3000);
        assert_eq!(hits("ramp 0 to 100/s for 10s"), 500);
        assert_eq!(hits("step 100/s to 300/s by 100/s every 10s"), 6000);
        assert_eq!(hits("step 300/s to 100/s by 100/s every 10s"), 6000);
        assert_eq!(hits("sine 100/s by 50/s every 2s for 4s"), 400);
        assert_eq!(hits("replay offsets"), 3);
        assert_eq!(hits("hold 100/s for 1s, replay offsets,hold 1/s for 5s"), 108);
        assert_eq!(hits("hold 50 for 1s, hold 0 for 1s, hold 50 for 1s, hold 0/s for 2s"), 100);
        assert_eq!(read("hold 5").unwrap()[0].length, None);
    }

    #[test]
    fn offsets_are_milliseconds_or_durations() {
        let stages = read("replay offsets").unwrap();
        assert_eq!(stages[0].length, Some(SECOND / 50 + 1));
        let RateShape::Replay(offsets) = &stages[0].shape else { panic!("not a replay") };
        assert_eq!(offsets[..], [0, 1_500_000, 20_000_000]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(read("hover 5").unwrap_err().starts_with("\"hover 5\" is not a stage"));
        assert!(
            read("hold 0 for 1s, hold 0 for 2s")
                .unwrap_err()
                .contains("at least one stage needs a rate above 0")
        );
        assert!(read("hold x for 1s").unwrap_err().contains("\"x\" is not a rate"));
        assert!(read("hold 1 for 0s").unwrap_err().contains("above 0"));
        assert!(read("hold 1, hold 2 for 1s").unwrap_err().contains("before the last one"));
        assert!(read("sine 1 by 2 every 1s for 1s").unwrap_err().contains("amplitude"));
        assert!(read("step 1 to 1000000 by 1 every 1s").unwrap_err().contains("steps"));
        assert!(read("ramp 0 to 0/s for 1s").unwrap_err().contains("one rate above 0"));
        assert!(read("replay backwards").unwrap_err().starts_with("backwards:2: "));
        assert!(read("replay late").unwrap_err().starts_with("late:1: "), "its end was beyond all time");
        assert!(read("replay empty").unwrap_err().contains("the file has no offsets"));
        assert!(read("replay nothing").unwrap_err().starts_with("nothing:0: "));
    }
}
