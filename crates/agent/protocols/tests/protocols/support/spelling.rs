//! Ways to write a path, for properties.

use proptest::prelude::*;
use proptest::sample::select;

/// How one character of a name may be written. Dishonest ways are rare: one of them in a path is enough for a refusal,
/// and a path with none is the one that must be *understood* as concealed.
fn letter(letter: char) -> BoxedStrategy<String> {
    let code = u32::from(letter);
    prop_oneof![
        150 => Just(letter.to_string()),
        40 => Just(format!("%{code:02x}")),
        40 => Just(format!("%{code:02X}")),
        1 => Just(format!("%25{code:02x}")),
        1 => Just(format!("%2525{code:02x}")),
        20 => Just(letter.to_ascii_uppercase().to_string()),
        1 => Just(format!("{letter}%00")),
    ]
    .boxed()
}

/// How the slash between two names may be written.
fn slash() -> BoxedStrategy<String> {
    let honest = vec!["/", "//", "/./", "///", "/x/../", "/%2e/", "/x/%2E%2e/", "/x/.%2e/", "/.//"];
    let dishonest =
        vec!["%2f", "%2F", "%252f", "\\", "%5c", ";a=b/", "/%2e%2f", "/;/", "/\u{2215}/", "/..;/x/"];
    prop_oneof![60 => select(honest), 1 => select(dishonest)].prop_map(str::to_owned).boxed()
}

/// Honest and dishonest spellings of a path.
pub(crate) fn spelled(path: &str) -> BoxedStrategy<String> {
    let parts: Vec<_> = path.chars().map(|c| if c == '/' { slash() } else { letter(c) }).collect();
    (slash(), parts).prop_map(|(root, parts)| root + &parts.concat()).boxed()
}

/// Honest spellings only: each is the path itself after one decoding.
pub(crate) fn honest(path: &'static str) -> impl Strategy<Value = String> {
    let parts: Vec<_> = path
        .chars()
        .map(|c| match c {
            '/' => select(vec!["/", "//", "/./", "/x/../", "/%2e/"]).prop_map(str::to_owned).boxed(),
            c => select(vec![
                c.to_string(),
                format!("%{:02x}", u32::from(c)),
                format!("%{:02X}", u32::from(c)),
            ])
            .boxed(),
        })
        .collect();
    parts.prop_map(|parts| parts.concat())
}

/// Pieces of requests in an order nobody meant.
pub(crate) fn scrambled(pieces: &'static str) -> impl Strategy<Value = String> {
    let odd = ["\\", "\r\n", " "];
    let pieces: Vec<_> = pieces.split_whitespace().chain(odd).collect();
    proptest::collection::vec(select(pieces), 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}
