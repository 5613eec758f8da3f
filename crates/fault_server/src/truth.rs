//! Computes the ground truth of faults: the cause, and the rate at which the server breaks.

use serde_json::{Map, Value, json};

use super::fault_syntax::PlantedFault;
use super::server::head_length;

/// The limit of one fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultLimit {
    /// The limit per second, of requests or of [`limited_events`](Self::limited_events).
    pub rate: f64,
    /// The limited events, such as "requests".
    pub limited_events: &'static str,
    /// True if the fault breaks exactly at this rate. A cap breaks below it, at a rate that depends on the arrival process. Real computing
    /// depends on the machine.
    pub is_exact: bool,
}

impl PlantedFault {
    /// Returns the limit of this fault alone; none if it has no limit or there is no formula.
    #[must_use]
    pub fn limit(&self) -> Option<FaultLimit> {
        let number = |key| self.parameter_value(key);
        let exact = |rate, of| Some(FaultLimit { rate, limited_events: of, is_exact: true });
        let nominal = |rate| Some(FaultLimit { rate, limited_events: "requests", is_exact: false });
        match self.kind.name {
            "rate-limiter" | "hanging-limiter" | "delaying-limiter" => exact(number("rate"), "requests"),
            "pool" | "timeout-chain" => exact(number("workers") / number("service"), "requests"),
            "quota" => exact(number("share") / number("work"), "requests"),
            "uneven" => exact(self.uneven_limit(), "requests"),
            "bandwidth" => exact(
                number("rate") / (number("body") + head_length(self.parameter_as_usize("body")) as f64),
                "requests",
            ),
            "churn" => exact(1.0 / number("cost"), "new connections"),
            "dns" if number("rate") > 0.0 => exact(number("rate"), "questions"),
            "cpu" => nominal(1.0 / number("work")),
            "concurrency-cap" if number("service") > 0.0 => nominal(number("places") / number("service")),
            "connection-cap" if number("service") > 0.0 => nominal(number("connections") / number("service")),
            _ => None,
        }
    }

    /// Returns the limit of the server that breaks first: the slow one, or another one if the slow one gets few requests.
    fn uneven_limit(&self) -> f64 {
        let others = self.parameter_value("servers") - 1.0;
        let (slow, weight) = (self.parameter_value("slow"), self.parameter_value("weight"));
        let each = self.parameter_value("workers") / self.parameter_value("service");
        let all = weight + others;
        (each / slow * all / weight).min(each * all)
    }

    /// Returns the rate at which a cap refuses 0.1 % of Poisson arrivals, in requests per second.
    fn limit_of_chance(&self) -> Option<f64> {
        let (places, service) = (self.parameter_value("places"), self.parameter_value("service"));
        let is_cap = self.kind.name == "concurrency-cap" && service > 0.0;
        is_cap.then(|| load_that_refuses(places as u32, 0.001) / service)
    }

    /// Returns the share of the workers' speed that this disturbance leaves.
    fn leaves(&self) -> f64 {
        match self.kind.name {
            "pauses" => 1.0 - self.parameter_value("length") / self.parameter_value("every"),
            "bursts" => {
                1.0 - self.parameter_value("share") * self.parameter_value("length")
                    / self.parameter_value("every")
            }
            _ => 1.0,
        }
    }

    /// Returns whether pauses and bursts slow this fault's work.
    fn works(&self) -> bool {
        matches!(self.kind.name, "pool" | "timeout-chain" | "uneven" | "quota")
    }

    fn statement(&self) -> Value {
        let parameters = self.parameters().map(|(key, value)| (key.to_owned(), Value::String(value)));
        json!({
            "plant": self.to_string(),
            "name": self.kind.name,
            "class": self.kind.cause_class,
            "limit": self.limit().map(FaultLimit::statement),
            "limit_of_chance": self.limit_of_chance(),
            "parameters": parameters.collect::<Map<_, _>>(),
        })
    }
}

impl FaultLimit {
    fn statement(self) -> Value {
        json!({ "rate": self.rate, "of": self.limited_events, "exact": self.is_exact })
    }
}

/// Returns the expected result of `find` for these faults, as JSON. It has the causes in the order in which requests meet them,
/// the lowest limit in requests per second (null without a formula), and each fault with all its parameters.
#[must_use]
pub fn expected_find_result(plants: &[PlantedFault], seed: u64) -> Value {
    let classes: Vec<_> = plants.iter().filter_map(|plant| plant.kind.cause_class).collect();
    let limit = least(plants);
    json!({
        "classes": classes,
        "limit": limit.map(|(_, limit)| limit.rate),
        "limit_exact": limit.map(|(_, limit)| limit.is_exact),
        "limited_by": limit.and_then(|(plant, _)| plant.kind.cause_class),
        "plants": plants.iter().map(PlantedFault::statement).collect::<Vec<_>>(),
        "seed": seed,
    })
}

/// Returns the fault that breaks first, after the effect of pauses and bursts.
fn least(plants: &[PlantedFault]) -> Option<(&PlantedFault, FaultLimit)> {
    let left: f64 = plants.iter().map(PlantedFault::leaves).product();
    let limits = plants.iter().filter_map(|plant| {
        let limit = plant.limit().filter(|limit| limit.limited_events == "requests")?;
        let share = if plant.works() { left } else { 1.0 };
        Some((plant, FaultLimit { rate: limit.rate * share, ..limit }))
    });
    limits.min_by(|a, b| a.1.rate.total_cmp(&b.1.rate))
}

/// Returns the blocking probability for Poisson arrivals at this load in erlangs (Erlang B).
pub(super) fn erlang_b(places: u32, load: f64) -> f64 {
    let inverse = (1..=places).fold(1.0, |inverse, place| 1.0 + inverse * f64::from(place) / load);
    1.0 / inverse
}

/// Returns the load in erlangs at which this share is refused.
fn load_that_refuses(places: u32, share: f64) -> f64 {
    let (mut low, mut high) = (0.0, f64::from(places) * 2.0);
    while high - low > 1e-9 * high {
        let middle = f64::midpoint(low, high);
        if erlang_b(places, middle) < share { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Value {
        expected_find_result(&PlantedFault::parse_all(texts).unwrap(), 7)
    }

    #[test]
    fn limits_follow_from_the_parameters() {
        for (text, limit) in [
            ("rate-limiter", 200.0),
            ("hanging-limiter,rate=150", 150.0),
            ("pool", 200.0),
            ("quota", 200.0),
            ("cpu", 500.0),
            ("concurrency-cap", 200.0),
            ("connection-cap,connections=15,how=backlog", 150.0),
            ("uneven,workers=1,service=10ms,slow=5", 60.0),
            ("uneven,workers=1,service=10ms,slow=1,weight=2", 200.0),
            ("bandwidth,rate=1000000,body=9959", 100.0),
        ] {
            let said = of(&[text])["limit"].as_f64().unwrap();
            assert!((said - limit).abs() < 1e-6, "{text}: {said}");
        }
        for text in ["pauses", "keep-alive", "dns", "ports", "churn", "noise"] {
            assert!(of(&[text])["limit"].is_null(), "{text}");
        }
    }

    #[test]
    fn the_least_limit_is_the_server_s_and_disturbances_take_their_share_of_what_works() {
        let said = of(&["pool", "rate-limiter,rate=190", "noise"]);
        assert_eq!(said["classes"], json!(["pool-saturation", "rate-limiter"]));
        assert_eq!(
            (said["limit"].as_f64(), said["limited_by"].as_str()),
            (Some(190.0), Some("rate-limiter"))
        );
        let said = of(&["pool", "rate-limiter,rate=190", "pauses,length=200ms,every=2s"]);
        assert_eq!(
            (said["limit"].as_f64(), said["limited_by"].as_str()),
            (Some(180.0), Some("pool-saturation"))
        );
        assert_eq!(said["plants"][0]["parameters"]["service"], "40ms");
        assert_eq!(said["seed"], 7);
    }

    #[test]
    fn a_cap_s_limit_is_nominal() {
        let said = of(&["concurrency-cap"]);
        assert_eq!(said["limit_exact"], false);
        // The study found 0.31 of the capacity of ten places.
        let by_chance = said["plants"][0]["limit_of_chance"].as_f64().unwrap();
        assert!((by_chance / 200.0 - 0.31).abs() < 0.005, "{by_chance}");
        assert!((erlang_b(10, 9.0) - 0.1680).abs() < 1e-4);
    }
}
