//! Which charts a report has, as axes and lines: percentile curve, response time, rate and requests in flight over time.
//!
//! Chooses and names; draws nothing and knows no picture's size. Colours are classes of `page/page.css`.

use super::scale::Scale;
use super::series::Series;

/// One chart: its axes and its lines.
pub(crate) struct Panel {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) below: &'static str,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
    pub(crate) lines: Vec<Line>,
}

/// Where, and how much; nothing where it is not known.
pub(crate) type Points = Vec<(f64, Option<f64>)>;

/// One line of a chart.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) points: Points,
}

/// The charts of these runs: one run shows its quantiles and outcomes, several show one line each.
pub(crate) fn panels(runs: &[Series]) -> [Panel; 4] {
    let (since, times_name, rates_name) = if runs.len() == 1 {
        ("time since the start", "Response time over time", "Rate over time")
    } else {
        ("time since the start of each run", "99 % response time over time", "Good answers over time")
    };
    let clock = Scale::clock(runs.iter().filter_map(|run| run.t.last()).fold(0.0, |a: f64, b| a.max(*b)));
    let nines = runs.iter().filter_map(|run| run.curve.last()).fold(0.0, |a: f64, b| a.max(b.0));
    let [curves, times, rates, flying] = lines(runs);
    [
        Panel {
            name: "Response time by percentile",
            unit: "response time",
            below: "share of requests that were faster",
            x: Scale::nines(nines),
            y: Scale::times(values(&curves)),
            lines: curves,
        },
        Panel {
            name: times_name,
            unit: "response time",
            below: since,
            x: clock.clone(),
            y: Scale::times(values(&times)),
            lines: times,
        },
        Panel {
            name: rates_name,
            unit: "requests per second",
            below: since,
            x: clock.clone(),
            y: Scale::counts(values(&rates)),
            lines: rates,
        },
        Panel {
            name: "In flight over time",
            unit: "requests in flight",
            below: since,
            x: clock,
            y: Scale::counts(values(&flying)),
            lines: flying,
        },
    ]
}

fn values(lines: &[Line]) -> impl Iterator<Item = f64> {
    lines.iter().flat_map(|line| line.points.iter().filter_map(|point| point.1))
}

/// Lines of the four panels. One run shows its quantiles and outcomes, several show one line each.
fn lines(runs: &[Series]) -> [Vec<Line>; 4] {
    let of = |pick: fn(&Series) -> Points| {
        let line = |(at, run): (usize, &Series)| Line::new(&run.name, &format!("c{}", at % 8 + 1), pick(run));
        runs.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let curve = |run: &Series| run.curve.iter().map(|(at, ns)| (*at, Some(*ns as f64))).collect();
    let flying = |run: &Series| run.t.iter().copied().zip(run.inflight.iter().copied()).collect();
    let [run] = runs else {
        return [of(curve), of(|run| times(run, &run.p99)), of(|run| rates(run, &run.good)), of(flying)];
    };
    let quantiles = [("99 %", "c2", &run.p99), ("90 %", "c6", &run.p90), ("median", "c1", &run.p50)];
    let outcomes = [
        ("achieved", "c1", &run.achieved),
        ("good", "c3", &run.good),
        ("errors", "bad", &run.bad),
        ("offered", "plain", &run.offered),
    ];
    [
        vec![Line::new("all requests", "c1", curve(run))],
        quantiles.map(|(name, class, values)| Line::new(name, class, times(run, values))).into(),
        outcomes.map(|(name, class, values)| Line::new(name, class, rates(run, values))).into(),
        vec![Line::new("in flight", "c4", flying(run))],
    ]
}

fn times(run: &Series, values: &[Option<i64>]) -> Points {
    run.t.iter().copied().zip(values.iter().map(|value| value.map(|ns| ns as f64))).collect()
}

fn rates(run: &Series, values: &[Option<f64>]) -> Points {
    run.t.iter().copied().zip(values.iter().copied()).collect()
}

impl Line {
    fn new(name: &str, class: &str, points: Points) -> Self {
        Self { name: name.to_owned(), class: class.to_owned(), points }
    }
}
