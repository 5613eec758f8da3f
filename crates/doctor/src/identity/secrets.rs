//! What was sent to servers and lent by them in one run, so that nothing of it is shown under another name.
//!
//! A server may say a credential where a name was asked for: its own, which it lends a moment later, or the one that it was just given. So
//! that what a server says is shown once all of them have been asked, and compared with all that went either way. Held in memory for that
//! long, and by nobody else. A server that writes a credential in other letters (base64) is not seen through: against that there are the forms
//! of names alone.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use seawall_fetch::FetchResponse;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Letters and digits in a row that a secret and what is to be shown have in common no sooner than one says the other. Less may be chance or a
/// common word, and is of no use to anybody; a secret that is shorter than that is none. More would let through one that is cut.
const ROW: usize = 8;

/// Members of answers that are no secrets: those of which something may be shown, and those that say when and for what. All else is one,
/// whatever it is called.
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
pub(super) struct Secrets {
    /// Letters and digits of each, as [`plain`] leaves them.
    all: RefCell<HashSet<Vec<u8>>>,
}

impl Secrets {
    /// Something that is sent, or that a server lends.
    pub(super) fn keep(&self, secret: &str) {
        let secret = plain(secret);
        if secret.len() >= ROW {
            self.all.borrow_mut().insert(secret);
        }
    }

    /// Whatever may be a credential in an answer to a request for one. Of what is no JSON that is all of it, be it half a document.
    pub(super) fn keep_all_of(&self, answer: &FetchResponse) {
        let mut document = serde_json::Deserializer::from_slice(answer.body());
        let leaves = SecretCollector { secrets: self, is_open: false };
        if leaves.deserialize(&mut document).and_then(|()| document.end()).is_err() {
            self.keep(&answer.text());
        }
    }

    /// Whether a text says a part of one, in whatever letters and with whatever between them.
    pub(super) fn occur_in(&self, text: &str) -> bool {
        let text = plain(text);
        let rows: HashSet<_> = text.windows(ROW).filter(|row| is_telling(row)).collect();
        let all = self.all.borrow();
        !rows.is_empty() && all.iter().any(|secret| secret.windows(ROW).any(|row| rows.contains(row)))
    }
}

/// Keeps the leaves of a document, also of members that stand in it twice: which of the two counts is each reader's to say.
struct SecretCollector<'a> {
    secrets: &'a Secrets,
    /// It is the value of a member that is no secret.
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

/// Its letters and digits alone, of one case: names have marks and cases of their own.
fn plain(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// A row of one letter tells nothing, nor do digits in their order: of both many an account's number is made, and what stands in for secrets
/// where nobody keeps any.
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
        let secrets = Secrets::default();
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
            let secrets = Secrets::default();
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
