//! The meaning of each number, defined once for `--help`, the summary and the page.

/// Term and meaning.
pub(crate) const GLOSSARY: &[(&str, &str)] = &[
    (
        "response time",
        "From the scheduled send of a request to the last byte of its response, or to its failure. It includes the delay of a late generator and of a queue in front of the server.",
    ),
    (
        "offered rate",
        "Scheduled requests per second: N requests have N - 1 intervals. vegeta's rate divides N by the same time and so is a little higher.",
    ),
    (
        "achieved rate",
        "Requests that were sent and that ended during the schedule, good or failed, per second. The schedule lasts from the first request to one interval after the last. If this rate is below the offered rate, the server did not keep up, or the generator gave up requests before it sent them.",
    ),
    (
        "good rate",
        "Responses with status 200 to 399 during the schedule, per second. vegeta's throughput also counts responses after the schedule and divides by the time until the last response.",
    ),
    (
        "after the schedule",
        "Responses and failures after the end of the schedule. The rates exclude them: if a server needs 10 s for the requests of 5 s, the good rate is half the offered rate.",
    ),
    (
        "good responses",
        "Good responses as a share of all requests. A request that got no response, or a wrong response (--expect), has code 0 and is not good.",
    ),
    (
        "percentiles",
        "p99 is the response time that 99 % of all requests did not exceed, failures and timeouts included. The value comes from an HDR histogram: it is never below the true value and at most 0.1 % above (1 % in charts over time and per target). Percentiles of parts are never averaged.",
    ),
    (
        "fewer than 4 responses",
        "To the right of this mark, a percentile rests on so few responses that another run would show another value.",
    ),
    ("wait", "From the last scheduled send to the last response."),
    (
        "in flight",
        "Scheduled requests without a response, on average over each interval. If the number grows at the same offered rate, the server does not keep up.",
    ),
    ("lag", "Real send minus scheduled send. If it grows, the generator was the limit, not the server."),
    (
        "charts over time",
        "Requests appear at their scheduled time; responses and errors appear at the time of their arrival.",
    ),
];

/// The note about the limits of results, for each report that explains its figures.
pub(crate) const RESULTS_LIMITS_NOTE: &str = "Results contain only requests that ended. Requests that still waited at the end of \
the run were never sent and are missing here, so the schedule can be longer than shown. The summary of the attack and its \
--timeseries count these requests.";

/// Terms with another meaning on a page of intervals, which hold sums instead of single requests.
const OF_INTERVALS: &[(&str, &str)] = &[
    (
        "good responses",
        "Good responses as a share of all scheduled requests. A request that was not sent, that got no response, or that got a wrong response (--expect) has code 0 and is not good.",
    ),
    (
        "percentiles",
        "p99 is the response time that 99 % of the ended requests did not exceed, failures and timeouts included; an unsent request has none. The value comes from an HDR histogram: it is never below the true value and at most 0.1 % above (1 % in charts over time). Percentiles of parts are never averaged.",
    ),
    (
        "offered rate",
        "Requests per second that the schedule planned. A closed loop has no schedule, so this number counts the requests that found a free client. Intervals do not contain the scheduled time of each request, so the chart has no line for this rate.",
    ),
    ("in flight", "Sent requests without a response: the mean of the numbers at both ends of an interval."),
    (
        "charts over time",
        "Each request appears in the interval in which it ended, and so does its response time.",
    ),
];

/// Terms with another meaning on a live page, which knows the schedule.
const OF_A_RUN: &[(&str, &str)] = &[
    (
        "good responses",
        "Good responses as a share of all scheduled requests. While the attack runs, they are a share of the requests that have ended. A request that was not sent, that got no response, or that got a wrong response (--expect) has code 0 and is not good.",
    ),
    (
        "offered rate",
        "Requests per second that the schedule planned. A closed loop has no schedule, so this number counts the requests that found a free client, and the chart has no line for the offered rate.",
    ),
];

type GlossaryEntry = (&'static str, &'static str);

/// Term and meaning, of a page that is made of intervals.
pub(crate) fn intervals_glossary() -> Vec<GlossaryEntry> {
    GLOSSARY.iter().map(|&word| preferred_entry(word, OF_INTERVALS)).collect()
}

/// Term and meaning, of the page of a run that goes on, or was followed to its end.
pub(crate) fn live_run_glossary() -> Vec<GlossaryEntry> {
    intervals_glossary().into_iter().map(|word| preferred_entry(word, OF_A_RUN)).collect()
}

/// Returns the entry of this term in `there`, or else `word` itself.
fn preferred_entry(word: GlossaryEntry, there: &[GlossaryEntry]) -> GlossaryEntry {
    there.iter().find(|(term, _)| *term == word.0).copied().unwrap_or(word)
}
