//! Writes and reads records in vegeta 12's three formats: gob, JSON lines, CSV.
//!
//! Real vegeta reads the output of [`Encoder`], which is byte for byte the output of vegeta, and [`Decoder`] reads the output of
//! vegeta. Nothing here knows how a request was sent or how a report looks: the engine's writer thread calls the encoder, the
//! tool's `report`, `encode` and `plot` call the decoder and [`RecordMerge`].
//!
//! Formats: vegeta `lib/results.go` and `lib/results_easyjson.go`; Go `encoding/gob`, `encoding/csv`, `net/http`.

use std::io::{self, Write};

use crate::record::Record;

mod csv;
mod decode;
mod gob;
pub mod hdr;
mod json;
mod merge;
mod mime;
pub mod rfc3339;

pub use csv::CsvError as CsvDamage;
pub use decode::{DecodeError, DecodeErrorKind, Decoder, InputPosition, MAX_RECORD};
pub use gob::read::GobError as GobDamage;
pub use json::JsonRecordError as JsonDamage;
pub use merge::{BrokenInput, RecordMerge};

/// A format of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// Go's `encoding/gob`: binary, self-describing, the default of a pipe.
    Gob,
    /// One JSON object per line.
    Json,
    /// Twelve columns, no header line.
    Csv,
}

impl ResultFormat {
    /// Returns the name that `-to` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gob => "gob",
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

impl std::str::FromStr for ResultFormat {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Self, UnknownFormatName> {
        [Self::Gob, Self::Json, Self::Csv]
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormatName(name.to_owned()))
    }
}

/// A word that is not the name of a format.
#[derive(Debug, thiserror::Error)]
#[error("unknown encoding {0:?}: expected gob, json or csv")]
pub struct UnknownFormatName(String);

/// The reason why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The output returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// JSON has no year before 0 or after 9999.
    #[error("a timestamp outside the years 0 to 9999 cannot be written as JSON")]
    Year,
    /// The run was ended at once while the output was blocked.
    #[error("the run ended before the reader had read all results")]
    EndedWhileOutputBlocked,
}

/// Writes records, one `write` call each, so that a reader at the other end of a pipe never waits for a buffer.
///
/// Wrap the output in a [`io::BufWriter`] if throughput matters more than immediacy. Once its line buffer has grown to the
/// largest record, encoding allocates nothing.
#[derive(Debug)]
pub struct Encoder<W> {
    format: ResultFormat,
    out: W,
    line: Vec<u8>,
    scratch: Vec<u8>,
    started: bool,
}

impl<W: Write> Encoder<W> {
    /// Makes an encoder.
    pub fn new(format: ResultFormat, out: W) -> Self {
        Self { format, out, line: Vec::new(), scratch: Vec::new(), started: false }
    }

    /// Writes one record.
    ///
    /// # Errors
    /// [`EncodeError`]; after [`EncodeError::Io`] the stream may end inside a record.
    pub fn encode(&mut self, record: &Record) -> Result<(), EncodeError> {
        self.line.clear();
        match self.format {
            ResultFormat::Gob => {
                if !self.started {
                    self.line.extend_from_slice(gob::TYPE_DEFINITIONS);
                }
                gob::append(&mut self.line, &mut self.scratch, record);
            }
            ResultFormat::Json => json::append(&mut self.line, record)?,
            ResultFormat::Csv => csv::append(&mut self.line, &mut self.scratch, record),
        }
        self.out.write_all(&self.line)?;
        self.started = true;
        Ok(())
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns the output, without flushing it.
    pub fn into_inner(self) -> W {
        self.out
    }
}
