//! The secrets that were sent or received in one run, so that no finding shows a part of them.
//!
//! A server may send a credential instead of a name: its own, or the token that it just got. So the check compares each text with all
//! secrets of the run before it shows the text. The secrets stay in memory during the run only. An encoded secret (base64) is not
//! recognised; only the forms of names protect against it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use seawall_fetch::FetchResponse;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// The number of consecutive letters and digits that a text may not share with a secret. Fewer may be chance or a common word. A larger
/// number would miss a truncated secret. A shorter text does not count as a secret.
const ROW: usize = 8;

/// Response members that are not secrets: those that may be shown, and times and purposes. Every other member counts as a secret, whatever
/// its name.
const OPEN: [&str; 18] = [
    "AccountId",
    "Code",
    "Expiration",
    "LastUpdated",
    "Message",
    "RoleArn",
    "Type",
    "client_id",
    "error",
    "error_description",
    "expires_in",
    "expires_on",
    "ext_expires_in",
    "message",
    "not_before",
    "resource",
    "scope",
    "token_type",
];

/// All secrets of a run.
#[derive(Default)]
pub(super) struct SeenSecrets {
    /// The letters and digits of each secret, as returned by [`plain`].
    all: RefCell<HashSet<Vec<u8>>>,
}

impl SeenSecrets {
    /// Adds a secret that was sent or received.
    pub(super) fn keep(&self, secret: &str) {
        let secret = plain(secret);
        if secret.len() >= ROW {
            self.all.borrow_mut().insert(secret);
        }
    }

    /// Adds everything in a response that may be a credential. A body that is not JSON counts as a whole. No SDK takes a credential from
    /// an error response, and its text says why there is none.
    pub(super) fn keep_all_of(&self, answer: &FetchResponse) {
        if answer.status() >= 400 {
            return;
        }
        let mut document = serde_json::Deserializer::from_slice(answer.body());
        let leaves = SecretCollector { secrets: self, is_open: false };
        if leaves.deserialize(&mut document).and_then(|()| document.end()).is_err() {
            self.keep(&answer.text());
        }
    }

    /// Returns whether a text contains a part of a secret, in any case and with any separators.
    pub(super) fn occur_in(&self, text: &str) -> bool {
        let text = plain(text);
        let rows: HashSet<_> = text.windows(ROW).filter(|row| is_telling(row)).collect();
        let all = self.all.borrow();
        !rows.is_empty() && all.iter().any(|secret| secret.windows(ROW).any(|row| rows.contains(row)))
    }
}

/// Collects the leaves of a document, including duplicate members, because readers differ in which of them counts.
struct SecretCollector<'a> {
    secrets: &'a SeenSecrets,
    /// True if the value belongs to a member that is not a secret.
    is_open: bool,
}

impl SecretCollector<'_> {
    fn keep<E>(&self, leaf: &str) -> Result<(), E> {
        if !self.is_open {
            self.secrets.keep(leaf);
        }
        Ok(())
    }

    fn below(&self, is_open: bool) -> Self {
        Self { secrets: self.secrets, is_open }
    }
}

impl<'de> DeserializeSeed<'de> for SecretCollector<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SecretCollector<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.keep(text)
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.keep(&number.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.keep(&number.to_string())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.keep(&number.to_string())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element_seed(self.below(false))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            members.next_value_seed(self.below(OPEN.contains(&name.as_str())))?;
        }
        Ok(())
    }
}

/// Returns the letters and digits of a text in one case, because names have their own separators and case.
fn plain(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Returns whether a run of characters can identify a secret. Repeated letters and ascending digits cannot: account numbers and
/// placeholders often consist of them.
fn is_telling(row: &[u8]) -> bool {
    let is_same = |pair: &[u8]| pair[0] == pair[1];
    let is_next = |pair: &[u8]| pair[0] + 1 == pair[1] || pair == b"90";
    !row.windows(2).all(is_same) && !row.windows(2).all(is_next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_eight_letters_of_a_secret_says_it_in_whatever_writing() {
        let secrets = SeenSecrets::default();
        secrets.keep("Bearer eyJhbGci.OiJub25l-sig");
        secrets.keep("short");
        secrets.keep("ASIA0000000000000001");
        secrets.keep("token-0123456789");
        for said in ["eyJhbGci.OiJub25l-sig", "role/eyJhbGci", "EYJH-BGCI", "x-hbgcioiju-x", "asia0000"] {
            assert!(secrets.occur_in(said), "{said}");
        }
        for other in ["", "short", "eyJhbGc", "shop", "arn:aws:iam::000000000000:role/shop", "123456789012"] {
            assert!(!secrets.occur_in(other), "{other}");
        }
    }

    #[test]
    fn of_an_answer_all_is_secret_but_what_says_whose_it_is_and_until_when() {
        let said = |body: &str, text: &str| {
            let secrets = SeenSecrets::default();
            secrets.keep_all_of(&FetchResponse::new(200, &[], body.as_bytes()));
            secrets.occur_in(text)
        };
        for body in [
            r#"{"Token":"DoNotShow"}"#,
            r#"{"a":[{"b":"DoNotShow"}]}"#,
            r#"["DoNotShow"]"#,
            r#"{"client_id":"DoNotShow","access_token":"DoNotShow"}"#,
            r#"{"Token":"DoNotShow"#,
            r#"{"Token":"DoNotShow","Token":"x"}"#,
            r#"{"Token":"x"} DoNotShow"#,
            r#"{"RoleArn":["DoNotShow"]}"#,
            "DoNotShow",
        ] {
            assert!(said(body, "role/DoNotShow"), "{body}");
        }
        assert!(said(r#"{"SecretAccessKey":8675309217}"#, "8675309217"));
        assert!(!said(r#"{"RoleArn":"role/DoNotShow","Token":"x"}"#, "role/DoNotShow"));
    }
}
