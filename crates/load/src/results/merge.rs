//! Several inputs as one stream in time order, in constant memory.
//!
//! The record with the earliest timestamp of all inputs comes next; the records of one input keep their order. An input that
//! breaks is left at that position, with the reason, and the others go on. vegeta takes turns instead of comparing, and ends
//! silently when an input breaks.

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
    /// True if the head was returned. The next record is read only on request, so that a live pipe is never a record behind.
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
    /// Makes a merge without inputs.
    #[must_use]
    pub fn new() -> Self {
        Self { sources: Vec::new(), broken: Vec::new(), current: Record::default(), added: 0 }
    }

    /// Adds an input and detects its format; an empty input counts as broken.
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

    /// Returns the next record of all inputs and the number of its input (from 0, in the order in which they were added); `None`
    /// at the end.
    pub fn next_record(&mut self) -> Option<(usize, &Record)> {
        let broken = &mut self.broken;
        self.sources.retain_mut(|source| source.refill(broken));
        let earliest = self.sources.iter_mut().min_by_key(|source| source.head.due_timestamp.unix_ns())?;
        mem::swap(&mut self.current, &mut earliest.head);
        earliest.taken = true;
        Some((earliest.index, &self.current))
    }

    /// Returns the inputs that broke so far.
    #[must_use]
    pub fn broken_inputs(&self) -> &[BrokenInput] {
        &self.broken
    }
}

impl<R: BufRead> Source<R> {
    /// Reads the next record if the head was returned; `false` at the end of the input or if it is broken.
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
