//! The differences of a variant, before it is known whether it can be sent.

use std::net::IpAddr;
use std::sync::Arc;

use seawall_isolate::segment::VariantOrder;
use seawall_load::origin_resolution::HostPort;
use seawall_load::proxy::ProxyRules;
use seawall_load::variant::{self, Variant, VariantProtocol};

/// Largest body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;

/// A variant as it was asked for. The flags decide whatever it leaves open.
#[derive(Debug, Clone, Default)]
pub(super) struct VariantDraft {
    pub(super) name: String,
    /// The description in words.
    pub(super) description: String,
    pub(super) url: Option<String>,
    pub(super) address: Option<HostPort>,
    pub(super) server_name: Option<String>,
    pub(super) protocol: Option<VariantProtocol>,
    pub(super) keep_alive: Option<bool>,
    pub(super) insecure: bool,
    pub(super) proxies: Option<Arc<ProxyRules>>,
    /// True if each connection looks up its address; this holds for all variants or for none.
    pub(super) lookup_per_connection: bool,
    pub(super) connections: Option<usize>,
    pub(super) source_address: Option<IpAddr>,
    /// The size of the body in bytes.
    pub(super) body_bytes: Option<usize>,
    pub(super) design: Option<VariantOrder>,
}

impl VariantDraft {
    pub(super) fn new(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { name: name.into(), description: what.into(), ..Self::default() }
    }

    /// Fills in everything else from the reference, so that the variant differs in one thing alone.
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

    /// Returns true if the variant needs a session of its own.
    pub(super) fn needs_own_session(&self) -> bool {
        self.connections.is_some() || self.source_address.is_some()
    }

    /// Returns the design of the variant: blocks if it would disturb the others.
    pub(super) fn effective_design(&self) -> VariantOrder {
        let alone = self.needs_own_session() || self.body_bytes.is_some();
        self.design.unwrap_or(if alone {
            VariantOrder::OneVariantPerBlock
        } else {
            VariantOrder::Interleaved
        })
    }

    /// Returns true if the variant has any differences.
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

    /// Returns the variant of the load engine.
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

/// Returns true if requests of this method have a body: a body changes the meaning of others (RFC 9110 section 9.3).
pub(super) fn method_takes_body(method: &str) -> bool {
    matches!(method, "POST" | "PUT" | "PATCH")
}

/// Returns the name of a protocol.
pub(super) fn protocol_name(protocol: VariantProtocol) -> &'static str {
    match protocol {
        VariantProtocol::Http1 => "HTTP/1.1",
        VariantProtocol::Http2 => "HTTP/2",
    }
}

/// Returns true if the host is an IP address and not a name.
pub(super) fn is_ip_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}
