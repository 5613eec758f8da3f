//! Tells the eBPF programs which pods are trusted proxies. A trusted proxy connects from the network namespaces of the pods that it
//! serves, so the programs charge its records to these namespaces instead of to the proxy's own cgroup.

use std::collections::BTreeSet;
use std::fmt;

use aya::maps::{HashMap, Map, MapData};

use crate::error::Error;
use crate::pins::{PROXIES_MAP, Pins};

/// The map of the trusted proxies' cgroups.
pub struct TrustedProxyMap(HashMap<MapData, u64, u32>);

impl fmt::Debug for TrustedProxyMap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TrustedProxyMap").finish_non_exhaustive()
    }
}

impl TrustedProxyMap {
    /// Opens the pinned map.
    ///
    /// # Errors
    /// The redirect is not attached, or this process is not allowed to open the map.
    pub fn open(pins: &Pins) -> Result<Self, Error> {
        HashMap::try_from(Map::HashMap(pins.open_map(PROXIES_MAP)?))
            .map(Self)
            .map_err(Error::for_map(PROXIES_MAP))
    }

    /// Makes the pods with these cgroups the only trusted proxies. The map holds 64; a node has one proxy, or two during a rollout.
    ///
    /// # Errors
    /// The kernel refuses to read or to write the map, or the map is full.
    pub fn replace(&mut self, cgroup_ids: &BTreeSet<u64>) -> Result<(), Error> {
        let known: BTreeSet<u64> =
            self.0.keys().collect::<Result<_, _>>().map_err(Error::for_map(PROXIES_MAP))?;
        for gone in known.difference(cgroup_ids) {
            self.0.remove(gone).map_err(Error::for_map(PROXIES_MAP))?;
        }
        for new in cgroup_ids.difference(&known) {
            self.0.insert(new, 1, 0).map_err(Error::for_map(PROXIES_MAP))?;
        }
        Ok(())
    }
}
