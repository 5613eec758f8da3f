//! `--experiment`: variants from a YAML or JSON file. All mistakes in the file are reported at once.

use std::collections::BTreeSet;
use std::path::Path;

use seawall_config::{Document, DocumentNode, DocumentTable, ValidationErrors};
use seawall_isolate::segment::VariantOrder;
use seawall_load::input_files::InputFiles;
use seawall_load::variant::{MOST_NAME, parse_host_port};

use super::variant_draft::{
    MAX_BODY_BYTES, VariantDraft, is_ip_address, parse_protocol, parse_proxy_rules, protocol_name,
};
use crate::find::formatting::pluralize;

/// Most variants of one experiment; they share its rate.
pub(super) const MAX_VARIANTS: usize = 30;

/// Largest file, in bytes: thirty variants take a hundredth of it.
const LARGEST: usize = 1 << 20;

/// The reference, and the variants that are compared with it.
#[derive(Debug)]
pub(super) struct VariantDrafts {
    pub(super) reference: VariantDraft,
    pub(super) variants: Vec<VariantDraft>,
}

impl VariantDrafts {
    /// Returns the URL of the reference, if each variant has a URL of its own.
    pub(super) fn reference_url(&self) -> Option<&str> {
        self.variants.iter().all(|way| way.url.is_some()).then_some(self.reference.url.as_deref()).flatten()
    }

    /// Returns true if any variant needs a lookup for each connection: then all variants have one.
    pub(super) fn any_looks_up_per_connection(&self) -> bool {
        self.all().any(|way| way.lookup_per_connection)
    }

    /// Returns all variants, the reference first.
    pub(super) fn all(&self) -> impl Iterator<Item = &VariantDraft> {
        std::iter::once(&self.reference).chain(&self.variants)
    }

    /// Puts all variants into blocks if the reference is in blocks: its connections and source belong to a session that no
    /// variant shares.
    pub(super) fn use_block_design_if_reference_does(mut self) -> Self {
        if self.reference.effective_design() == VariantOrder::OneVariantPerBlock {
            self.variants.iter_mut().for_each(|way| way.design = Some(VariantOrder::OneVariantPerBlock));
        }
        self
    }
}

/// Reads the variants of an experiment file, and captures the file if the inputs of the plan are captured.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub(super) fn read_experiment_file(path: &Path, files: &InputFiles) -> anyhow::Result<VariantDrafts> {
    let text = seawall_core::file::read_text(path, LARGEST)
        .map_err(|why| anyhow::anyhow!("cannot read {}: {why}", path.display()))?;
    files.capture(path, text.expose().as_bytes());
    parse(text.expose()).map_err(|mistakes| anyhow::anyhow!("{}:\n{mistakes}", path.display()))
}

fn parse(text: &str) -> Result<VariantDrafts, ValidationErrors> {
    let document = Document::parse(text)?;
    let ways = {
        let root = document.root();
        let reference = way(&root.node_of_key("reference").as_table(), Some("reference"));
        let node = root.required_node("variants", "a list of one or more variants");
        let places = node.list();
        if node.is_present() && !(1..=MAX_VARIANTS).contains(&places.len()) {
            node.reject(format!("from 1 to {MAX_VARIANTS} variants"));
        }
        let mut names = BTreeSet::from([reference.name.clone()]);
        let variants = places.iter().map(|place| variant(place, &reference, &mut names)).collect();
        VariantDrafts { reference, variants }
    };
    document.finish(ways)
}

fn variant(node: &DocumentNode<'_>, reference: &VariantDraft, names: &mut BTreeSet<String>) -> VariantDraft {
    let table = node.as_table();
    let draft = way(&table, None);
    if !draft.name.is_empty() && !names.insert(draft.name.clone()) {
        table.node_of_key("name").reject("a name that is unique among the variants");
    }
    if draft.design == Some(VariantOrder::Interleaved)
        && reference.effective_design() == VariantOrder::OneVariantPerBlock
    {
        let why = "blocks, because the reference has connections, a source, a body or design: blocks";
        table.node_of_key("design").reject(why);
    }
    // Its unknown keys are known once it is dropped: whoever mistypes one means a difference.
    drop(table);
    if !draft.has_differences() && !draft.lookup_per_connection && !node.has_errors() {
        node.reject("a difference from the reference");
    }
    draft
}

fn way(table: &DocumentTable<'_>, usual: Option<&str>) -> VariantDraft {
    let text = |text: &str| Some(text.to_owned());
    // A terminal does what control characters say, and a name stands in every line.
    let is_fit = |text: &str| (1..=MOST_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    let fits = |text: &str| is_fit(text).then(|| text.to_owned());
    let named = format!("a name of 1 to {MOST_NAME} bytes, without control characters");
    let name = match usual {
        Some(usual) => table.node_of_key("name").text(&named, fits).unwrap_or_else(|| usual.to_owned()),
        None => table.required_node("name", &named).text(&named, fits).unwrap_or_default(),
    };
    let design = |text: &str| match text {
        "interleaved" => Some(VariantOrder::Interleaved),
        "blocks" => Some(VariantOrder::OneVariantPerBlock),
        _ => None,
    };
    let draft = VariantDraft {
        description: String::new(),
        name,
        url: table.node_of_key("url").text("a URL", text),
        address: table
            .node_of_key("address")
            .text("host:port, with an IPv6 address in brackets", parse_host_port),
        server_name: table.node_of_key("server-name").text("a name", text),
        protocol: table.node_of_key("protocol").text("http1 or http2", parse_protocol),
        keep_alive: table.node_of_key("keep-alive").boolean(),
        insecure: table.node_of_key("insecure").boolean().unwrap_or(false),
        proxies: table.node_of_key("proxy").text("the URL of a proxy, or none", parse_proxy_rules),
        lookup_per_connection: table.node_of_key("lookup").boolean().unwrap_or(false),
        connections: table.node_of_key("connections").number(1..=1_000_000).map(|number| number as usize),
        source_address: table
            .node_of_key("source")
            .text("an IP address of this machine", |text| text.parse().ok()),
        body_bytes: table.node_of_key("body").number(0..=MAX_BODY_BYTES as u64).map(|number| number as usize),
        design: table.node_of_key("design").text("interleaved or blocks", design),
    };
    contradictions(table, &draft);
    VariantDraft { description: described(&draft), ..draft }
}

/// Reports the settings of a variant that contradict each other.
fn contradictions(table: &DocumentTable<'_>, draft: &VariantDraft) {
    if draft.design == Some(VariantOrder::Interleaved) && draft.needs_own_session() {
        table
            .node_of_key("design")
            .reject("blocks, because a variant with its own number of connections or source address needs a separate session");
    }
    let through = draft.proxies.as_ref().is_some_and(|proxies| !proxies.is_empty());
    if through && draft.address.is_some() {
        table.node_of_key("address").reject("no address, because connections go to the proxy");
    }
    let literal = draft.address.as_ref().is_some_and(|(host, _)| is_ip_address(host));
    if draft.lookup_per_connection && literal {
        table.node_of_key("lookup").reject("no lookup, because the address is not a name");
    }
}

/// Describes the differences of a variant in words.
fn described(draft: &VariantDraft) -> String {
    let place = |(host, port): &(String, u16)| format!("connected to {host}:{port}");
    let parts = [
        draft.url.as_deref().map(crate::find::plan::redact_url),
        draft.address.as_ref().map(place),
        draft.server_name.as_ref().map(|name| format!("certificate of {name}")),
        draft.protocol.map(|protocol| protocol_name(protocol).to_owned()),
        draft.keep_alive.map(|kept| if kept { "kept connections" } else { "new connections" }.to_owned()),
        draft.insecure.then(|| "any certificate".to_owned()),
        draft
            .proxies
            .as_ref()
            .map(|proxies| if proxies.is_empty() { "no proxy" } else { "a proxy" }.to_owned()),
        draft.lookup_per_connection.then(|| "a DNS lookup for each connection".to_owned()),
        draft.connections.map(|number| format!("at most {}", pluralize(number as u64, "connection"))),
        draft.source_address.map(|ip| format!("from {ip}")),
        draft.body_bytes.map(|bytes| format!("a body of {}", pluralize(bytes as u64, "byte"))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_each_way_has_different() {
        let ways = parse(
            "reference: {name: mesh}\nvariants:\n- {name: direct, address: '[::1]:80', keep-alive: false}\n\
             - {name: one, connections: 1}\n- {name: post, body: 100, design: interleaved}\n",
        )
        .unwrap();
        assert_eq!(ways.reference.name, "mesh");
        let [direct, one, post] = &ways.variants[..] else { panic!("{ways:?}") };
        assert_eq!(direct.description, "connected to ::1:80, new connections");
        let designs = [direct, one, post].map(VariantDraft::effective_design);
        assert_eq!(
            designs,
            [VariantOrder::Interleaved, VariantOrder::OneVariantPerBlock, VariantOrder::Interleaved]
        );
        assert!(parse(r#"{"variants": [{"name": "a", "protocol": "http2"}]}"#).is_ok(), "JSON is YAML");
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_place_and_what_was_expected() {
        let text = "reference: {nane: x}\nvariants:\n- {name: a, address: b}\n- {name: a, keep-alive: maybe}\n- {url: x}\n\
             - {name: c, connections: 2, design: interleaved}\n- {name: d, proxy: 'http://p:1', address: 'x:1'}\n\
             - {name: e, lookup: true, address: '10.0.0.1:80'}\n- {name: f}\n";
        let told = parse(text).unwrap_err().to_string();
        for part in [
            "unknown key \"nane\"",
            "variants[0].address: found \"b\", expected host:port",
            "variants[1].name: found \"a\", expected a name that is unique among the variants",
            "variants[1].keep-alive",
            "variants[2].name: found nothing",
            "variants[3].design: found \"interleaved\", expected blocks",
            "variants[4].address",
            "variants[5].lookup",
            "variants[6]: found {\"name\":\"f\"}, expected a difference from the reference",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(
            told.matches("a difference from the reference").count(),
            1,
            "where nothing else is wrong: {told}"
        );
        let named = parse("variants:\n- {name: \"a\\e[31mb\", keep-alive: false}\n").unwrap_err().to_string();
        assert!(
            named.contains("variants[0].name") && named.contains("without control characters"),
            "{named}"
        );
    }

    /// The connections and the source of the reference worked only in blocks, so interleaved variants were compared without them.
    #[test]
    fn a_reference_that_takes_turns_is_compared_with_ways_that_take_turns() {
        for reference in ["connections: 2", "source: 127.0.0.2", "design: blocks", "body: 9"] {
            let text = |design: &str| {
                format!("reference: {{{reference}}}\nvariants:\n- {{name: a, keep-alive: false{design}}}\n")
            };
            let ways = parse(&text("")).unwrap().use_block_design_if_reference_does();
            assert_eq!(ways.variants[0].effective_design(), VariantOrder::OneVariantPerBlock, "{reference}");
            let told = parse(&text(", design: interleaved")).unwrap_err().to_string();
            assert!(
                told.contains("variants[0].design: found \"interleaved\", expected blocks, because the ref"),
                "{told}"
            );
        }
        let ways = parse("variants:\n- {name: a, keep-alive: false}\n- {name: b, connections: 1}\n");
        let designs: Vec<_> = ways
            .unwrap()
            .use_block_design_if_reference_does()
            .variants
            .iter()
            .map(VariantDraft::effective_design)
            .collect();
        assert_eq!(
            designs,
            [VariantOrder::Interleaved, VariantOrder::OneVariantPerBlock],
            "only the way that needs it"
        );
    }

    #[test]
    fn an_experiment_without_a_way_is_named() {
        for (text, why) in [
            ("{}", "variants: found nothing, expected a list of one or more variants"),
            ("variants: []", "from 1 to 30 variants"),
            ("variants: [a]", "a table of keys"),
            ("a: [", "valid YAML"),
        ] {
            let told = parse(text).unwrap_err().to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
