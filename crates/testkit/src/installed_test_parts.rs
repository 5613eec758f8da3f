//! The real client libraries, where `scripts/setup test-parts` (which `make test` runs) installs them. Without them the tests
//! that use them fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

/// Returns the path of this test part in the cache. Panics if `scripts/setup test-parts` has not installed it.
pub fn cached_test_part_path(name: &str) -> PathBuf {
    let cache = std::env::var_os("SEAWALL_CACHE").map(PathBuf::from);
    let cache =
        cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/seawall"));
    let path = cache.join(name);
    assert!(path.exists(), "{} is missing; run: scripts/setup test-parts", path.display());
    path
}
