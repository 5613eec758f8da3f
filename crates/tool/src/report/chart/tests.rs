//! The page and the picture against the one model: what each draws is what is chosen here.

use seawall_load::record::{Record, Zone, ZonedTimestamp};
use serde_json::Value;

use super::*;
use crate::report::input::RecordSink;
use crate::report::runs::Runs;
use crate::report::series::MAX_POINTS;
use crate::report::{html, svg};

const SCRIPT: &str = include_str!("../page/page.js");
const STYLE: &str = include_str!("../page/page.css");

/// So many runs of 100 a second, each a little slower than the one before, with an error now and then.
fn runs(count: i64) -> Vec<RunSeries> {
    let of = |at: i64| {
        let mut runs = Runs::new(&[]);
        for i in 0..400 {
            let start = 1_735_787_045_000_000_000 + i * 10_000_000;
            let timestamp = ZonedTimestamp::from_unix_ns(start, Zone::Utc);
            let code = if i % 7 == 0 { 503 } else { 200 };
            let latency_ns = 1_000_000 * (at + 1) + i * 10_000;
            runs.add(0, &Record { code, latency_ns, due_timestamp: timestamp, ..Record::default() });
        }
        let (_, run) = runs.iter_with_names().next().unwrap();
        RunSeries::new(format!("run {at}"), run, MAX_POINTS)
    };
    (0..count).map(of).collect()
}

/// Returns the charts in the data of a page.
fn told(runs: &[RunSeries]) -> Value {
    let page = html::render("title", String::new(), None, runs, &[]).unwrap();
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str::<Value>(data).unwrap()["charts"].clone()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn texts<'a>(values: &'a [Value], key: &str) -> Vec<&'a str> {
    values.iter().map(|value| value[key].as_str().unwrap()).collect()
}

/// Returns the text between each occurrence of a start and the next tag.
fn after<'a>(picture: &'a str, start: &str) -> Vec<&'a str> {
    picture
        .split(start)
        .skip(1)
        .map(|rest| rest.split_once('>').unwrap().1.split_once('<').unwrap().0)
        .collect()
}

/// Places in the picture of the corners of its lines, panel by panel and line by line.
fn corners(panel: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let places = |path: &str| {
        let (class, rest) = path.split_once('"').unwrap();
        let corners = rest.split_once(" d=\"M").unwrap().1.split_once('"').unwrap().0;
        let place =
            |corner: &str| corner.split_once(' ').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()));
        (class.to_owned(), corners.split('L').filter_map(place).collect())
    };
    panel.split("<path class=\"").skip(1).map(places).collect()
}

/// Returns the position of a value on an axis, given only the data of the page.
fn share(axis: &Value, value: f64) -> f64 {
    let [low, high] = ["low", "high"].map(|end| axis[end].as_f64().unwrap());
    if axis["kind"] == "times" {
        (value / low).ln() / (high / low).ln()
    } else {
        (value - low) / (high - low)
    }
}

/// Checks that a line of the picture goes through every point in the data of the page.
fn is_drawn(panel: &Value, line: &Value, (class, corners): &(String, Vec<(f64, f64)>)) {
    let stroke = match line["stroke"].as_str().unwrap() {
        "solid" => String::new(),
        other => format!(" {other}"),
    };
    assert_eq!(*class, line["colour"].as_str().unwrap().to_owned() + &stroke);
    let points =
        list(&line["points"]).iter().filter_map(|point| Some((point[0].as_f64()?, point[1].as_f64()?)));
    let points: Vec<_> = points.map(|(x, y)| (share(&panel["x"], x), share(&panel["y"], y))).collect();
    assert_eq!(points.len(), corners.len(), "{line}");
    let (left, bottom) = (corners[0].0 - points[0].0 * PLOT.0, corners[0].1 + points[0].1 * PLOT.1);
    for ((x, y), corner) in points.iter().zip(corners) {
        let off = (left + x * PLOT.0 - corner.0).abs().max((bottom - y * PLOT.1 - corner.1).abs());
        assert!(off < 0.2, "{x} {y} is at {corner:?} in {line}");
    }
}

/// The size of the plotted area of a picture.
const PLOT: (f64, f64) = (546.0, 200.0);

#[test]
fn the_picture_draws_what_the_page_is_told() {
    for count in [1, 2, 9] {
        let picture = svg::render("title", &runs(count));
        let charts = told(&runs(count));
        let panels = list(&charts["panels"]);
        assert_eq!(after(&picture, "<text class=\"name\""), texts(panels, "name"));
        for (panel, drawn) in panels.iter().zip(picture.split("<g transform=").skip(1)) {
            let labels = list(&panel["y"]["ticks"]).iter().map(|tick| tick[1].as_str().unwrap());
            assert!(labels.clone().count() > 1 && labels.eq(y_labels(drawn)), "{panel}");
            assert!(drawn.contains(panel["unit"].as_str().unwrap()), "{panel}");
            assert!(drawn.contains(panel["below"].as_str().unwrap()), "{panel}");
            assert_eq!(drawn.contains("<rect class=\"few\""), panel["few"].is_array(), "{panel}");
            let (lines, paths) = (list(&panel["lines"]), corners(drawn));
            assert_eq!(lines.len(), paths.len(), "{panel}");
            lines.iter().zip(&paths).for_each(|(line, path)| is_drawn(panel, line, path));
            let keys = after(drawn, "<text class=\"key\"");
            assert_eq!(keys, texts(lines, "name"), "every line is named");
        }
        let missing = list(&charts["leftOut"]);
        let said: Vec<_> = missing
            .iter()
            .map(|one| {
                format!("Not drawn: {}. {}", one["name"].as_str().unwrap(), one["why"].as_str().unwrap())
            })
            .collect();
        assert_eq!(after(&picture, "<text class=\"missing\""), said);
        assert!(!said.is_empty(), "nothing says when a request of these was really sent");
    }
}

/// The labels that stand left of a picture's plotted area.
fn y_labels(panel: &str) -> impl Iterator<Item = &str> {
    let ends = panel.lines().filter(|line| line.starts_with("<text x=\"66\""));
    ends.map(|line| line.split_once('>').unwrap().1.split_once('<').unwrap().0)
}

#[test]
fn the_script_of_the_page_knows_no_chart() {
    for charts in [build_charts(&runs(1)), build_charts(&runs(2))] {
        for panel in &charts.panels {
            for name in [panel.name, panel.below] {
                assert!(!SCRIPT.contains(name), "{name}");
            }
        }
        for OmittedLine { name, why } in &charts.left_out {
            assert!(!SCRIPT.contains(name) && !SCRIPT.contains(why), "{name}");
        }
    }
}

#[test]
fn a_colour_is_one_in_the_page_and_in_the_picture() {
    let picture = svg::render("title", &[]);
    let (light, dark) = picture.split_once("@media(prefers-color-scheme:dark)").unwrap();
    let (page_light, page_dark) = STYLE.split_once(":root[data-theme=\"dark\"]").unwrap();
    for name in COLOUR_NAMES {
        for (picture, page) in [(light, page_light), (dark, page_dark)] {
            let hex = picture.split_once(&format!(".{name}{{stroke:")).unwrap().1.get(..7).unwrap();
            assert!(hex.starts_with('#') && page.contains(&format!("--{name}: {hex};")), "{name} {hex}");
        }
    }
    let used = [build_charts(&runs(1)), build_charts(&runs(9))];
    let mut used = used.iter().flat_map(|charts| &charts.panels).flat_map(|panel| &panel.lines);
    assert!(used.all(|line| COLOUR_NAMES.contains(&line.colour)));
}

#[test]
fn a_chart_without_anything_to_see_is_left_out_by_name() {
    let mut runs = runs(2);
    let nothing = |run: &mut RunSeries| {
        run.quantile_curve.iter_mut().for_each(|(_, ns)| *ns = 0);
        run.response_time_p99.fill(None);
        run.mean_in_flight.fill(None);
    };
    nothing(&mut runs[0]);
    let one = build_charts(&runs);
    let names: Vec<_> = one.left_out.iter().map(|one| one.name.as_str()).collect();
    let missing = [CURVE, "99 % response time over time", FLYING].map(|name| format!("{name}: run 0"));
    assert_eq!(names[..3], missing);
    let drawn = |charts: &Charts| charts.panels.iter().map(|panel| panel.name).collect::<Vec<_>>();
    assert!(drawn(&one).contains(&CURVE) && drawn(&one).contains(&FLYING));
    nothing(&mut runs[1]);
    let none = build_charts(&runs);
    let names: Vec<_> = none.left_out.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [CURVE, "99 % response time over time", FLYING, LAG]);
    assert_eq!(none.panels.len(), 5);
    assert!(none.panels.iter().all(|panel| !panel.lines.is_empty()), "{none:?}");
}
