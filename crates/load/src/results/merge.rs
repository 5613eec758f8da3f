//! Several inputs as one stream in time order, in constant memory.
//!
//! Of all inputs the record with the earliest timestamp comes next; the records of one input keep their order. An
//! input that breaks is left where it broke, with its reason, and the others go on. vegeta takes turns instead of
//! comparing, and ends without a word when an input breaks.

use std::io::BufRead;
use std::mem;

use crate::record::Record;

use super::decode::{DecodeError, Decoder};

/// Reads several inputs as one.
#[derive(Debug, Default)]
pub struct RecordMerge<R> {
    sources: Vec<Source<R>>,
    broken: Vec<BrokenInput>,
    current: Record,
    added: usize,
}

#[derive(Debug)]
struct Source<R> {
    index: usize,
    name: String,
    decoder: Decoder<R>,
    head: Record,
    /// The head was handed out; the next one is read only when it is asked for, so that a live pipe is never a
    /// record behind.
    taken: bool,
}

/// An input that could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
pub struct BrokenInput {
    /// The name of the input.
    pub name: String,
    /// The mistake in the input.
    pub error: DecodeError,
}

impl<R: BufRead> RecordMerge<R> {
    /// No input yet.
    #[must_use]
    pub fn new() -> Self {
        Self { sources: Vec::new(), broken: Vec::new(), current: Record::default(), added: 0 }
    }

    /// Adds an input whose format is still to be found out; one that is empty counts as broken.
    pub fn add_input(&mut self, name: &str, input: R) {
        let (name, index) = (name.to_owned(), self.added);
        self.added += 1;
        match Decoder::detect(input) {
            Ok(decoder) => {
                self.sources.push(Source { index, name, decoder, head: Record::default(), taken: true });
            }
            Err(error) => self.broken.push(BrokenInput { name, error }),
        }
    }

    /// The next record of all and the number of its input (from 0, as added); `None` behind the last.
    pub fn next_record(&mut self) -> Option<(usize, &Record)> {
        let broken = &mut self.broken;
        self.sources.retain_mut(|source| source.refill(broken));
        let earliest = self.sources.iter_mut().min_by_key(|source| source.head.timestamp.unix_ns())?;
        mem::swap(&mut self.current, &mut earliest.head);
        earliest.taken = true;
        Some((earliest.index, &self.current))
    }

    /// The inputs that broke so far.
    #[must_use]
    pub fn broken_inputs(&self) -> &[BrokenInput] {
        &self.broken
    }
}

impl<R: BufRead> Source<R> {
    /// Makes sure that there is a head; `false` when there is no more.
    fn refill(&mut self, broken: &mut Vec<BrokenInput>) -> bool {
        if !mem::take(&mut self.taken) {
            return true;
        }
        self.decoder.decode(&mut self.head).unwrap_or_else(|error| {
            broken.push(BrokenInput { name: mem::take(&mut self.name), error });
            false
        })
    }
}
