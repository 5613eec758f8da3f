//! Extracts texts from a small XML document by their paths.
//!
//! The parser is strict. The document must be well-formed UTF-8 with at most [`DEPTH`] levels of elements. The document must not
//! have a DOCTYPE, so no entity expands. The parser ignores prefixes of names, because STS uses only one namespace. The parser
//! skips attributes, and elements that the caller did not request. A requested element that occurs twice is an error, because the
//! parser cannot know which of the two elements is meant.

use quick_xml::events::{BytesRef, Event};
use quick_xml::reader::Reader;
use seawall_core::Secret;

/// The maximum depth of elements. STS's responses have four levels.
const DEPTH: usize = 16;

/// The error for an invalid document. The error contains no part of the document, because the document may contain a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedXml;

/// Returns the texts at these paths, or `None` for a missing element. A path consists of element names from the root, separated
/// by `/`.
pub(super) fn element_texts<const N: usize>(
    document: &[u8],
    places: [&str; N],
) -> Result<[Option<Secret<String>>; N], MalformedXml> {
    let mut walk =
        Walk { places, found: [const { None }; N], place: String::new(), ends: Vec::new(), has_root: false };
    let mut reader = Reader::from_str(std::str::from_utf8(document).map_err(|_| MalformedXml)?);
    loop {
        match reader.read_event().map_err(|_| MalformedXml)? {
            Event::Start(start) => walk.enter(start.local_name().into_inner())?,
            Event::End(_) => walk.leave(),
            Event::Empty(empty) => {
                walk.enter(empty.local_name().into_inner())?;
                walk.leave();
            }
            Event::Text(text) => walk.text(&text.xml10_content())?,
            Event::CData(text) => walk.text(&text.xml10_content())?,
            Event::GeneralRef(entity) => walk.text(character(&entity)?.encode_utf8(&mut [0; 4]))?,
            Event::DocType(_) => return Err(MalformedXml),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => return walk.finish(),
        }
    }
}

/// Resolves the five predefined XML entities and numeric character references. Other entities would need declarations in a
/// DOCTYPE.
fn character(entity: &BytesRef<'_>) -> Result<char, MalformedXml> {
    match &**entity {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "apos" => Ok('\''),
        "quot" => Ok('"'),
        _ => entity.resolve_char_ref().ok().flatten().ok_or(MalformedXml),
    }
}

struct Walk<'p, const N: usize> {
    places: [&'p str; N],
    found: [Option<Secret<String>>; N],
    /// The path of the current element.
    place: String,
    /// For each open element: the length of `place` before the parser entered the element.
    ends: Vec<usize>,
    has_root: bool,
}

impl<const N: usize> Walk<'_, N> {
    fn enter(&mut self, name: &str) -> Result<(), MalformedXml> {
        let is_second_root = self.ends.is_empty() && self.has_root;
        if is_second_root || self.ends.len() >= DEPTH {
            return Err(MalformedXml);
        }
        self.has_root = true;
        self.ends.push(self.place.len());
        if self.ends.len() > 1 {
            self.place.push('/');
        }
        self.place.push_str(name);
        match self.here() {
            Some(found) if found.is_some() => Err(MalformedXml),
            Some(found) => {
                *found = Some(Secret::new(String::new()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn leave(&mut self) {
        self.place.truncate(self.ends.pop().unwrap_or_default());
    }

    fn text(&mut self, text: &str) -> Result<(), MalformedXml> {
        if self.ends.is_empty() && !text.trim().is_empty() {
            return Err(MalformedXml);
        }
        if let Some(Some(found)) = self.here() {
            found.expose_mut().push_str(text);
        }
        Ok(())
    }

    /// Returns the slot for the current element's text, if the text was requested.
    fn here(&mut self) -> Option<&mut Option<Secret<String>>> {
        let index = self.places.iter().position(|place| *place == self.place)?;
        self.found.get_mut(index)
    }

    fn finish(self) -> Result<[Option<Secret<String>>; N], MalformedXml> {
        if self.ends.is_empty() && self.has_root { Ok(self.found) } else { Err(MalformedXml) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(document: &str) -> Result<[Option<String>; 2], MalformedXml> {
        let found = element_texts(document.as_bytes(), ["a/b", "a/c/d"])?;
        Ok(found.map(|text| text.map(|text| text.expose().clone())))
    }

    fn some(b: &str, d: &str) -> Result<[Option<String>; 2], MalformedXml> {
        Ok([Some(b.to_owned()), Some(d.to_owned())])
    }

    #[test]
    fn texts_are_found_by_where_they_stand() {
        assert_eq!(read("<a><b>1</b><c><d>2</d></c></a>"), some("1", "2"));
        let decorated = "<?xml version=\"1.0\"?>\n<!-- x --><s:a xmlns:s=\"u\" e='f'>\n <b>&lt;&#x41;&amp;</b><x><b>no</b></x>\
                         <c><d><![CDATA[2]]>3<e>no</e></d></c><d>no</d></s:a>\n";
        assert_eq!(read(decorated), some("<A&", "23"));
        assert_eq!(read("<a><b/></a>"), Ok([Some(String::new()), None]));
    }

    #[test]
    fn what_is_not_one_whole_plain_document_is_refused() {
        for odd in [
            "",
            "x",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><a/>",
            "<a/>x",
            "<a><b>1</b><b>2</b></a>",
            "<a><b>&secret;</b></a>",
            "<a><b>&#0;</b></a>",
            "<a><b>&#xD800;</b></a>",
            "<!DOCTYPE a [<!ENTITY s \"x\">]><a><b>&s;</b></a>",
            "<a><b>1</b",
            &format!("{}{}", "<a>".repeat(17), "</a>".repeat(17)),
        ] {
            assert_eq!(read(odd), Err(MalformedXml), "{odd}");
        }
        assert_eq!(element_texts(b"<a>\xff</a>", ["a"]).unwrap_err(), MalformedXml);
    }

    fn escaped(text: &str) -> String {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#13;")
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_was_written(b in "\\PC*", d in "[ -~\\r\\n\\t]{0,64}") {
            let document = format!("<a><b>{}</b><c><d>{}</d></c></a>", escaped(&b), escaped(&d));
            prop_assert_eq!(read(&document), some(&b, &d));
        }

        #[test]
        fn no_bytes_are_read_wrong_enough_to_fail(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = element_texts(&bytes, ["a", "a/b"]);
        }

        /// A valid document that is truncated anywhere is invalid.
        #[test]
        fn half_an_answer_is_no_answer(cut in 0usize..60) {
            let whole = "<a><b>1</b><c><d>2</d></c><e f=\"g\">&amp;</e><!-- h --></a>";
            prop_assert!(read(&whole[..cut.min(whole.len() - 1)]).is_err());
        }

        #[test]
        fn pieces_of_markup_in_any_order_never_panic(pieces in proptest::collection::vec(
            prop_oneof![Just("<a>"), Just("</a>"), Just("<b>"), Just("</b>"), Just("<a"), Just("&"), Just("&#"), Just("&lt;"),
                Just("<![CDATA["), Just("]]>"), Just("<!--"), Just("-->"), Just("<?"), Just("?>"), Just("x"), Just("<a:b>"), Just("=\"")],
            0..24,
        )) {
            let _ = read(&pieces.concat());
        }
    }
}
