//! `--key value` pairs, which a script writes: a missing or odd one is named, none is guessed.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use crate::USAGE;

/// What was given, by name.
pub(crate) struct Arguments(HashMap<String, String>);

impl Arguments {
    /// The part of the program that is wanted, and the rest.
    pub(crate) fn of_program() -> Result<(String, Self), String> {
        let mut words = std::env::args().skip(1);
        let part = words.next().ok_or(USAGE)?;
        let mut given = HashMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("{word:?} is no --KEY"))?.to_owned();
            let value = words.next().ok_or_else(|| format!("--{name} has no value"))?;
            given.insert(name, value);
        }
        Ok((part, Self(given)))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, String> {
        self.text(name).ok_or_else(|| format!("--{name} is missing"))
    }

    /// A value of any kind that reads itself.
    pub(crate) fn value<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let read = |text: &str| text.parse().map_err(|_| format!("--{name} {text:?} cannot be read"));
        self.text(name).map(read).transpose()
    }

    pub(crate) fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        Ok(self.value(name)?.unwrap_or(default))
    }

    pub(crate) fn address(&self, name: &str) -> Result<SocketAddr, String> {
        self.value(name)?.ok_or_else(|| format!("--{name} is missing"))
    }

    pub(crate) fn seconds(&self, name: &str) -> Result<Option<Duration>, String> {
        Ok(self.value::<f64>(name)?.map(Duration::from_secs_f64))
    }

    /// `127.0.0.11+8`: that address and the seven after it.
    pub(crate) fn addresses(&self, name: &str) -> Result<Vec<Ipv4Addr>, String> {
        let text = self.required(name)?;
        let (first, count) = text.split_once('+').unwrap_or((text, "1"));
        let odd = || format!("--{name} {text:?} is not IPV4[+COUNT]");
        let first: Ipv4Addr = first.parse().map_err(|_| odd())?;
        let count: u32 = count.parse().map_err(|_| odd())?;
        Ok((0..count).map(|n| Ipv4Addr::from(u32::from(first) + n)).collect())
    }
}
