//! Durations as JSON: whole nanoseconds in memory, a number of seconds in a document.
//!
//! The number is written and read as decimal text, never as a float, so each nanosecond survives a round trip. A reader that has
//! only 64-bit floats gets the exact nanosecond up to 97 days. Fields use it with `#[serde(rename = "…_seconds", with =
//! "crate::duration_json")]`.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The number of decimals of a second.
const DECIMALS: usize = 9;

/// A number of nanoseconds that JSON holds as seconds.
pub trait Nanoseconds: Sized {
    /// Returns the JSON number of seconds, or `null`.
    fn to_json(&self) -> String;

    /// Reads a JSON number of seconds. Returns `None` if the value is out of range.
    fn from_json(text: &str) -> Option<Self>;
}

impl Nanoseconds for u128 {
    fn to_json(&self) -> String {
        let (whole, rest) = (self / 1_000_000_000, self % 1_000_000_000);
        if rest == 0 {
            return whole.to_string();
        }
        let text = format!("{whole}.{rest:0DECIMALS$}");
        text.trim_end_matches('0').to_owned()
    }

    /// Reads a JSON number of seconds. Decimals beyond the nanosecond are rounded.
    fn from_json(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: Self = format!("{whole}{fraction}").parse().ok()?;
        let shift = i64::from(exponent.parse::<i32>().ok()?) + DECIMALS as i64 - fraction.len() as i64;
        let power = 10_u128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?);
        match power {
            _ if digits == 0 => Some(0),
            Some(power) if shift >= 0 => digits.checked_mul(power),
            Some(power) => Some(digits / power + Self::from(digits % power >= power / 2)),
            None => (shift < 0).then_some(0),
        }
    }
}

impl Nanoseconds for u64 {
    fn to_json(&self) -> String {
        u128::from(*self).to_json()
    }

    fn from_json(text: &str) -> Option<Self> {
        u128::from_json(text)?.try_into().ok()
    }
}

impl Nanoseconds for i64 {
    fn to_json(&self) -> String {
        let sign = if *self < 0 { "-" } else { "" };
        format!("{sign}{}", self.unsigned_abs().to_json())
    }

    fn from_json(text: &str) -> Option<Self> {
        match text.strip_prefix('-') {
            Some(text) => 0_i64.checked_sub_unsigned(u64::from_json(text)?),
            None => u64::from_json(text)?.try_into().ok(),
        }
    }
}

impl<T: Nanoseconds> Nanoseconds for Option<T> {
    fn to_json(&self) -> String {
        self.as_ref().map_or_else(|| "null".to_owned(), T::to_json)
    }

    fn from_json(text: &str) -> Option<Self> {
        if text == "null" { Some(None) } else { T::from_json(text).map(Some) }
    }
}

/// Writes nanoseconds as a number of seconds.
///
/// # Errors
/// Returns the errors of the serializer.
pub fn serialize<T: Nanoseconds, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(value.to_json()).map_err(S::Error::custom)?.serialize(serializer)
}

/// Reads nanoseconds from a number of seconds.
///
/// # Errors
/// Returns the errors of the deserializer, and an error if the value is not a number of seconds in range.
pub fn deserialize<'de, T: Nanoseconds, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    T::from_json(text.get()).ok_or_else(|| D::Error::custom(format!("not a number of seconds: {text}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::clock::{Nanos, SECOND};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Times {
        #[serde(rename = "one_seconds", with = "super")]
        one: Nanos,
        #[serde(rename = "some_seconds", with = "super")]
        some: Option<Nanos>,
        #[serde(rename = "ahead_seconds", with = "super")]
        ahead: i64,
        #[serde(rename = "sum_seconds", with = "super")]
        sum: u128,
    }

    const DAY: Nanos = 86_400 * SECOND;

    fn read(text: &str) -> Option<Nanos> {
        Nanos::from_json(text)
    }

    #[test]
    fn nanoseconds_become_a_plain_number_of_seconds() {
        let times = Times { one: 7 * SECOND, some: None, ahead: -1_500_000_000, sum: 1 };
        let text = r#"{"one_seconds":7,"some_seconds":null,"ahead_seconds":-1.5,"sum_seconds":0.000000001}"#;
        assert_eq!(serde_json::to_string(&times).unwrap(), text);
        assert_eq!(serde_json::from_str::<Times>(text).unwrap(), times);
        let value =
            json!({ "one_seconds": 7, "some_seconds": null, "ahead_seconds": -1.5, "sum_seconds": 1e-9 });
        assert_eq!(serde_json::to_value(&times).unwrap(), value);
        assert_eq!(serde_json::from_value::<Times>(value).unwrap(), times);
    }

    #[test]
    fn numbers_of_other_writers_are_read() {
        let second = Some(SECOND);
        assert_eq!([read("1"), read("1.0"), read("1e0"), read("0.1E+1"), read("10e-1")], [second; 5]);
        assert_eq!([read("0"), read("0.0"), read("0e99"), read("1e-99")], [Some(0); 4]);
        assert_eq!([read("0.0000000014"), read("0.0000000015")], [Some(1), Some(2)]);
        for wrong in
            ["-1", "1e99", "18446744074", "null", "\"1\"", "[]", "1e", "1.2.3", "99999999999999999999999"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn each_nanosecond_returns(one: u64, some: Option<u64>, ahead: i64, sum: u128) {
            let times = Times { one, some, ahead, sum };
            let text = serde_json::to_string(&times).unwrap();
            prop_assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), times);
        }

        #[test]
        fn each_nanosecond_up_to_100_days_returns(one in 0..100 * DAY) {
            prop_assert_eq!(read(&one.to_json()), Some(one));
        }

        /// A double has 53 bits: from 2^23 s on its steps are longer than a nanosecond.
        #[test]
        fn each_nanosecond_up_to_97_days_survives_a_reader_of_floats(one in 0..97 * DAY) {
            let value: Value = serde_json::from_str(&one.to_json()).unwrap();
            let float = value.as_f64().unwrap();
            prop_assert_eq!(read(&format!("{float:?}")), Some(one));
        }
    }
}
