//! What each number means, said once for `--help`, the summary and the page.

/// Term and meaning.
pub(crate) const GLOSSARY: &[(&str, &str)] = &[
    (
        "response time",
        "From the instant a request was due to the last byte of its answer, or to its failure. A late generator or a queue in front of the server cannot hide in it.",
    ),
    (
        "offered rate",
        "Requests that were due per second: N requests have N - 1 intervals. vegeta's rate divides N by the same time, so it reads a little higher.",
    ),
    (
        "achieved rate",
        "Requests that were sent and came to an end, well or badly, per second of the schedule: from the first request due to when the one after the last would have been. Below the offered rate the server did not keep up, or the generator gave requests up before it sent them.",
    ),
    (
        "good rate",
        "Answers with status 200 to 399, per second of the schedule. vegeta's throughput counts those after it, too, and divides by the time until the last answer.",
    ),
    (
        "after the schedule",
        "Answers and failures that came when no request was due any more. They are in no rate: a server that takes 10 s for what was due in 5 s has half the good rate.",
    ),
    (
        "good answers",
        "Their share of all requests. Failures without an answer have code 0 and count as not good.",
    ),
    (
        "percentiles",
        "p99 is the response time that 99 % of all requests did not exceed, failures and timeouts included. From an HDR histogram: never below the true value and at most 0.1 % above it (1 % in charts over time and per target). Percentiles of parts are never averaged.",
    ),
    (
        "fewer than 4 answers",
        "To the right of this mark a percentile rests on so few answers that another run would show another value.",
    ),
    ("wait", "From the last request due to the last answer."),
    (
        "in flight",
        "Requests due and not yet answered, on average over each interval. If it grows while the offered rate stays the same, the server does not keep up.",
    ),
    ("lag", "Real send minus due instant. If it grows, the generator was the limit, not the server."),
    ("charts over time", "Requests are shown when they were due, answers and errors when they came."),
];

/// What results cannot hold, said of every report that explains its figures.
pub(crate) const OF_RESULTS: &str = "Results hold what came to an end. Hits that still waited when the run was over were never sent and are not \
among them, so the schedule may have been longer: the attack's own summary and its --intervals count those.";

/// The same for a page of intervals, which hold sums and not instants.
const OF_INTERVALS: &[(&str, &str)] = &[
    (
        "good answers",
        "Their share of all requests that were due, of which some may never have been sent. Those and failures without an answer have code 0 and count as not good.",
    ),
    (
        "percentiles",
        "p99 is the response time that 99 % of the requests that came to an end did not exceed, failures and timeouts included; what was never sent has none. From an HDR histogram: never below the true value and at most 0.1 % above it (1 % in charts over time). Percentiles of parts are never averaged.",
    ),
    (
        "offered rate",
        "Requests that the schedule made due, per second of the schedule; in a closed loop those that there was room for. Intervals do not hold when each was due, so it has no line over time.",
    ),
    (
        "in flight",
        "Requests sent and not yet answered: the mean of what was in flight at both ends of an interval.",
    ),
    (
        "charts over time",
        "Everything is shown in the interval in which it came to its end, response times included.",
    ),
];

/// The same for a page that was there while the run went on, and heard what was due.
const OF_A_RUN: &[(&str, &str)] = &[
    (
        "good answers",
        "Their share of all requests that were due, of which some may never have been sent; while the run goes on, of those that came to an end. Those that were not sent and failures without an answer have code 0 and count as not good.",
    ),
    (
        "offered rate",
        "Requests that the schedule made due, per second of the schedule; in a closed loop those that there was room for, which have no line over time.",
    ),
];

type GlossaryEntry = (&'static str, &'static str);

/// Term and meaning, of a page that is made of intervals.
pub(crate) fn of_intervals() -> Vec<GlossaryEntry> {
    GLOSSARY.iter().map(|&word| preferred_entry(word, OF_INTERVALS)).collect()
}

/// Term and meaning, of the page of a run that goes on, or was followed to its end.
pub(crate) fn of_a_run() -> Vec<GlossaryEntry> {
    of_intervals().into_iter().map(|word| preferred_entry(word, OF_A_RUN)).collect()
}

/// What is said of this term there, or else here.
fn preferred_entry(word: GlossaryEntry, there: &[GlossaryEntry]) -> GlossaryEntry {
    there.iter().find(|(term, _)| *term == word.0).copied().unwrap_or(word)
}
