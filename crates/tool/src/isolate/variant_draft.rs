//! What a way has different, before it is known whether it can be gone.

use std::net::IpAddr;
use std::sync::Arc;

use seawall_isolate::segment::Design;
use seawall_load::proxy::ProxyRules;
use seawall_load::resolve::HostPort;
use seawall_load::variant::{self, Variant, VariantProtocol};

/// Largest body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// A way as it was asked for. What it does not name is as the flags have it.
#[derive(Debug, Clone, Default)]
pub(super) struct VariantDraft {
    pub(super) name: String,
    /// In words.
    pub(super) description: String,
    pub(super) url: Option<String>,
    pub(super) address: Option<HostPort>,
    pub(super) server_name: Option<String>,
    pub(super) protocol: Option<VariantProtocol>,
    pub(super) keep_alive: Option<bool>,
    pub(super) insecure: bool,
    pub(super) proxies: Option<Arc<ProxyRules>>,
    /// Each connection asks for its address: of all ways, or of none.
    pub(super) lookup_per_connection: bool,
    pub(super) connections: Option<usize>,
    pub(super) source_address: Option<IpAddr>,
    /// Bytes.
    pub(super) body_bytes: Option<usize>,
    pub(super) design: Option<Design>,
}

impl VariantDraft {
    pub(super) fn new(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { name: name.into(), description: what.into(), ..Self::default() }
    }

    /// The same in which everything else is as the reference has it, so that one thing differs alone.
    pub(super) fn inherit_from(self, reference: &Self) -> Self {
        // Each field by name, so that another one is not forgotten here.
        Self {
            name: self.name,
            description: self.description,
            lookup_per_connection: self.lookup_per_connection,
            design: self.design,
            url: self.url.or_else(|| reference.url.clone()),
            address: self.address.or_else(|| reference.address.clone()),
            server_name: self.server_name.or_else(|| reference.server_name.clone()),
            protocol: self.protocol.or(reference.protocol),
            keep_alive: self.keep_alive.or(reference.keep_alive),
            insecure: self.insecure || reference.insecure,
            proxies: self.proxies.or_else(|| reference.proxies.clone()),
            connections: self.connections.or(reference.connections),
            source_address: self.source_address.or(reference.source_address),
            body_bytes: self.body_bytes.or(reference.body_bytes),
        }
    }

    /// Whether it takes a session that the others do not share.
    pub(super) fn needs_own_session(&self) -> bool {
        self.connections.is_some() || self.source_address.is_some()
    }

    /// How it takes its turns: alone where it would disturb the others.
    pub(super) fn effective_design(&self) -> Design {
        let alone = self.needs_own_session() || self.body_bytes.is_some();
        self.design.unwrap_or(if alone { Design::Blocks } else { Design::Interleaved })
    }

    /// Whether anything is different.
    pub(super) fn has_differences(&self) -> bool {
        self.url.is_some()
            || self.address.is_some()
            || self.server_name.is_some()
            || self.protocol.is_some()
            || self.keep_alive.is_some()
            || self.insecure
            || self.proxies.is_some()
            || self.body_bytes.is_some()
            || self.needs_own_session()
    }

    /// As the engine has it.
    pub(super) fn to_variant(&self) -> Variant {
        Variant {
            name: self.name.clone(),
            address: self.address.clone(),
            server_name: self.server_name.clone(),
            protocol: self.protocol,
            keep_alive: self.keep_alive,
            insecure: self.insecure,
            proxies: self.proxies.clone(),
        }
    }
}

/// A proxy's URL, or none.
pub(super) fn parse_proxy_rules(text: &str) -> Option<Arc<ProxyRules>> {
    variant::parse_proxy(text).ok().map(Arc::new)
}

/// A protocol's word; none of another.
pub(super) fn parse_protocol(text: &str) -> Option<VariantProtocol> {
    match text {
        "http1" => Some(VariantProtocol::Http1),
        "http2" => Some(VariantProtocol::Http2),
        _ => None,
    }
}

/// Whether requests of this method carry a body: others are other requests with one (RFC 9110 section 9.3).
pub(super) fn method_takes_body(method: &str) -> bool {
    matches!(method, "POST" | "PUT" | "PATCH")
}

/// What it is called.
pub(super) fn protocol_name(protocol: VariantProtocol) -> &'static str {
    match protocol {
        VariantProtocol::Http1 => "HTTP/1.1",
        VariantProtocol::Http2 => "HTTP/2",
    }
}

/// Whether it is an address in the place of a name.
pub(super) fn is_ip_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}
