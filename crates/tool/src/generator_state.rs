//! The findings of an attack about its own machine, in a small file beside its results, so that `report` can repeat them.
//!
//! A record in the results themselves would break vegeta, which reads the same file. The file is `RESULTS.generator.json`.
//! `attack` writes it and `report` reads it. It counts only while the results have the size that it names, because another
//! program may have replaced them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use seawall_lab::generator_verdict::{GeneratorVerdict, VerdictReason};
use seawall_lab::trial_judgement::Judgement;
use serde::{Deserialize, Serialize};

/// The only version of the document so far.
const VERSION: u32 = 1;
/// A larger file was not written by `attack`.
const MAX_BYTES: u64 = 64 * 1024;

/// The document.
#[derive(Debug, Serialize, Deserialize)]
struct GeneratorStateDocument {
    kind: String,
    version: u32,
    /// The size of the results file, in bytes.
    results_bytes: u64,
    generator_verdict: GeneratorVerdict,
    findings: Vec<VerdictReason>,
}

/// The name of the document's kind.
const KIND: &str = "generator";

fn path_beside(results: &str) -> PathBuf {
    PathBuf::from(format!("{results}.generator.json"))
}

/// Writes the state beside a results file that is complete. A pipe or a device has no state.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_generator_state(results: &str, judgement: &Judgement) -> anyhow::Result<()> {
    let Ok(metadata) = fs::metadata(results) else { return Ok(()) };
    if !metadata.is_file() {
        return Ok(());
    }
    let document = GeneratorStateDocument {
        kind: KIND.to_owned(),
        version: VERSION,
        results_bytes: metadata.len(),
        generator_verdict: judgement.generator_verdict,
        findings: judgement.reasons.clone(),
    };
    let path = path_beside(results);
    fs::write(&path, serde_json::to_string(&document)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the lines that a reader of these results must see: nothing for a generator that kept up, or for results without a state.
pub(crate) fn read_warnings(results: &[String]) -> String {
    results.iter().filter_map(|file| warning(file)).collect()
}

fn warning(results: &str) -> Option<String> {
    let path = path_beside(results);
    if fs::metadata(&path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let document: GeneratorStateDocument = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let is_current = document.results_bytes == fs::metadata(results).ok()?.len();
    if document.kind != KIND || document.version != VERSION || !is_current {
        return None;
    }
    let verdict = match document.generator_verdict {
        GeneratorVerdict::Valid => return None,
        GeneratorVerdict::Degraded => {
            "the generator was too slow; the latencies include the generator's delay"
        }
        GeneratorVerdict::GeneratorLimited => {
            "the generator, not the target, was the limit; the results say nothing about the target"
        }
    };
    let reasons = document.findings.iter().map(|reason| format!("  {}: {}\n", reason.check, reason.measured));
    Some(format!("seawall: {results}: {verdict}\n{}", reasons.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judgement(verdict: GeneratorVerdict) -> Judgement {
        Judgement::from_reasons(vec![VerdictReason::new("lag", verdict, "p99 of 12 ms".to_owned())])
    }

    #[test]
    fn the_state_of_the_generator_is_repeated_while_the_results_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results.gob").display().to_string();
        fs::write(&results, "records").unwrap();
        write_generator_state(&results, &judgement(GeneratorVerdict::Degraded)).unwrap();
        let text = read_warnings(std::slice::from_ref(&results));
        assert!(
            text.contains("the generator was too slow") && text.contains("  lag: p99 of 12 ms\n"),
            "{text}"
        );
        fs::write(&results, "other records").unwrap();
        assert_eq!(read_warnings(std::slice::from_ref(&results)), "");
        write_generator_state(&results, &judgement(GeneratorVerdict::Valid)).unwrap();
        assert_eq!(read_warnings(&[results]), "");
    }

    #[test]
    fn what_is_no_state_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results.gob").display().to_string();
        fs::write(&results, "records").unwrap();
        for text in ["", "{}", "[1]", "{\"kind\":\"generator\"}"] {
            fs::write(path_beside(&results), text).unwrap();
            assert_eq!(read_warnings(std::slice::from_ref(&results)), "", "{text}");
        }
        write_generator_state("/dev/null", &judgement(GeneratorVerdict::Degraded)).unwrap();
        assert!(!PathBuf::from("/dev/null.generator.json").exists());
    }
}
